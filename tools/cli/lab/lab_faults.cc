// sluice lab set, cut, drop, heal: changes to a lab while traffic runs.
#include <fmt/format.h>

#include <sluice/base/units.h>
#include <tools/cli/lab/lab_command.h>
#include <tools/cli/program.h>
#include <tools/lab/host_list.h>

namespace sluice::cli {
namespace {

// The flags that all of them need: the lab, some of its hosts, and one value.
struct FaultFlags {
  std::shared_ptr<std::string> name;
  std::string hosts;
  std::string between;
  std::string rate;
  double percent = 0;
};

Result<std::vector<int>> hostsOf(const lab::Lab& lab, const std::string& list) {
  SLUICE_ASSIGN_OR_RETURN(const lab::State state, lab.state());
  return lab::parseHostList(list, state.layout.hosts);
}

Result<int> setRate(const FaultFlags& flags) {
  SLUICE_ASSIGN_OR_RETURN(lab::Lab lab, lab::Lab::open(*flags.name));
  SLUICE_ASSIGN_OR_RETURN(const auto hosts, hostsOf(lab, flags.hosts));
  SLUICE_ASSIGN_OR_RETURN(const Rate rate, base::parseRate(flags.rate));
  SLUICE_RETURN_IF_ERROR(lab.setRate(hosts, rate));
  return 0;
}

Result<int> cut(const FaultFlags& flags) {
  SLUICE_ASSIGN_OR_RETURN(lab::Lab lab, lab::Lab::open(*flags.name));
  if (flags.hosts.empty() == flags.between.empty()) {
    return Status(Code::kInvalidArgument, "say either --host 2 or --between 0,1");
  }
  SLUICE_ASSIGN_OR_RETURN(const auto hosts, hostsOf(lab, flags.hosts + flags.between));
  if (flags.between.empty()) {
    SLUICE_RETURN_IF_ERROR(lab.cut(hosts));
    return 0;
  }
  if (hosts.size() != 2) return Status(Code::kInvalidArgument, "--between takes two hosts, as 0,1");
  SLUICE_RETURN_IF_ERROR(lab.cutBetween(hosts[0], hosts[1]));
  return 0;
}

Result<int> drop(const FaultFlags& flags) {
  SLUICE_ASSIGN_OR_RETURN(lab::Lab lab, lab::Lab::open(*flags.name));
  SLUICE_ASSIGN_OR_RETURN(const auto hosts, hostsOf(lab, flags.hosts));
  SLUICE_RETURN_IF_ERROR(lab.drop(hosts, flags.percent));
  return 0;
}

Result<int> heal(const FaultFlags& flags) {
  SLUICE_ASSIGN_OR_RETURN(lab::Lab lab, lab::Lab::open(*flags.name));
  SLUICE_RETURN_IF_ERROR(lab.heal());
  return 0;
}

std::shared_ptr<FaultFlags> addCommand(Program& program, CLI::App& group, const std::string& name,
                                       const std::string& help,
                                       const std::vector<std::string>& examples,
                                       Result<int> (*run)(const FaultFlags&)) {
  CLI::App* command = program.addCommand(group, name, help, examples);
  auto flags = std::make_shared<FaultFlags>();
  flags->name = addLabName(command);
  program.onRun(command, [flags, run](const base::Config&) { return run(*flags); });
  return flags;
}

}  // namespace

void addLabFaultCommands(Program& program, CLI::App& group) {
  constexpr auto kHostHelp = "Which host or hosts, as 2 or 0-3,5";

  auto flags = addCommand(program, group, "set",
                          "Change the speed of links, both directions, while traffic runs",
                          {"sluice lab set --host 2 --rate 100mbit"}, setRate);
  CLI::App* command = group.get_subcommand("set");
  command->add_option("--host", flags->hosts, kHostHelp)->required();
  command->add_option("--rate", flags->rate, "The new speed, as 100mbit")->required();

  flags = addCommand(program, group, "cut", "Let packets vanish: silent, nothing is reset",
                     {"sluice lab cut --host 2", "sluice lab cut --between 0,1"}, cut);
  command = group.get_subcommand("cut");
  command->add_option("--host", flags->hosts, "Cut these off from all others, as 2 or 0-3,5");
  command->add_option("--between", flags->between, "Cut these two off from each other, as 0,1");

  flags = addCommand(
      program, group, "drop", "Lose a share of the packets to and from hosts",
      {"sluice lab drop --host 1 --percent 2", "sluice lab drop --host 1 --percent 0"}, drop);
  command = group.get_subcommand("drop");
  command->add_option("--host", flags->hosts, kHostHelp)->required();
  command->add_option("--percent", flags->percent, "Of the packets in each direction; 0 stops it")
      ->required();

  addCommand(program, group, "heal", "End all cuts and drops; rates stay as set",
             {"sluice lab heal"}, heal);
}

}  // namespace sluice::cli
