#include <tools/lab/keeper.h>

#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include <sluice/base/net/fd.h>

namespace sluice::lab {
namespace {

using net::Fd;

// The data that the keeper needs after fork, prepared before it: memory must not be allocated after
// fork, as the caller may have threads.
struct KeeperPlan {
  std::string file;
  std::string names;
  std::string namesParent;
  std::string users;
  std::string groups;
  int lifeline;
};

// The keeper's answer to the process that starts it.
struct Outcome {
  bool hasRights;  // false: the machine refuses the namespaces
  int error;       // 0: all is well
};

bool writeFile(const char* path, std::string_view text) {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  if (file < 0) return false;
  const bool written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  ::close(file);
  errno = error;
  return written;
}

// The user stays the same user inside, and has all rights there.
bool makeUserNamespace(const KeeperPlan& plan) {
  // `ip` returns to the network that it came from, so that must be one of the user's too.
  return ::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) == 0 &&
         writeFile("/proc/self/setgroups", "deny") && writeFile("/proc/self/uid_map", plan.users) &&
         writeFile("/proc/self/gid_map", plan.groups) &&
         ::mount("", "/", nullptr, MS_SLAVE | MS_REC, nullptr) == 0;
}

// A user cannot make /run/netns. If it is not there, a /run of the lab's own covers the machine's.
bool mountNames(const KeeperPlan& plan) {
  const auto mountAt = [](const std::string& path) {
    return ::mount("tmpfs", path.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755") == 0;
  };
  if (mountAt(plan.names)) return true;
  return errno == ENOENT && mountAt(plan.namesParent) && ::mkdir(plan.names.c_str(), 0755) == 0;
}

// Closes all descriptors but these two; one of the two may be -1.
void closeAllBut(int one, int other) {
  const int low = std::min(one, other);
  const int high = std::max(one, other);
  if (low > 0) ::close_range(0, static_cast<unsigned>(low) - 1, 0);
  if (high > low + 1) {
    ::close_range(static_cast<unsigned>(low + 1), static_cast<unsigned>(high) - 1, 0);
  }
  ::close_range(static_cast<unsigned>(high) + 1, ~0U, 0);
}

// Locks the file first: from then on the keeper can be found, and ended. The lock is lost as soon as
// any descriptor of the file is closed.
Outcome prepareKeeper(const KeeperPlan& plan, int file) {
  struct flock lock{};
  lock.l_type = F_WRLCK;
  if (file < 0 || ::fcntl(file, F_SETLK, &lock) != 0) return {true, errno};
  ::setsid();
  ::prctl(PR_SET_NAME, "sluice-lab");
  if (!makeUserNamespace(plan) || !mountNames(plan)) return {false, errno};
  return {true, ::chdir("/") == 0 ? 0 : errno};
}

[[noreturn]] void becomeKeeper(const KeeperPlan& plan, int report) {
  const int file = ::open(plan.file.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  const Outcome outcome = prepareKeeper(plan, file);
  const bool told = ::write(report, &outcome, sizeof outcome) == sizeof outcome;
  if (!told || outcome.error != 0) ::_exit(1);
  closeAllBut(file, plan.lifeline);  // the caller's files must not stay open with us
  while (plan.lifeline < 0) ::pause();
  char byte = 0;
  while (::read(plan.lifeline, &byte, 1) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

bool says(const std::string& setting, int value) {
  int found = -1;
  std::ifstream("/proc/sys/" + setting) >> found;
  return found == value;
}

std::string waysToAllowNamespaces() {
  if (says("kernel/unprivileged_userns_clone", 0))
    return "sudo sysctl kernel.unprivileged_userns_clone=1";
  if (says("kernel/apparmor_restrict_unprivileged_userns", 1))
    return "sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0";
  if (says("user/max_user_namespaces", 0)) return "sudo sysctl user.max_user_namespaces=10000";
  return "see user_namespaces(7)";
}

Status refused(int error) {
  return {
      Code::kPermissionDenied,
      fmt::format("a lab needs root, or user namespaces, which this machine refuses ({}): run it "
                  "with sudo, or allow them ({})",
                  ::strerrordesc_np(error), waysToAllowNamespaces())};
}

}  // namespace

Status startKeeper(const KeeperOptions& options) {
  const KeeperPlan plan{.file = options.file,
                        .names = options.names,
                        .namesParent = std::filesystem::path(options.names).parent_path(),
                        .users = fmt::format("{0} {0} 1", ::geteuid()),
                        .groups = fmt::format("{0} {0} 1", ::getegid()),
                        .lifeline = options.lifeline};
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::fromErrno("pipe");
  const Fd answer(ends[0]);
  Fd report(ends[1]);
  const pid_t keeper = ::_Fork();  // unlike fork(), it leaves descriptors open (base/fork.h)
  if (keeper < 0) return base::fromErrno("fork");
  if (keeper == 0) becomeKeeper(plan, report.get());
  report.reset();
  Outcome outcome{true, ECHILD};
  ssize_t got = 0;
  while ((got = ::read(answer.get(), &outcome, sizeof outcome)) < 0 && errno == EINTR) {
  }
  if (got == sizeof outcome && outcome.error == 0) return base::ok();
  while (::waitpid(keeper, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!outcome.hasRights) return refused(outcome.error);
  return base::fromErrno("starting the process that holds the lab's namespaces", outcome.error);
}

}  // namespace sluice::lab
