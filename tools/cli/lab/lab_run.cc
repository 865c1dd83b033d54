// sluice lab run and exec: programs on the hosts of a lab.
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include <fmt/format.h>

#include <sluice/base/units.h>
#include <tools/cli/lab/lab_command.h>
#include <tools/cli/program.h>
#include <tools/lab/host_list.h>

namespace sluice::cli {
namespace {

struct RunFlags {
  std::shared_ptr<std::string> name;
  std::string hosts;
  int perHost = 1;
  std::string timeout = "0s";
  uint16_t masterPort = lab::RunOptions{}.masterPort;
  std::vector<std::string> command;
};

struct ExecFlags {
  std::shared_ptr<std::string> name;
  std::string host;
  std::vector<std::string> command;
};

// Returns the prefix of each line, "[2] ", on a terminal in a colour of the rank's own.
std::string prefixFor(int rank, FILE* stream) {
  if (::isatty(::fileno(stream)) == 0) return fmt::format("[{}] ", rank);
  return fmt::format("\033[{}m[{}]\033[0m ", 31 + rank % 6, rank);
}

Result<int> run(const RunFlags& flags) {
  SLUICE_ASSIGN_OR_RETURN(const lab::Lab lab, lab::Lab::open(*flags.name));
  SLUICE_ASSIGN_OR_RETURN(const lab::State state, lab.state());
  lab::RunOptions options;
  options.command = flags.command;
  options.perHost = flags.perHost;
  options.masterPort = flags.masterPort;
  options.forwardSignals = true;
  if (!flags.hosts.empty()) {
    SLUICE_ASSIGN_OR_RETURN(options.hosts, lab::parseHostList(flags.hosts, state.layout.hosts));
  }
  SLUICE_ASSIGN_OR_RETURN(options.timeout, base::parseDuration(flags.timeout));
  options.onLine = [](int rank, lab::Stream stream, std::string_view line) {
    FILE* to = stream == lab::Stream::kOut ? stdout : stderr;
    const std::string whole = fmt::format("{}{}\n", prefixFor(rank, to), line);
    std::fwrite(whole.data(), 1, whole.size(), to);
    std::fflush(to);
  };
  options.onEvent = [](std::string_view message) {
    fmt::print(stderr, "sluice lab run: {}\n", message);
  };
  return lab.run(options);
}

Result<int> exec(const ExecFlags& flags) {
  SLUICE_ASSIGN_OR_RETURN(const lab::Lab lab, lab::Lab::open(*flags.name));
  SLUICE_ASSIGN_OR_RETURN(const lab::State state, lab.state());
  SLUICE_ASSIGN_OR_RETURN(const auto hosts, lab::parseHostList(flags.host, state.layout.hosts));
  if (hosts.size() != 1)
    return Status(Code::kInvalidArgument, "exec runs on one host; use 'sluice lab run' for more");
  SLUICE_RETURN_IF_ERROR(lab.enter(hosts.front()));
  std::vector<char*> arguments;
  for (const auto& argument : flags.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  ::execvp(arguments[0], arguments.data());
  const int error = errno;
  fmt::print(stderr, "sluice: {}\n", base::fromErrno(flags.command.front(), error).message());
  return error == ENOENT ? 127 : 126;  // as a shell answers
}

void addRun(Program& program, CLI::App& group) {
  CLI::App* command = program.addCommand(
      group, "run", "Run a command on the hosts, one rank per process, and wait for it",
      {"sluice lab run -- python3 train.py",
       "sluice lab run --hosts 0-3 --per-host 2 --timeout 60s -- ./bench", "",
       "Each process gets RANK, LOCAL_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR,",
       "MASTER_PORT, GLOO_SOCKET_IFNAME, UCX_NET_DEVICES, SLUICE_IFACE, and",
       "SLUICE_JOB_KEY_FILE if you have set no key.",
       "Exit code: 0 if all ranks end well; else that of the first that does not,",
       "128+N for signal N, and 124 after --timeout; the others are then told to end",
       "(SIGTERM) and killed 5 s later.",
       "Signals INT, TERM, HUP, QUIT, USR1, USR2 are passed on; a second INT or TERM",
       "kills all ranks.", "Whatever the ranks leave in the background ends with the run."});
  auto flags = std::make_shared<RunFlags>();
  flags->name = addLabName(command);
  command->add_option("--hosts", flags->hosts,
                      "Which hosts, in order of rank, as 0-3,5; default: all");
  addWithDefault(command, "--per-host", flags->perHost, "Processes on each host");
  command->add_option("--timeout", flags->timeout,
                      "End it after this time, as 60s; default: never");
  addWithDefault(command, "--master-port", flags->masterPort, "MASTER_PORT");
  command->add_option("command", flags->command, "The command and its arguments, after --")
      ->required();
  program.onRun(command, [flags](const base::Config&) { return run(*flags); });
}

void addExec(Program& program, CLI::App& group) {
  CLI::App* command = program.addCommand(
      group, "exec", "Become a command on one host (a shell, iperf3, ...)",
      {"sluice lab exec --host 2 -- bash", "sluice lab exec --host 0 -- ip addr"});
  auto flags = std::make_shared<ExecFlags>();
  flags->name = addLabName(command);
  command->add_option("--host", flags->host, "Which host, as 2")->required();
  command->add_option("command", flags->command, "The command and its arguments, after --")
      ->required();
  program.onRun(command, [flags](const base::Config&) { return exec(*flags); });
}

}  // namespace

void addLabRunCommands(Program& program, CLI::App& group) {
  addRun(program, group);
  addExec(program, group);
}

}  // namespace sluice::cli
