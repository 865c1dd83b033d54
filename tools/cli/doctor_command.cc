// sluice doctor: examines a job before it trains, and says in plain words what is wrong with it. A
// launcher starts it on every rank, as it would start training. `sluice doctor device`, which looks
// at an accelerator, is a program of the Python package.
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sluice/base/median.h>
#include <sluice/base/options.h>
#include <tools/cli/commands.h>
#include <tools/cli/json_output.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>
#include <tools/doctor/examine.h>
#include <tools/probe/network_file.h>

namespace sluice::cli {
namespace {

using doctor::Examination;
using doctor::Finding;
using nlohmann::ordered_json;

struct DoctorFlags {
  bool asJson = false;
  std::string networkFile;
  std::vector<std::string> plants;
};

std::string megabitsText(double bits) {
  return bits > 0 ? fmt::format("{:.1f}", bits * 1e-6) : "-";
}

// Returns "-" for a rank that was not measured.
template <typename Take>
std::string medianOfPairs(const probe::RankFacts& rank, double factor, const Take& take) {
  std::vector<double> values;
  for (const auto& pair : rank.pairs) {
    if (take(pair) > 0) values.push_back(take(pair));
  }
  if (values.empty()) return "-";
  return fmt::format("{:.2f}", base::median(values) * factor);
}

std::string lostText(const probe::RankFacts& rank) {
  uint64_t segments = 0;
  uint64_t resent = 0;
  for (const auto& pair : rank.pairs) {
    segments += pair.segments;
    resent += pair.resent;
  }
  if (segments == 0) return "-";
  return fmt::format("{:.2f}", 100.0 * static_cast<double>(resent) / static_cast<double>(segments));
}

void printNumbers(const Examination& seen) {
  const doctor::CaseFile& file = seen.file;
  Table hosts(
      {"rank", "host", "interface", "address", "sluice", "torch", "CPUs", "load", "clock s"});
  for (size_t rank = 0; rank < file.hosts.size(); ++rank) {
    const auto& host = file.hosts[rank];
    const bool hasClock = rank < file.clocks.size();
    hosts.addRow({fmt::to_string(rank), host.host, host.interface, host.address, host.version,
                  host.torch.empty() ? "-" : host.torch, fmt::to_string(host.cpu.cpus),
                  fmt::format("{:.1f}", host.cpu.load),
                  hasClock ? fmt::format("{:+.3f}", file.clocks[rank].offset) : "-"});
  }
  hosts.print(false);
  if (!file.network) return;
  fmt::print("\n");
  Table numbers({"rank", "out Mbit/s", "in Mbit/s", "all out", "all in", "round trip ms",
                 "under load", "lost %", "CPU s/GB", "work ms"});
  for (uint32_t rank = 0; rank < file.network->ranks.size(); ++rank) {
    const auto& facts = file.network->ranks[rank];
    numbers.addRow(
        {fmt::to_string(rank), megabitsText(file.network->bestOut(rank)),
         megabitsText(file.network->bestIn(rank)), megabitsText(facts.outAllBits),
         megabitsText(facts.inAllBits),
         medianOfPairs(facts, 1e3, [](const auto& pair) { return pair.roundTrip; }),
         medianOfPairs(facts, 1e3, [](const auto& pair) { return pair.loadedRoundTrip; }),
         lostText(facts),
         fmt::format("{:.2f}", facts.cpuPerGb > 0 ? facts.cpuPerGb : facts.cpuPerGbPlain),
         fmt::format("{:.1f}", facts.compute.cpuSeconds * 1e3)});
  }
  numbers.print(false);
}

void printFindings(const Examination& seen) {
  for (const Finding& finding : seen.findings) {
    fmt::print("\nfound: {}\n  {}\n  What to do: {}\n", name(finding.fault), finding.evidence,
               finding.remedy);
  }
  if (!seen.missing.empty()) {
    fmt::print(
        "\nNot all ranks took part: {}\n  A rank that was started says itself why it could not "
        "come. One that says nothing was not started, or its launcher ended it first.\n",
        seen.missing);
  } else if (seen.findings.empty()) {
    fmt::print("\nnothing found: {} rank{}, {:.1f} s\n", seen.worldSize,
               seen.worldSize == 1 ? "" : "s", seen.seconds);
  }
}

ordered_json toJson(const Examination& seen) {
  auto findings = ordered_json::array();
  for (const Finding& finding : seen.findings)
    findings.push_back({{"code", name(finding.fault)},
                        {"ranks", finding.ranks},
                        {"evidence", finding.evidence},
                        {"what_to_do", finding.remedy}});
  auto hosts = ordered_json::array();
  for (size_t rank = 0; rank < seen.file.hosts.size(); ++rank) {
    auto host = ordered_json::parse(doctor::encode(seen.file.hosts[rank]), nullptr, false);
    host["stolen_share"] = seen.file.hosts[rank].cpu.stolenShare;
    if (rank < seen.file.clocks.size()) {
      host["clock_offset_s"] = seen.file.clocks[rank].offset;
      host["clock_error_s"] = seen.file.clocks[rank].error;
    }
    hosts.push_back(std::move(host));
  }
  ordered_json document{{"rank", seen.rank},        {"ranks", seen.worldSize},
                        {"met", seen.hasMet},       {"missing", seen.missing},
                        {"seconds", seen.seconds},  {"findings", std::move(findings)},
                        {"hosts", std::move(hosts)}};
  if (seen.file.network) document["network"] = probe::toJson(*seen.file.network);
  return document;
}

Status writeNetworkFile(const Examination& seen, const std::string& path) {
  if (path.empty() || seen.rank != 0 || !seen.file.network) return base::ok();
  SLUICE_ASSIGN_OR_RETURN(const auto network, probe::networkFile(*seen.file.network));
  return writeJson(path, network);
}

Result<int> runDoctor(const base::Config& config, const DoctorFlags& flags) {
  SLUICE_ASSIGN_OR_RETURN(const Examination seen,
                          doctor::examine(config, base::processEnvironment(), flags.plants));
  if (!seen.speaks()) return 0;
  if (flags.asJson) {
    SLUICE_RETURN_IF_ERROR(writeJson("-", toJson(seen)));
  } else {
    if (seen.hasMet) printNumbers(seen);
    printFindings(seen);
  }
  SLUICE_RETURN_IF_ERROR(writeNetworkFile(seen, flags.networkFile));
  const bool isHealthy = seen.findings.empty() && seen.missing.empty();
  return static_cast<int>(isHealthy ? ExitCode::kOk : ExitCode::kFindings);
}

}  // namespace

void addDoctorCommand(Program& program, CLI::App& root) {
  CLI::App* command = program.addCommand(
      root, "doctor", "Examine the hosts and the network of a job before it trains",
      {"torchrun --nnodes 4 --nproc-per-node 1 ... --no-python sluice doctor",
       "srun --ntasks-per-node 1 sluice doctor --json", "sluice lab run -- sluice doctor",
       "sluice doctor device          # the accelerator of this machine"});
  auto flags = std::make_shared<DoctorFlags>();
  command->add_flag("--json", flags->asJson, "Print everything as JSON instead of tables");
  command->add_option("--write-network", flags->networkFile,
                      "Rank 0 writes the network to this file, for sluice plan --network");
  command->add_option("--plant", flags->plants, "For tests: report another value")->group("");
  for (const base::Option* option :
       {&option::kCongestionControl, &option::kEncrypt, &option::kIface, &option::kInsecure,
        &option::kJobKeyFile, &option::kRendezvousTimeout})
    program.addOption(command, *option);
  program.onRun(command, [flags](const base::Config& config) { return runDoctor(config, *flags); });

  program.addExternalPart(
      *command, "device", "Look at the accelerator of this machine (docs/devices.md)",
      {"sluice doctor device", "sluice doctor device --output doctor.json"},
      Status(Code::kUnavailable,
             "'sluice doctor device' is part of the Python package, which is not installed here; "
             "run 'pip install torch-sluice'"));
}

}  // namespace sluice::cli
