#include <tools/cli/profiled_script.h>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <thread>

#include <fmt/format.h>

#include <sluice/base/config.h>
#include <tools/cli/external_command.h>
#include <tools/cli/interruption.h>

namespace sluice::cli {
namespace {

constexpr Duration kBetweenLooks = std::chrono::milliseconds(20);

// A script that sees these would take itself for one rank of many.
constexpr std::array<std::string_view, 8> kOfLaunchers{
    "RANK",        "LOCAL_RANK",  "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "MASTER_ADDR", "MASTER_PORT", "OMPI_",      "SLURM_"};

std::vector<std::string> environmentWithoutLauncher() {
  std::vector<std::string> kept;
  for (const auto& [name, value] : base::processEnvironment()) {
    const bool isLaunchers = std::ranges::any_of(kOfLaunchers, [&](std::string_view one) {
      return one.ends_with('_') ? name.starts_with(one) : name == one;
    });
    if (!isLaunchers) kept.push_back(fmt::format("{}={}", name, value));
  }
  return kept;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

Result<int> waitFor(pid_t child, Duration atMost) {
  const base::RealClock clock;
  const TimePoint limit = clock.now() + atMost;
  int status = 0;
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno != EINTR) return base::fromErrno("cannot wait for sluice-profile");
    const bool isLate = clock.now() > limit;
    if (isLate || Interruption::came()) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      if (!isLate) return Status(Code::kCancelled, "interrupted");
      return Status(Code::kTimeout, fmt::format("sluice profile has not ended after {}",
                                                base::formatDuration(atMost)));
    }
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

}  // namespace

Status profileScript(const std::vector<std::string>& scriptAndArguments, uint32_t steps,
                     const std::string& path, Duration atMost) {
  std::string program = (ownFolder() / "sluice-profile").string();
  if (::access(program.c_str(), X_OK) != 0) program = "sluice-profile";
  std::vector<std::string> words{program, "--steps", fmt::to_string(steps), "--out", path};
  std::ranges::copy(scriptAndArguments, std::back_inserter(words));
  auto environment = environmentWithoutLauncher();
  const auto arguments = pointers(words);
  const auto variables = pointers(environment);

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, program.c_str(), &actions, nullptr, arguments.data(),
                                   variables.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    return {Code::kUnavailable,
            "cannot start sluice-profile, which measures the script's model: install the Python "
            "package of sluice, or give --profile and --compute-time"};
  }
  SLUICE_ASSIGN_OR_RETURN(const int code, waitFor(child, atMost));
  if (code == 0) return base::ok();
  return {Code::kUnavailable,
          fmt::format("sluice profile {} has ended with code {}; its own output says why",
                      scriptAndArguments.front(), code)};
}

}  // namespace sluice::cli
