// sluice trace merge: puts the traces of all ranks, and those of torch.profiler, on one clock into
// one file, and prints the parts of an iteration's length.
#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <tools/cli/commands.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>
#include <tools/trace/critical_path.h>
#include <tools/trace/merged_trace.h>
#include <tools/trace/one_clock.h>
#include <tools/trace/torch_ranks.h>
#include <tools/trace/trace_reader.h>

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;
using trace::Activity;
using trace::Iteration;
using trace::PathPart;
using trace::TorchProfile;

constexpr std::array kColumns{"compute", "ready",  "stage-out", "queued",   "push", "collect",
                              "reduce",  "update", "publish",   "stage-in", "gate", "unknown"};

struct MergeFlags {
  std::string directory;
  std::string output;
  std::string session;
  std::vector<std::string> torch;  // each is FILE or RANK=FILE
  int64_t step = -1;
  bool asJson = false;
};

std::string milliseconds(Duration d) {
  return fmt::format("{:.2f}", base::seconds(d) * 1e3);
}

Duration sumOf(const Iteration& iteration, std::string_view name) {
  Duration sum{};
  for (const auto& part : iteration.parts) {
    if (part.name() == name) sum += part.length();
  }
  return sum;
}

Table iterationsTable(const std::vector<Iteration>& iterations) {
  // Gradients in host memory are not staged: those columns would be empty.
  std::vector<const char*> shown(kColumns.begin(), kColumns.end());
  std::erase_if(shown, [&](std::string_view column) {
    return column.starts_with("stage-") &&
           std::ranges::all_of(iterations, [&](const Iteration& iteration) {
             return sumOf(iteration, column) == Duration{};
           });
  });
  std::vector<std::string> columns{"step", "rank", "ms", "parts ms"};
  columns.insert(columns.end(), shown.begin(), shown.end());
  Table table(columns);
  for (const auto& iteration : iterations) {
    std::vector<std::string> cells{
        fmt::to_string(index(iteration.step)), fmt::to_string(index(iteration.rank)),
        milliseconds(iteration.length()), milliseconds(iteration.explained())};
    for (const auto* column : shown) cells.push_back(milliseconds(sumOf(iteration, column)));
    table.addRow(std::move(cells));
  }
  return table;
}

std::string whereOf(const PathPart& part) {
  const bool isBetween = part.activity == Activity::kStage && part.peer != part.rank;
  return isBetween ? fmt::format("{} > {}", part.rank, part.peer)
                   : fmt::to_string(index(part.rank));
}

Table pathTable(const Iteration& iteration, const std::vector<std::string>& tensors) {
  constexpr double kShown = 0.01;  // of the iteration: a table that people read
  Table table({"at ms", "ms", "share", "what", "rank", "tensor", "slice"});
  size_t shortOnes = 0;
  Duration shortSum{};
  const auto share = [&](Duration d) {
    return fmt::format("{:.1f} %", 100 * base::seconds(d) / base::seconds(iteration.length()));
  };
  for (const auto& part : iteration.parts) {
    if (base::seconds(part.length()) < kShown * base::seconds(iteration.length())) {
      ++shortOnes;
      shortSum += part.length();
      continue;
    }
    const bool isOfSlice = part.activity == Activity::kStage || part.activity == Activity::kGate;
    table.addRow({milliseconds(part.from - iteration.begin), milliseconds(part.length()),
                  share(part.length()), std::string(part.name()), whereOf(part),
                  isOfSlice ? tensors[index(part.tensor)] : "-",
                  isOfSlice ? fmt::to_string(index(part.slice)) : "-"});
  }
  if (shortOnes > 0)
    table.addRow({"-", milliseconds(shortSum), share(shortSum),
                  fmt::format("{} shorter ones", shortOnes), "-", "-", "-"});
  return table;
}

// Returns "step 4 waited longest for 'fc.weight': publish from rank 3 to rank 0, 12.30 ms".
std::string verdict(const Iteration& iteration, const std::vector<std::string>& tensors) {
  const PathPart* longest = nullptr;
  for (const auto& part : iteration.parts) {
    if (part.activity == Activity::kStage &&
        (longest == nullptr || part.length() > longest->length()))
      longest = &part;
  }
  if (longest == nullptr)
    return fmt::format("the forward pass of step {} waited for nothing", iteration.step);
  return fmt::format(
      "the forward pass of step {} waited longest for '{}': {} at rank {}{}, {} ms", iteration.step,
      tensors[index(longest->tensor)], longest->name(), longest->rank,
      longest->peer == longest->rank ? "" : fmt::format(" (with rank {})", longest->peer),
      milliseconds(longest->length()));
}

