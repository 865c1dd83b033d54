#include <tools/lab/command_line_tool.h>

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include <fmt/format.h>

#include <sluice/base/net/fd.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>
#include <tools/lab/pidfd.h>

namespace sluice::lab {
namespace {

using net::Fd;

std::string findProgram(const std::string& name) {
  const char* path = ::getenv("PATH");
  // Search the system's own directories first, since this runs as root. PATH is for systems that
  // keep the tools elsewhere; a relative entry of it would depend on the directory in which the lab
  // is used.
  const std::string directories =
      fmt::format("/usr/sbin:/sbin:/usr/bin:/bin:{}", path != nullptr ? path : "");
  for (const std::string_view directory : base::split(directories, ':')) {
    const std::string program = fmt::format("{}/{}", directory, name);
    if (directory.starts_with('/') && ::access(program.c_str(), X_OK) == 0) return program;
  }
  return {};
}

// Makes a file in memory to use instead of a pipe: nobody has to read it while the tool runs.
Fd memoryFile(const char* name) {
  return Fd(::memfd_create(name, MFD_CLOEXEC));
}

std::string contentsOf(const Fd& file) {
  std::string text;
  char piece[4096];
  ssize_t got = 0;
  off_t at = 0;
  while ((got = ::pread(file.get(), piece, sizeof piece, at)) > 0) {
    text.append(piece, static_cast<size_t>(got));
    at += got;
  }
  return text;
}

std::string asOneLine(std::string_view text) {
  std::string line;
  for (const std::string_view piece : base::split(base::trim(text), '\n')) {
    if (!line.empty()) line += "; ";
    line += base::trim(piece);
  }
  return line;
}

// Waits until the process has ended or the limit is over; returns false in the second case.
bool endsWithin(int pidFd, Duration limit) {
  const TimePoint end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd wait{pidFd, POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

}  // namespace

Result<std::string> runTool(const ToolCall& call) {
  const std::string& name = call.command.front();
  const std::string program = findProgram(name);
  if (program.empty()) {
    return Status(
        Code::kUnavailable,
        fmt::format("the program '{}' is missing: scripts/install_deps.sh installs it", name));
  }
  const Fd input = memoryFile("input");
  const Fd output = memoryFile("output");
  const Fd errors = memoryFile("errors");
  if (!input.valid() || !output.valid() || !errors.valid()) return base::fromErrno("memfd_create");
  if (::write(input.get(), call.input.data(), call.input.size()) !=
          static_cast<ssize_t>(call.input.size()) ||
      ::lseek(input.get(), 0, SEEK_SET) != 0) {
    return base::fromErrno("write to memory file");
  }
  std::vector<char*> arguments;
  for (const auto& argument : call.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);

  const pid_t parent = ::getpid();
  const pid_t child = ::_Fork();  // unlike fork(), it leaves descriptors open (base/fork.h)
  if (child < 0) return base::fromErrno("fork");
  if (child == 0) {  // only async-signal-safe calls: the caller may have threads
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool ready =
        ::getppid() == parent && (call.realm == nullptr || call.realm->enterWithMounts()) &&
        (call.networkNamespace < 0 || ::setns(call.networkNamespace, CLONE_NEWNET) == 0) &&
        (call.inheritedFd < 0 || ::fcntl(call.inheritedFd, F_SETFD, 0) == 0) &&
        ::dup2(input.get(), STDIN_FILENO) >= 0 && ::dup2(output.get(), STDOUT_FILENO) >= 0 &&
        ::dup2(errors.get(), STDERR_FILENO) >= 0;
    if (ready) ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  const Fd pidFd = openProcess(child);
  const bool ended = pidFd.valid() && endsWithin(pidFd.get(), call.limit);
  if (!ended) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!ended) {
    return Status(Code::kTimeout, fmt::format("{} has not ended within {}", name,
                                              base::formatDuration(call.limit)));
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return contentsOf(output);
  const std::string why = asOneLine(contentsOf(errors));
  return Status(Code::kInternal,
                fmt::format("{} failed: {}", name, why.empty() ? "it gave no reason" : why));
}

}  // namespace sluice::lab
