#include <tools/doctor/torch_version.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>

#include <sluice/base/clock.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/text.h>

namespace sluice::doctor {
namespace {

constexpr auto kAnswerWithin = std::chrono::seconds(3);
constexpr const char* kQuestion = "import importlib.metadata as m; print(m.version('torch'))";

std::string pythonProgram() {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  const auto beside = self.parent_path() / "python3";
  return !error && ::access(beside.c_str(), X_OK) == 0 ? beside.string() : "python3";
}

// Reads until the other end closes or the time is up. False: the time is up.
bool readAll(int fd, std::string& text) {
  const base::RealClock clock;
  const TimePoint end = clock.now() + kAnswerWithin;
  std::array<char, 256> buffer{};
  while (text.size() < 4096) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.now());
    pollfd waiting{.fd = fd, .events = POLLIN, .revents = 0};
    const int ready = left.count() > 0 ? ::poll(&waiting, 1, static_cast<int>(left.count())) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t bytes = ::read(fd, buffer.data(), buffer.size());
    if (bytes <= 0) return true;
    text.append(buffer.data(), static_cast<size_t>(bytes));
  }
  return false;
}

}  // namespace

std::string findTorchVersion() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  const net::Fd readEnd(ends[0]);
  net::Fd writeEnd(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, writeEnd.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  const std::string python = pythonProgram();
  std::array<char*, 4> words{const_cast<char*>(python.c_str()), const_cast<char*>("-c"),
                             const_cast<char*>(kQuestion), nullptr};
  pid_t child = -1;
  const int failed =
      ::posix_spawnp(&child, python.c_str(), &actions, nullptr, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return {};
  writeEnd.reset();
  std::string answer;
  if (!readAll(readEnd.get(), answer)) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? std::string(base::trim(answer)) : "";
}

}  // namespace sluice::doctor
