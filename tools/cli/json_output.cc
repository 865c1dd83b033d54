#include <tools/cli/json_output.h>

#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sluice::cli {

Status checkWritable(const std::string& path) {
  if (path.empty() || path == "-") return base::ok();
  const std::ofstream file(path, std::ios::app);
  return file ? base::ok() : base::fromErrno("cannot write " + path);
}

Status writeJson(const std::string& path, const nlohmann::ordered_json& document) {
  const std::string text = document.dump(1) + "\n";
  if (path == "-") {
    fmt::print("{}", text);
    return base::ok();
  }
  std::ofstream file(path);
  file << text << std::flush;
  return file ? base::ok() : base::fromErrno("cannot write " + path);
}

}  // namespace sluice::cli
