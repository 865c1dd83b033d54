#include <sluice/base/file.h>

#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace sluice::base {

Result<std::string> readFile(std::string_view what, const std::string& path) {
  std::ifstream file(path);
  if (!file) return fromErrno(fmt::format("cannot read the {} {}", what, path));
  std::ostringstream text;
  text << file.rdbuf();
  return std::move(text).str();
}

}  // namespace sluice::base
