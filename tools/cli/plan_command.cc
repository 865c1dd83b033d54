// sluice plan: decide how to synchronise a training, before it runs, and say why.
#include <memory>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <tools/cli/commands.h>
#include <tools/cli/interruption.h>
#include <tools/cli/json_output.h>
#include <tools/cli/plan_flags.h>
#include <tools/cli/program.h>
#include <tools/cli/run_progress.h>
#include <tools/cli/table.h>
#include <tools/planner/report.h>
#include <tools/planner/sweep.h>

namespace sluice::cli {
namespace {

constexpr int kMostPlannedHosts = 16384;

Result<planner::Cluster> clusterOf(const PlanFlags& flags) {
  if (!flags.network.empty() && !flags.rate.empty())
    return Status(Code::kInvalidArgument, "give --rate or --network, not both");
  if (!flags.script.empty()) {
    return Status(Code::kInvalidArgument,
                  "a script is for the cluster that runs it: leave out --rate and --network, or "
                  "run 'sluice profile' and give --profile");
  }
  planner::Cluster cluster;
  if (!flags.network.empty()) {
    SLUICE_ASSIGN_OR_RETURN(cluster, planner::readCluster(flags.network));
  } else {
    SLUICE_ASSIGN_OR_RETURN(cluster.network.rate, base::parseRate(flags.rate));
    if (cluster.network.rate.bitsPerSecond == 0)
      return Status(Code::kInvalidArgument, "--rate must be above 0");
  }
  if (!flags.latency.empty()) {
    SLUICE_ASSIGN_OR_RETURN(cluster.network.latency, base::parseDuration(flags.latency));
    if (cluster.network.latency <= Duration::zero())
      return Status(Code::kInvalidArgument, "--latency must be above 0");
  }
  constexpr uint32_t kUsual = 4;
  cluster.network.hosts = flags.hosts == 0 ? kUsual : flags.hosts;
  return cluster;
}

void addRow(Table& table, const planner::Prediction& one) {
  table.addRow(
      {std::string(name(one.candidate.exactness)), one.candidate.name(),
       fmt::format("{:.4g}", one.iterationSeconds),
       one.sendsEverything ? fmt::format("{:.3f}", one.iterationSeconds / one.boundSeconds) : "-",
       one.bytes > 0 ? fmt::format("{:.1f}", one.bytes / 1e6) : "-",
       fmt::format("{:.0f}", one.memoryBytes / 1e6), std::string(name(one.means))});
}

Table tableOf(const planner::PlanChoice& decision, bool showsAll) {
  Table table({"class", "plan", "iteration s", "over bound", "wire MB", "memory MB", "by"});
  if (showsAll) {
    for (const auto& one : decision.predictions) addRow(table, one);
    return table;
  }
  for (int i = 0; i < planner::kExactnesses; ++i) {
    const auto* best = planner::bestOf(decision, static_cast<planner::Exactness>(i));
    if (best != nullptr) addRow(table, *best);
  }
  return table;
}

Status writeConfiguration(const std::string& path, const planner::Question& question,
                          const planner::Prediction& chosen) {
  if (path.empty()) return base::ok();
  return writeJson(path, planner::configurationOf(question, chosen));
}

class Progress final {
 public:
  void next(std::string_view what, size_t count) {
    if (!shown_) shown_.emplace(count);
    shown_->next(what);
  }
  void clear() { shown_.reset(); }

 private:
  std::optional<RunProgress> shown_;
};

Result<int> runPlan(const PlanFlags& flags, const base::Config& config) {
  for (const std::string& path : {flags.json, flags.out})
    SLUICE_RETURN_IF_ERROR(checkWritable(path));
  const Interruption interruption;
  if (flags.network.empty() && flags.rate.empty()) return planAsJob(flags, config);
  SLUICE_ASSIGN_OR_RETURN(planner::Cluster cluster, clusterOf(flags));
  SLUICE_ASSIGN_OR_RETURN(const auto question, questionFor(flags, config, std::move(cluster)));
  return answerAndPrint(flags, question);
}

}  // namespace

Result<planner::Question> questionFor(const PlanFlags& flags, const base::Config& config,
                                      planner::Cluster cluster) {
  planner::Question question;
  question.profile = flags.profile;
  question.config = config;
  question.worst = flags.only == "same-bits" ? planner::Exactness::kSameBits
                   : flags.only == "exact"   ? planner::Exactness::kOtherOrder
                   : flags.only == "delayed" ? planner::Exactness::kDelayed
                                             : planner::Exactness::kLossy;
  question.isInterrupted = &Interruption::came;
  question.cluster = std::move(cluster);
  SLUICE_ASSIGN_OR_RETURN(question.model, timing::findProfile(flags.profile));
  question.computeSeconds = question.model.computeSeconds;
  question.otherSeconds = question.model.otherSeconds;
  if (!flags.computeTime.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const Duration time, base::parseDuration(flags.computeTime));
    question.computeSeconds = base::seconds(time);
    question.otherSeconds = 0;
  }
  if (question.computeSeconds <= 0) {
    return Status(Code::kInvalidArgument,
                  fmt::format("the profile {} has shares and no times: give --compute-time, as "
                              "200ms, that one forward and backward pass takes",
                              flags.profile));
  }
  if (config.text(option::kEncrypt) == "off") question.cluster.isEncrypted = false;
  const std::string_view built = question.cluster.isEncrypted ? "encrypted" : "plain";
  SLUICE_ASSIGN_OR_RETURN(question.costs, sim::parseCosts(flags.cpu.empty() ? built : flags.cpu));
  return question;
}

