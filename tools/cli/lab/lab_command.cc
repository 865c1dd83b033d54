// sluice lab: a cluster on one box. Here: the group, up, status and down.
#include <tools/cli/lab/lab_command.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/units.h>
#include <tools/cli/commands.h>
#include <tools/cli/lab/lab_etcd.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>

namespace sluice::cli {
namespace {

struct UpFlags {
  std::shared_ptr<std::string> name;
  int hosts = 4;
  int etcd = 0;
  std::string rate = "1gbit";
  std::string subnet = lab::Subnet{}.toString();
  std::string delay = "0s";
  std::string congestionControl;
};

Result<int> up(const UpFlags& flags) {
  lab::Layout layout;
  layout.name = *flags.name;
  if (flags.etcd != 0) SLUICE_RETURN_IF_ERROR(checkEtcdIsInstalled());
  layout.hosts = flags.hosts + flags.etcd;
  layout.etcd = flags.etcd;
  SLUICE_ASSIGN_OR_RETURN(layout.rate, base::parseRate(flags.rate));
  SLUICE_ASSIGN_OR_RETURN(layout.subnet, lab::parseSubnet(flags.subnet));
  SLUICE_ASSIGN_OR_RETURN(layout.delay, base::parseDuration(flags.delay));
  layout.congestionControl = flags.congestionControl;
  const auto start = std::chrono::steady_clock::now();
  SLUICE_ASSIGN_OR_RETURN(const lab::Lab made, lab::Lab::up(layout, progressToTerminal()));
  std::string members;
  if (layout.etcd > 0) {
    auto started = startEtcd(made, layout);
    if (!started.isOk()) return started.status();
    members = *std::move(started);
  }
  fmt::print("lab {}: {} hosts at {}, {} to {}, up in {:.2f} s\n", made.name(), flags.hosts,
             base::formatRate(layout.rate), lab::hostAddress(layout.subnet, 0),
             lab::hostAddress(layout.subnet, flags.hosts - 1),
             base::seconds(std::chrono::steady_clock::now() - start));
  if (!members.empty())
    fmt::print("etcd on hosts {} to {}: SLUICE_MEMBERS={}\n", flags.hosts, layout.hosts - 1,
               members);
  return 0;
}

Result<int> down(const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(const bool wasThere, lab::Lab::down(name, progressToTerminal()));
  if (!wasThere) {
    fmt::print("lab {}: is not up; nothing to do\n", name);
    return 0;
  }
  fmt::print("lab {}: down\n", name);
  return 0;
}

std::string describeFaults(const lab::Faults& faults, int host) {
  std::vector<std::string> parts;
  if (faults.cutHosts.contains(host)) parts.emplace_back("cut");
  for (const auto& [a, b] : faults.cutPairs) {
    if (a == host || b == host) parts.push_back(fmt::format("cut from {}", a == host ? b : a));
  }
  if (const auto drop = faults.dropPercent.find(host); drop != faults.dropPercent.end()) {
    parts.push_back(fmt::format("drops {}%", drop->second));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

Result<int> status(const std::string& name, bool asJson) {
  SLUICE_ASSIGN_OR_RETURN(std::vector<std::string> names, lab::Lab::names());
  if (!name.empty()) names = {name};
  Table table({"lab", "host", "address", "rate", "delay", "faults", "namespace", "processes"});
  for (const auto& lab : names) {
    SLUICE_ASSIGN_OR_RETURN(const lab::Lab opened, lab::Lab::open(lab));
    SLUICE_ASSIGN_OR_RETURN(const lab::State state, opened.state());
    SLUICE_ASSIGN_OR_RETURN(const std::vector<lab::Host> hosts, opened.hosts());
    const size_t count = std::min(hosts.size(), state.rates.size());
    for (int host = 0; static_cast<size_t>(host) < count; ++host) {
      const lab::Host& seen = hosts[static_cast<size_t>(host)];
      table.addRow({lab, std::to_string(host), lab::hostAddress(state.layout.subnet, host),
                    base::formatRate(state.rates[static_cast<size_t>(host)]),
                    base::formatDuration(state.layout.delay), describeFaults(state.faults, host),
                    seen.network, fmt::format("{}", fmt::join(seen.processes, " "))});
    }
  }
  if (names.empty() && !asJson) {
    fmt::print("no lab is up\n");
  } else {
    table.print(asJson);
  }
  return 0;
}

void addUp(Program& program, CLI::App& group) {
  CLI::App* command =
      program.addCommand(group, "up", "Make a lab: hosts with shaped links behind one switch",
                         {"sluice lab up --hosts 4 --rate 1gbit",
                          "sluice lab up --name slow --hosts 8 --rate 100mbit --cc cubic",
                          "sluice lab up --hosts 5 --etcd 3"});
  auto flags = std::make_shared<UpFlags>();
  flags->name = addLabName(command);
  addWithDefault(command, "--hosts", flags->hosts, "How many hosts");
  command->add_option("--etcd", flags->etcd,
                      "How many etcd servers, each on a host of its own after the others");
  addWithDefault(command, "--rate", flags->rate,
                 "Speed of each host's link, each direction: 100mbit, 2.5gbit");
  addWithDefault(command, "--subnet", flags->subnet,
                 "Addresses of the hosts; labs never see each other's");
  command->add_option("--delay", flags->delay,
                      "One-way delay of each link, as 10ms; needs the module sch_netem");
  command->add_option("--cc", flags->congestionControl,
                      "TCP congestion control, as cubic or bbr; default: the machine's");
  program.onRun(command, [flags](const base::Config&) { return up(*flags); });
}

}  // namespace

std::shared_ptr<std::string> addLabName(CLI::App* command) {
  auto name = std::make_shared<std::string>(lab::kDefaultName);
  addWithDefault(command, "--name", *name, "Which lab");
  return name;
}

lab::Progress progressToTerminal() {
  return [start = std::chrono::steady_clock::now(), said = -1](int done, int total,
                                                               std::string_view what) mutable {
    const auto elapsed = static_cast<int>(base::seconds(std::chrono::steady_clock::now() - start));
    if (elapsed < 2 || elapsed == said) return;
    said = elapsed;
    fmt::print(stderr, "{}: {} of {}\n", what, done, total);
  };
}

void addLabCommand(Program& program, CLI::App& root) {
  CLI::App* group = program.addCommand(
      root, "lab", "A cluster on this machine: hosts, shaped links, faults",
      {"sluice lab up --hosts 4 --rate 1gbit", "sluice lab run -- python3 train.py",
       "sluice lab set --host 2 --rate 100mbit", "sluice lab cut --between 0,1", "sluice lab heal",
       "sluice lab down"});
  addUp(program, *group);
  addLabRunCommands(program, *group);
  addLabFaultCommands(program, *group);

  CLI::App* show = program.addCommand(
      *group, "status", "Show hosts, addresses, rates, faults and what runs on them",
      {"sluice lab status", "sluice lab status --name slow --json"});
  auto shown = std::make_shared<std::string>();
  auto asJson = std::make_shared<bool>(false);
  show->add_option("--name", *shown, "Which lab; default: all");
  show->add_flag("--json", *asJson, "Print JSON instead of a table");
  program.onRun(show, [shown, asJson](const base::Config&) { return status(*shown, *asJson); });

  CLI::App* end = program.addCommand(*group, "down", "End what runs in a lab and remove it",
                                     {"sluice lab down", "sluice lab down --name slow"});
  auto name = addLabName(end);
  program.onRun(end, [name](const base::Config&) { return down(*name); });
}

}  // namespace sluice::cli
