// The `sluice` program: a tree of subcommands on CLI11, each with help, examples and one way to
// fail.
//
// A subcommand is one file that defines a function `void addXCommand(Program&, CLI::App& parent)`,
// declared in commands.h and called in main.cc. It declares its flags and sets a callback with
// Program::onRun.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <sluice/base/config.h>
#include <sluice/base/status.h>

namespace sluice::cli {

// The exit codes of `sluice`. docs/command-line.md repeats this table; cli_test checks that it
// does.
enum class ExitCode : int {
  kOk = 0,
  kFailed = 1,         // the command failed
  kUsage = 2,          // the command line or a configuration value is wrong
  kPermission = 3,     // needs root or user namespaces, or a key
  kUnavailable = 4,    // something outside is missing: a tool, a kernel module, a peer
  kFindings = 5,       // an examination has found a fault (sluice doctor)
  kTimeout = 124,      // a time limit was reached, as with timeout(1)
  kNoCommand = 127,    // neither a subcommand nor a program sluice-NAME
  kInterrupted = 130,  // ended by Ctrl-C
};

constexpr ExitCode exitCodeFor(Code code) {
  switch (code) {
    case Code::kOk: return ExitCode::kOk;
    case Code::kInvalidArgument: return ExitCode::kUsage;
    case Code::kPermissionDenied: return ExitCode::kPermission;
    case Code::kUnavailable: return ExitCode::kUnavailable;
    case Code::kTimeout: return ExitCode::kTimeout;
    case Code::kCancelled: return ExitCode::kInterrupted;
    case Code::kNotFound:
    case Code::kAlreadyExists:
    case Code::kPeerLost:
    case Code::kRefused:
    case Code::kDataLoss:
    case Code::kInternal: return ExitCode::kFailed;
  }
  return ExitCode::kFailed;
}

// The work of a subcommand, once its flags are read. It may answer with an exit code of its own
// (`lab run` returns that of the command it ran), or with a Status, which is printed as one line
// and mapped to an exit code.
using Run = std::function<Result<int>(const base::Config& config)>;

// Adds a flag with a value. Its help shows the value that the variable has now: the default.
template <typename Value>
CLI::Option* addWithDefault(CLI::App* command, const std::string& name, Value& value,
                            const std::string& help) {
  return command->add_option(name, value, help)->capture_default_str();
}

class Program final {
 public:
  Program();

  CLI::App& root() { return root_; }

  // Adds a subcommand with its help: `examples` is shown under the flags, one command per line.
  CLI::App* addCommand(CLI::App& parent, const std::string& name, const std::string& help,
                       const std::vector<std::string>& examples);
  void onRun(CLI::App* command, Run run);

  // Adds a subcommand of `parent` that is part of the program sluice-PARENT: its words go there
  // unread. `missing` is the error if there is no such program.
  void addExternalPart(CLI::App& parent, const std::string& name, const std::string& help,
                       const std::vector<std::string>& examples, const Status& missing);

  // Makes the option a flag of the command: --name VALUE with its help and default.
  CLI::Option* addOption(CLI::App* command, const base::Option& option);

  int run(int argc, char** argv);

 private:
  int runCommand(const Run& run);

  CLI::App root_;
  std::map<const CLI::App*, Run> runs_;
  std::set<std::pair<std::string, std::string>> externalParts_;  // command and subcommand
  // The text given for each option, by option name. CLI11 writes into the values, so they must not
  // move.
  std::map<std::string, std::unique_ptr<std::string>> flags_;
};

}  // namespace sluice::cli