Result<int> answerAndPrint(const PlanFlags& flags, const planner::Question& question) {
  Progress progress;
  planner::PlanReport answer;
  SLUICE_ASSIGN_OR_RETURN(answer.decision,
                          planner::answer(question, [&](std::string_view what, size_t count) {
                            progress.next(what, count);
                          }));
  const planner::Prediction& chosen = answer.decision.chosen();
  SLUICE_ASSIGN_OR_RETURN(answer.gains, planner::gainsOf(question, chosen));
  answer.cause = planner::causeOf(question, chosen, answer.gains);
  std::string why;
  if (!flags.why.empty()) {
    SLUICE_ASSIGN_OR_RETURN(why, planner::whyNot(answer.decision, flags.why));
  }
  auto document = planner::toJson(question, answer);
  if (flags.sweeps) {
    progress.clear();
    const size_t points = 40;  // six rates and four numbers of hosts, four classes each
    const auto onPoint = [&](std::string_view what) { progress.next(what, points); };
    SLUICE_ASSIGN_OR_RETURN(const auto rates,
                            planner::sweepRates(question, answer.decision, onPoint));
    SLUICE_ASSIGN_OR_RETURN(const auto hosts,
                            planner::sweepHosts(question, answer.decision, onPoint));
    document["by_rate"] = planner::toJson(rates);
    document["by_hosts"] = planner::toJson(hosts);
  }
  progress.clear();
  if (!why.empty()) document["why"] = why;
  if (flags.json != "-") {
    fmt::print("{}{}", tableOf(answer.decision, flags.showsAll).toText(),
               planner::summaryOf(question, answer));
    if (!why.empty()) fmt::print("{}\n", why);
  }
  if (!flags.json.empty()) SLUICE_RETURN_IF_ERROR(writeJson(flags.json, document));
  SLUICE_RETURN_IF_ERROR(writeConfiguration(flags.out, question, chosen));
  return 0;
}

void addPlanCommand(Program& program, CLI::App& root) {
  CLI::App* command = program.addCommand(
      root, "plan",
      "Predict which algorithm is fastest on a cluster, and say why; sluice plan [FLAGS] [SCRIPT "
      "ARGUMENTS...]",
      {"torchrun --no-python --nproc-per-node 1 ... sluice plan train.py   # on the cluster itself",
       "sluice plan --profile resnet50 --compute-time 200ms --rate 1gbit --hosts 8",
       "sluice plan --profile vgg19 --compute-time 1s --network net.json --hosts 4 -o plan.json",
       "sluice plan --profile resnet50 --compute-time 200ms --rate 1gbit --why p3",
       "sluice plan --profile model.json --rate 10gbit --sweep --json plan.json",
       "sluice plot plan.json -o plan.png"});
  auto flags = std::make_shared<PlanFlags>();
  flags->profile = "resnet50";
  command->prefix_command();  // the script and all that follows it
  addWithDefault(command, "--profile", flags->profile,
                 fmt::format("Which model: {}, or a file of 'sluice profile'",
                             fmt::join(timing::builtInProfiles(), ", ")));
  command->add_option("--hosts", flags->hosts, "How many hosts; default: 4")
      ->check(CLI::Range(2, kMostPlannedHosts));
  command->add_option("--rate", flags->rate, "Speed of each host's link");
  command->add_option("--latency", flags->latency, "From host to host; default: 50us");
  command->add_option("--network", flags->network,
                      "A file with links that differ, latency and loss (docs/plan.md)");
  command->add_option("--compute-time", flags->computeTime,
                      "Of one forward and backward pass; default: what the profile measured");
  command->add_option("--cpu", flags->cpu,
                      "What a host's work costs: plain, encrypted, free or a file, as with "
                      "'sluice simulate'; default: as the network is encrypted");
  addWithDefault(command, "--steps", flags->steps, "Iterations of the script to measure")
      ->check(CLI::Range(2, 10'000));
  addWithDefault(command, "--profile-out", flags->profileOut,
                 "Where rank 0 writes the script's profile");
  command->add_option("--why", flags->why, "Say why this candidate was not chosen");
  command
      ->add_option("--only", flags->only,
                   "Leave out plans that are less exact than same-bits, exact (sums in another "
                   "order, too) or delayed")
      ->check(CLI::IsMember({"same-bits", "exact", "delayed"}));
  command->add_flag("--all", flags->showsAll, "Show every candidate, not the best of each class");
  command->add_flag("--sweep", flags->sweeps,
                    "Also predict other bandwidths and numbers of hosts, for 'sluice plot'");
  command->add_option("-o,--out", flags->out,
                      "Write the chosen settings to this file, for --config or SLUICE_CONFIG");
  command->add_option("--json", flags->json,
                      "Write all predictions to this file; - for standard output");
  program.addOption(command, option::kEncrypt);
  program.onRun(command, [flags, command](const base::Config& config) {
    PlanFlags all = *flags;
    all.script = command->remaining();
    return runPlan(all, config);
  });
}

}  // namespace sluice::cli
