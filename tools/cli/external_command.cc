#include <tools/cli/external_command.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include <sluice/base/text.h>

namespace sluice::cli {
namespace {

constexpr std::string_view kPrefix = "sluice-";

std::vector<std::filesystem::path> foldersToSearch() {
  std::vector<std::filesystem::path> folders{ownFolder()};
  if (const char* path = std::getenv("PATH")) {
    for (const auto& folder : base::split(path, ':')) folders.emplace_back(folder);
  }
  return folders;
}

// A script begins with "#!". Its description is the first comment or docstring after that line.
std::string descriptionOf(const std::filesystem::path& program) {
  std::ifstream file(program);
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("#!")) return "";
  while (std::getline(file, line)) {
    std::string_view text = base::trim(line);
    if (text.empty() || text == "#") continue;
    const bool isComment = text.starts_with('#');
    if (!isComment && !text.starts_with("\"\"\"")) return "";
    text.remove_prefix(isComment ? 1 : 3);
    if (text.ends_with("\"\"\"")) text.remove_suffix(3);
    if (!base::trim(text).empty()) return std::string(base::trim(text));
  }
  return "";
}

}  // namespace

std::filesystem::path ownFolder() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::filesystem::path() : self.parent_path();
}

std::vector<ExternalCommand> findExternalCommands() {
  std::map<std::string, std::filesystem::path> found;
  for (const auto& folder : foldersToSearch()) {
    std::error_code error;  // a folder that is not there has no programs
    for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error)) {
      const std::string file = entry->path().filename().string();
      std::error_code unreadable;
      if (file.starts_with(kPrefix) && file.size() > kPrefix.size() &&
          entry->is_regular_file(unreadable) && ::access(entry->path().c_str(), X_OK) == 0) {
        found.emplace(file.substr(kPrefix.size()), entry->path());
      }
    }
  }
  std::vector<ExternalCommand> commands;
  commands.reserve(found.size());
  for (const auto& [name, path] : found) commands.push_back({name, descriptionOf(path)});
  return commands;
}

void runExternalCommand(const std::string& name, char** argv) {
  const std::string program = std::string(kPrefix) + name;
  const auto folder = ownFolder();
  if (!folder.empty()) ::execv((folder / program).c_str(), argv);
  ::execvp(program.c_str(), argv);
}

}  // namespace sluice::cli
