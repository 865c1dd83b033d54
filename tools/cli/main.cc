#include <tools/cli/commands.h>
#include <tools/cli/program.h>

int main(int argc, char** argv) {
  sluice::cli::Program program;
  sluice::cli::addAlgorithmsCommand(program, program.root());
  sluice::cli::addBenchCommand(program, program.root());
  sluice::cli::addConfigCommand(program, program.root());
  sluice::cli::addDoctorCommand(program, program.root());
  sluice::cli::addFormulasCommand(program, program.root());
  sluice::cli::addKeyCommand(program, program.root());
  sluice::cli::addLabCommand(program, program.root());
  sluice::cli::addMembersCommand(program, program.root());
  sluice::cli::addPlanCommand(program, program.root());
  sluice::cli::addRendezvousCommand(program, program.root());
  sluice::cli::addSimulateCommand(program, program.root());
  sluice::cli::addTraceCommand(program, program.root());
  return program.run(argc, argv);
}
