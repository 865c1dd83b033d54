#include <tools/cli/name_owners.h>

#include <algorithm>
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kOurs = "torch_sluice-";

std::vector<fs::path> entriesOf(const fs::path& folder, std::string_view prefix,
                                std::string_view suffix) {
  std::vector<fs::path> found;
  std::error_code error;  // a folder that is not there has no entries
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(suffix)) found.push_back(entry->path());
  }
  std::ranges::sort(found);
  return found;
}

// pip lists the files of a distribution in RECORD, one per line.
bool installsOurName(const fs::path& distribution) {
  std::ifstream record(distribution / "RECORD");
  for (std::string line; std::getline(record, line);)
    if (line.starts_with("sluice/__init__.py,")) return true;
  return false;
}

}  // namespace

std::string complaintAboutOwners(const fs::path& programFolder) {
  std::vector<std::string> others;
  for (const auto& python : entriesOf(programFolder.parent_path() / "lib", "python", "")) {
    const fs::path packages = python / "site-packages";
    if (entriesOf(packages, kOurs, ".dist-info").empty()) continue;
    for (const auto& distribution : entriesOf(packages, "", ".dist-info")) {
      const std::string name = distribution.filename().string();
      if (!name.starts_with(kOurs) && installsOurName(distribution))
        others.push_back(name.substr(0, name.find('-')));
    }
  }
  if (others.empty()) return "";
  return fmt::format(
      "another distribution also installs a Python package named sluice ({0}): run 'pip uninstall "
      "{0} torch-sluice' and then 'pip install torch-sluice'",
      fmt::join(others, " "));
}

}  // namespace sluice::cli
