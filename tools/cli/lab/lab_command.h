// Shared by the `sluice lab` subcommands.
#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <tools/lab/lab.h>

namespace sluice::cli {

class Program;

// Adds --name, which names the lab. The value is filled in when the command line is read.
std::shared_ptr<std::string> addLabName(CLI::App* command);

// Says on stderr how far an operation is, if it takes longer than two seconds.
lab::Progress progressToTerminal();

// The subcommands, by file.
void addLabFaultCommands(Program& program, CLI::App& group);  // set, cut, drop, heal
void addLabRunCommands(Program& program, CLI::App& group);    // run, exec

}  // namespace sluice::cli