// Returns the iteration that was asked for, or the one of median length.
Result<const Iteration*> choose(const std::vector<Iteration>& iterations, int64_t step) {
  if (iterations.empty())
    return Status(Code::kNotFound, "the traces hold no whole iteration; trace at least two steps");
  if (step < 0) {
    std::vector<const Iteration*> byLength;
    for (const auto& iteration : iterations) byLength.push_back(&iteration);
    std::ranges::sort(byLength, {}, [](const Iteration* each) { return each->length(); });
    return byLength[byLength.size() / 2];
  }
  const auto found = std::ranges::find(iterations, static_cast<uint64_t>(step),
                                       [](const auto& each) { return index(each.step); });
  if (found == iterations.end()) {
    return Status(Code::kNotFound,
                  fmt::format("step {} is not in the traces; steps {} to {} are", step,
                              iterations.front().step, iterations.back().step));
  }
  return &*found;
}

ordered_json toJson(const Iteration& iteration, const std::vector<std::string>& tensors) {
  auto parts = ordered_json::array();
  for (const auto& part : iteration.parts) {
    ordered_json each{{"what", part.name()}, {"rank", index(part.rank)}};
    if (part.activity == Activity::kStage || part.activity == Activity::kGate) {
      each["peer"] = index(part.peer);
      each["tensor"] = tensors[index(part.tensor)];
      each["slice"] = index(part.slice);
    }
    each["from_s"] = base::seconds(part.from - iteration.begin);
    each["length_s"] = base::seconds(part.length());
    parts.push_back(std::move(each));
  }
  return {{"step", index(iteration.step)},
          {"rank", index(iteration.rank)},
          {"length_s", base::seconds(iteration.length())},
          {"parts_s", base::seconds(iteration.explained())},
          {"parts", std::move(parts)}};
}

ordered_json toJson(const std::vector<trace::ClockShift>& clocks) {
  auto list = ordered_json::array();
  for (const auto& clock : clocks) {
    list.push_back({{"rank", index(clock.rank)},
                    {"ahead_s", base::seconds(clock.ahead)},
                    {"uncertainty_s", base::seconds(clock.uncertainty)}});
  }
  return list;
}

// Reads FILE or RANK=FILE. A file whose name begins like that is ./1=FILE.
Result<TorchProfile> readProfile(const std::string& given) {
  uint32_t rank = 0;
  const char* const end = given.data() + given.size();
  const auto [after, error] = std::from_chars(given.data(), end, rank);
  const bool hasRank = error == std::errc() && after != end && *after == '=';
  SLUICE_ASSIGN_OR_RETURN(auto profile,
                          trace::readTorchProfile(hasRank ? std::string(after + 1, end) : given));
  if (hasRank) profile.rank = Rank{rank};
  return profile;
}

Result<std::vector<TorchProfile>> readProfiles(const MergeFlags& flags,
                                               const std::vector<trace::RankTrace>& traces) {
  std::vector<TorchProfile> profiles;
  for (const auto& given : flags.torch) {
    SLUICE_ASSIGN_OR_RETURN(auto profile, readProfile(given));
    std::error_code ignored;  // there is no such output yet
    if (std::filesystem::equivalent(profile.path, flags.output, ignored)) {
      return Status(Code::kInvalidArgument,
                    fmt::format("--output would overwrite {}; choose another file", profile.path));
    }
    profiles.push_back(std::move(profile));
  }
  SLUICE_RETURN_IF_ERROR(trace::checkRanks(profiles, traces));
  return profiles;
}

// Returns how far the events of a profile may be from where they belong on their rank's trace.
Duration uncertaintyOf(const TorchProfile& profile, const std::vector<trace::RankTrace>& traces) {
  return std::ranges::find(traces, *profile.rank, &trace::RankTrace::rank)->wall->uncertainty;
}

ordered_json toJson(const std::vector<TorchProfile>& profiles,
                    const std::vector<trace::RankTrace>& traces) {
  auto list = ordered_json::array();
  for (const auto& profile : profiles) {
    list.push_back({{"rank", index(*profile.rank)},
                    {"file", profile.path},
                    {"events", profile.events},
                    {"uncertainty_s", base::seconds(uncertaintyOf(profile, traces))}});
  }
  return list;
}

