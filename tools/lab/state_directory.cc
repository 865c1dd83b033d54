#include <tools/lab/state_directory.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

#include <fmt/format.h>

namespace sluice::lab {
namespace {

bool isOwnDirectory(const std::string& path, mode_t forbidden) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & forbidden) == 0;
}

Status makeOwnDirectory(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return base::fromErrno("mkdir " + path);
  if (isOwnDirectory(path, 077)) return base::ok();
  return {
      Code::kPermissionDenied,
      fmt::format("{} must be a directory of yours that nobody else may open: remove it, or run: "
                  "chmod 700 {}",
                  path, path)};
}

// The directory that the system gives to a user's session, if there is one; else one in /tmp.
std::string usersDirectory() {
  const char* session = ::getenv("XDG_RUNTIME_DIR");
  if (session != nullptr && session[0] == '/' && isOwnDirectory(session, 022))
    return fmt::format("{}/sluice", session);
  return fmt::format("/tmp/sluice-{}", ::geteuid());
}

}  // namespace

bool worksAsRoot() {
  return ::geteuid() == 0;
}

Result<std::filesystem::path> stateDirectory() {
  if (worksAsRoot()) {
    const std::filesystem::path directory = "/run/sluice/labs";
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) return base::fromErrno("mkdir " + directory.string(), error.value());
    return directory;
  }
  const std::string parent = usersDirectory();
  SLUICE_RETURN_IF_ERROR(makeOwnDirectory(parent));
  SLUICE_RETURN_IF_ERROR(makeOwnDirectory(parent + "/labs"));
  return std::filesystem::path(parent + "/labs");
}

}  // namespace sluice::lab
