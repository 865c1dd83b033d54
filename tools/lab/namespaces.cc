#include <tools/lab/namespaces.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fmt/format.h>

#include <sluice/base/units.h>
#include <tools/lab/layout.h>

namespace sluice::lab {
namespace {

struct Identity {
  dev_t device;
  ino_t inode;
  friend auto operator<=>(const Identity&, const Identity&) = default;
};

std::optional<Identity> identityOf(const std::filesystem::path& namespaceFile) {
  struct stat found{};
  if (::stat(namespaceFile.c_str(), &found) != 0) return std::nullopt;
  return Identity{found.st_dev, found.st_ino};
}

}  // namespace

Result<net::Fd> openNamespace(const Realm& realm, const std::string& name) {
  const auto path = realm.names() / name;
  net::Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.valid()) return fd;
  if (errno == ENOENT)
    return Status(Code::kNotFound, fmt::format("the namespace {} is gone", name));
  return base::fromErrno("open " + path.string());
}

std::vector<std::string> namespacesOf(const Realm& realm, const std::string& lab) {
  std::vector<std::string> names;
  std::error_code error;  // no directory: no namespaces
  for (const auto& entry : std::filesystem::directory_iterator(realm.names(), error)) {
    std::string name = entry.path().filename().string();
    if (isNamespaceOf(lab, name)) names.push_back(std::move(name));
  }
  std::ranges::sort(names);
  return names;
}

std::map<std::string, std::vector<pid_t>> processesIn(const Realm& realm,
                                                      const std::vector<std::string>& namespaces) {
  std::map<std::string, std::vector<pid_t>> found;
  std::map<Identity, std::string> wanted;
  for (const auto& name : namespaces) {
    if (const auto identity = identityOf(realm.names() / name)) wanted[*identity] = name;
  }
  if (wanted.empty()) return found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto pid = base::parseInteger(entry.path().filename().string());
    if (!pid.isOk()) continue;
    const auto identity = identityOf(entry.path() / "ns/net");  // empty if the process has ended
    if (!identity) continue;
    if (const auto place = wanted.find(*identity); place != wanted.end()) {
      found[place->second].push_back(static_cast<pid_t>(*pid));
    }
  }
  return found;
}

bool enterNamespace(int networkNamespace) {
  if (::setns(networkNamespace, CLONE_NEWNET) != 0 || ::unshare(CLONE_NEWNS) != 0) return false;
  // Mounts made here must not show outside; mounts removed outside must not stay here.
  return ::mount("", "/", nullptr, MS_SLAVE | MS_REC, nullptr) == 0;
}

bool mountOwnSys() {
  // The control groups are mounted below the old /sys; programs read their limits there, so keep
  // them. Both system calls are made by number: only glibc 2.36 has functions for them, and the
  // program must run with older ones.
  const int groups =
      static_cast<int>(::syscall(SYS_open_tree, AT_FDCWD, "/sys/fs/cgroup",
                                 OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE));
  const bool mounted = ::mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0 ||
                       ::mount("sysfs", "/sys", "sysfs", MS_RDONLY, nullptr) == 0;
  const int error = errno;
  if (groups >= 0) {
    // Ignore errors: not every machine has control groups, and sluice does not need them.
    if (mounted)
      ::syscall(SYS_move_mount, groups, "", AT_FDCWD, "/sys/fs/cgroup", MOVE_MOUNT_F_EMPTY_PATH);
    ::close(groups);
  }
  errno = error;
  return mounted;
}

bool mountOwnProc() {
  return ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0;
}

void sayRefused(const char* mount) {
  const char* why = ::strerrordesc_np(errno);
  for (const char* piece :
       {"sluice: this machine refuses a ", mount, " of the host's own (",
        why != nullptr ? why : "unknown error", "): programs see the machine's\n"}) {
    if (::write(STDERR_FILENO, piece, std::strlen(piece)) < 0) break;
  }
}

}  // namespace sluice::lab