// Returns a line for each profile.
std::string sayProfiles(const std::vector<TorchProfile>& profiles,
                        const std::vector<trace::RankTrace>& traces) {
  std::string lines;
  for (const auto& profile : profiles) {
    lines +=
        fmt::format("rank {}: {} events of torch.profiler, beside its trace to within {} ms\n",
                    *profile.rank, profile.events, milliseconds(uncertaintyOf(profile, traces)));
  }
  return lines;
}

Result<int> merge(const MergeFlags& flags) {
  if (!flags.torch.empty() && flags.output.empty())
    return Status(Code::kInvalidArgument, "--torch needs --output FILE, where all events go");
  SLUICE_ASSIGN_OR_RETURN(auto traces, trace::readDirectory(flags.directory, flags.session));
  SLUICE_ASSIGN_OR_RETURN(const auto clocks, trace::putOnOneClock(traces));
  SLUICE_ASSIGN_OR_RETURN(const auto profiles, readProfiles(flags, traces));
  if (!flags.output.empty())
    SLUICE_RETURN_IF_ERROR(trace::writeMergedTrace(flags.output, traces, profiles));
  const auto iterations = trace::criticalPaths(traces);
  SLUICE_ASSIGN_OR_RETURN(const Iteration* chosen, choose(iterations, flags.step));
  const auto& tensors = traces.front().tensors;
  if (flags.asJson) {
    auto list = ordered_json::array();
    for (const auto& iteration : iterations) {
      if (flags.step < 0 || &iteration == chosen) list.push_back(toJson(iteration, tensors));
    }
    ordered_json document{{"session", traces.front().session}, {"clocks", toJson(clocks)}};
    if (!profiles.empty()) document["torch"] = toJson(profiles, traces);
    document["iterations"] = std::move(list);
    fmt::print("{}\n", document.dump(1, ' ', false, ordered_json::error_handler_t::replace));
    return 0;
  }
  Duration uncertainty{};
  uint64_t lost = 0;
  for (const auto& clock : clocks) uncertainty = std::max(uncertainty, clock.uncertainty);
  for (const auto& trace : traces) lost += trace.lost;
  fmt::print(
      "{} ranks on rank {}'s clock, to within {} ms{}\n{}\n", traces.size(), traces.front().rank,
      milliseconds(uncertainty),
      lost == 0 ? "" : fmt::format("; {} earlier events were not kept (--trace-events)", lost),
      sayProfiles(profiles, traces));
  fmt::print("Critical path of each iteration, ms:\n{}\n", iterationsTable(iterations).toText());
  fmt::print("Step {}, ended last by rank {}:\n{}\n", chosen->step, chosen->rank,
             pathTable(*chosen, tensors).toText());
  fmt::print("{}\n", verdict(*chosen, tensors));
  return 0;
}

}  // namespace

void addTraceCommand(Program& program, CLI::App& root) {
  CLI::App* group = program.addCommand(
      root, "trace", "Look at what a traced job has done",
      {"SLUICE_TRACE=traces torchrun ... train.py", "sluice trace merge traces -o all.json"});
  CLI::App* command = program.addCommand(
      *group, "merge", "Put the traces of all ranks on one clock, and print the critical path",
      {"sluice bench replay --profile resnet50 --algorithms sluice --runs 1 --lab --trace traces",
       "sluice trace merge traces/sluice-1 -o all.json      # open all.json in "
       "https://ui.perfetto.dev",
       "sluice trace merge traces --torch rank0.json --torch 1=other.json -o all.json",
       "sluice trace merge traces/sluice-1 --step 4 --json"});
  auto flags = std::make_shared<MergeFlags>();
  command->add_option("directory", flags->directory, "Where the ranks wrote their traces")
      ->required();
  command->add_option("-o,--output", flags->output,
                      "Write all ranks to this file, for Perfetto or chrome://tracing");
  command
      ->add_option("--torch", flags->torch,
                   "Put this trace of torch.profiler beside its rank's; RANK=FILE if the file "
                   "does not say its rank. Repeat it for other ranks")
      ->type_name("[RANK=]FILE")
      ->allow_extra_args(false);
  command->add_option("--session", flags->session, "Which session, if the job had several");
  command->add_option("--step", flags->step, "Which iteration; default: the one of median length");
  command->add_flag("--json", flags->asJson, "Print JSON instead of tables");
  program.onRun(command, [flags](const base::Config&) { return merge(*flags); });
  addFlightCommand(program, *group);
}

}  // namespace sluice::cli
