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
#include <tools/cli/exit_codes.h>

namespace sluice::cli {

// The work of a subcommand, once its flags are read. It may answer with an exit code of its own
// (`lab run` returns that of the command it ran), or with a Status, which is printed as one line
// and mapped to an exit code.
using Run = std::function<Result<int>(const base::Config& config)>;

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
