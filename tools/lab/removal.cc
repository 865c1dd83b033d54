#include <tools/lab/removal.h>

#include <poll.h>
#include <signal.h>

#include <cerrno>

#include <fmt/format.h>

#include <sluice/base/net/fd.h>
#include <tools/lab/command_line_tool.h>
#include <tools/lab/namespaces.h>
#include <tools/lab/pidfd.h>

namespace sluice::lab {
namespace {

using net::Fd;
using std::chrono::steady_clock;

struct Inhabitant {
  pid_t pid;
  Fd fd;
};

std::vector<Inhabitant> inhabitantsOf(const Realm& realm,
                                      const std::vector<std::string>& namespaces) {
  std::vector<Inhabitant> all;
  for (const auto& [name, pids] : processesIn(realm, namespaces)) {
    for (const pid_t pid : pids) {
      Fd fd = openProcess(pid);
      if (fd.valid()) all.push_back({pid, std::move(fd)});  // else it has just ended
    }
  }
  return all;
}

// Signals all and waits until they have ended or `limit` is over. Uses pidfds, so that it cannot
// hit another process that got the same id.
void signalAndWait(const std::vector<Inhabitant>& all, int signal, Duration limit) {
  for (const auto& one : all) signalProcess(one.fd, signal);
  const auto end = steady_clock::now() + limit;
  for (const auto& one : all) {
    pollfd wait{one.fd.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - steady_clock::now());
    while (::poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) < 0 &&
           errno == EINTR) {
    }
  }
}

Status endProcesses(const Realm& realm, const std::vector<std::string>& namespaces,
                    const Progress& progress) {
  auto inside = inhabitantsOf(realm, namespaces);
  if (inside.empty()) return base::ok();
  if (progress) progress(0, static_cast<int>(inside.size()), "ending processes");
  signalAndWait(inside, SIGTERM, std::chrono::seconds(1));
  inside = inhabitantsOf(realm, namespaces);
  signalAndWait(inside, SIGKILL, std::chrono::seconds(2));
  inside = inhabitantsOf(realm, namespaces);
  if (inside.empty()) return base::ok();
  return {Code::kInternal, fmt::format("process {} in the lab does not end; try again when it has",
                                       inside.front().pid)};
}

}  // namespace

Result<bool> removeNamespaces(const Realm& realm, const std::string& lab, int lockFd,
                              const Progress& progress) {
  const auto namespaces = namespacesOf(realm, lab);
  SLUICE_RETURN_IF_ERROR(endProcesses(realm, namespaces, progress));
  if (!realm.isMachine()) {  // the namespaces vanish with the keeper
    SLUICE_RETURN_IF_ERROR(realm.end());
    return true;
  }
  if (namespaces.empty()) return false;
  std::string script;
  for (const auto& name : namespaces) script += fmt::format("netns delete {}\n", name);
  const auto removed = runTool(
      {.command = {"ip", "-batch", "-"}, .input = script, .realm = &realm, .inheritedFd = lockFd});
  if (!removed.isOk()) return removed.status().withContext("removing the namespaces");
  return true;
}

}  // namespace sluice::lab
