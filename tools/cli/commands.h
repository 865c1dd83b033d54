// The subcommands of `sluice`, one file each.
#pragma once

#include <CLI/CLI.hpp>

namespace sluice::cli {

class Program;

void addAlgorithmsCommand(Program& program, CLI::App& root);
void addBenchCommand(Program& program, CLI::App& root);
void addBenchCollectiveCommands(Program& program, CLI::App& bench);  // of `sluice bench`
void addBenchFabricCommands(Program& program, CLI::App& bench);      // of `sluice bench`
void addConfigCommand(Program& program, CLI::App& root);
void addDoctorCommand(Program& program, CLI::App& root);
void addFlightCommand(Program& program, CLI::App& trace);  // of `sluice trace`
void addFormulasCommand(Program& program, CLI::App& root);
void addKeyCommand(Program& program, CLI::App& root);
void addLabCommand(Program& program, CLI::App& root);
void addMembersCommand(Program& program, CLI::App& root);
void addPlanCommand(Program& program, CLI::App& root);
void addRendezvousCommand(Program& program, CLI::App& root);
void addSimulateCommand(Program& program, CLI::App& root);
void addTraceCommand(Program& program, CLI::App& root);

// Makes the options of single algorithms flags of a command that trains. Its help points to
// `sluice algorithms NAME` instead of listing them. Call it last: an option that has the name of a
// flag of the command's own is left out.
void addAlgorithmFlags(Program& program, CLI::App* command);

}  // namespace sluice::cli
