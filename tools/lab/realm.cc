#include <tools/lab/realm.h>

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cerrno>

#include <fmt/format.h>

#include <tools/lab/keeper.h>
#include <tools/lab/pidfd.h>

namespace sluice::lab {
namespace {

using net::Fd;

constexpr const char* kNames = "/run/netns";

struct Holder {
  bool exists;
  pid_t pid;  // 0: in a PID namespace that cannot be seen from here
};

Result<Holder> holderOf(const Fd& file) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  if (::fcntl(file.get(), F_GETLK, &lock) != 0) return base::fromErrno("F_GETLK");
  return Holder{lock.l_type != F_UNLCK, lock.l_pid};
}

bool isSameFile(const std::string& one, const std::string& other) {
  struct stat first{};
  struct stat second{};
  return ::stat(one.c_str(), &first) == 0 && ::stat(other.c_str(), &second) == 0 &&
         first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

// A process that is not uid 0 loses its rights when it becomes another program, unless they are
// inheritable and "ambient".
bool keepRightsOverExec() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct rights[_LINUX_CAPABILITY_U32S_3]{};
  if (::syscall(SYS_capget, &header, rights) != 0) return false;
  for (auto& part : rights) part.inheritable = part.permitted;
  if (::syscall(SYS_capset, &header, rights) != 0) return false;
  for (unsigned right = 0; right <= CAP_LAST_CAP; ++right) {
    // The kernel may be older than this list: then the last ones are unknown to it.
    if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, right, 0, 0) != 0 && errno != EINVAL)
      return false;
  }
  return true;
}

}  // namespace

Realm Realm::ofMachine() {
  Realm realm;
  realm.names_ = kNames;
  return realm;
}

Result<Realm> Realm::make(const std::filesystem::path& file, int lifeline) {
  SLUICE_RETURN_IF_ERROR(startKeeper({.file = file, .names = kNames, .lifeline = lifeline}));
  SLUICE_ASSIGN_OR_RETURN(std::optional<Realm> made, find(file));
  if (made) return *std::move(made);
  return Status(Code::kInternal, "the process that holds the lab's namespaces has ended");
}

Result<std::optional<Realm>> Realm::find(const std::filesystem::path& file) {
  const Fd lock(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock.valid() && errno == ENOENT) return std::optional<Realm>{};
  if (!lock.valid()) return base::fromErrno("open " + file.string());
  SLUICE_ASSIGN_OR_RETURN(const Holder holder, holderOf(lock));
  if (!holder.exists) return std::optional<Realm>{};
  if (holder.pid <= 0) {
    return Status(Code::kUnavailable,
                  "the lab belongs to another PID namespace, as that of 'sluice lab run': use it "
                  "from where it was made");
  }
  Realm realm;
  const std::string process = fmt::format("/proc/{}", holder.pid);
  realm.pid_ = holder.pid;
  realm.keeper_ = openProcess(holder.pid);
  realm.names_ = process + "/root" + kNames;
  realm.isInside_ = isSameFile("/proc/self/ns/user", process + "/ns/user");
  // The process is the keeper only if it still holds the lock.
  SLUICE_ASSIGN_OR_RETURN(const Holder still, holderOf(lock));
  if (!still.exists) return std::optional<Realm>{};
  if (!realm.keeper_.valid()) return base::fromErrno("pidfd_open");
  return std::optional<Realm>(std::move(realm));
}

bool Realm::enter() const {
  if (isMachine() || isInside_) return true;
  return ::setns(keeper_.get(), CLONE_NEWUSER) == 0 && keepRightsOverExec();
}

bool Realm::enterWithMounts() const {
  return isMachine() || (enter() && ::setns(keeper_.get(), CLONE_NEWNS | CLONE_NEWNET) == 0);
}

Status Realm::end() const {
  signalProcess(keeper_, SIGKILL);
  pollfd wait{keeper_.get(), POLLIN, 0};
  int ready = 0;
  while ((ready = ::poll(&wait, 1, 5000)) < 0 && errno == EINTR) {
  }
  if (ready != 1) return {Code::kTimeout, fmt::format("the lab's process {} does not end", pid_)};
  ::waitpid(pid_, nullptr, WNOHANG);  // it is our child if this process has made the lab
  return base::ok();
}

}  // namespace sluice::lab
