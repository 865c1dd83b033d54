// sluice formulas: the formulas of sluice/data/timing for one model and one network, as a table or as JSON.
// Nothing is sent: the numbers are what a schedule would take if the network cost what is given.
#include <array>
#include <limits>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sluice/base/text.h>
#include <sluice/data/timing/link_model.h>
#include <sluice/data/timing/merging.h>
#include <tools/cli/commands.h>
#include <tools/cli/program.h>
#include <tools/cli/table.h>

namespace sluice::cli {
namespace {

using nlohmann::ordered_json;
using timing::Group;
using timing::Layer;
using timing::WireCost;

struct FormulaFlags {
  std::string profile = "resnet50";
  std::string workers = "4,8,16,32,64";
  std::string computeTime = "100ms";
  std::string latency = "50us";
  std::string rate = "10gbit";
  std::string sumRate;
  std::string method = "ring";
  bool byTensor = false;
  bool asJson = false;
};

struct PlannedSchedule {
  std::string name;
  double seconds = 0;         // of an iteration
  std::vector<Group> groups;  // layers that share a message
};

struct NamedLayers {
  std::vector<std::string> names;
  std::vector<Layer> layers;
};

struct ReductionMethod {
  std::string_view name;
  WireCost (*cost)(uint32_t ranks, const timing::Link& link);
};

WireCost oneLink(uint32_t /*ranks*/, const timing::Link& link) {
  return {link.alpha, link.beta};
}

// Table II of MG-WFBP, and one link between two.
constexpr std::array kReductionMethods{
    ReductionMethod{"binary-tree", timing::binaryTree},
    ReductionMethod{"recursive-doubling", timing::recursiveDoubling},
    ReductionMethod{"halving-doubling", timing::halvingDoubling},
    ReductionMethod{"ring", timing::ring}, ReductionMethod{"link", oneLink}};

// A tensor without time of its own is computed with the one before it. The papers send both as one
// layer: a convolution with its bias, the scale of a batch norm with its shift.
NamedLayers namedLayersOf(const Profile& profile, double computeSeconds, bool byTensor) {
  NamedLayers found;
  const auto tensors = timing::layersOf(profile, computeSeconds);
  for (size_t t = 0; t < tensors.size(); ++t) {
    const Layer& tensor = tensors[t];
    if (!byTensor && !found.layers.empty() && tensor.forward + tensor.backward <= 0) {
      found.layers.back().bytes += tensor.bytes;
      continue;
    }
    found.names.push_back(profile.tensors[t].name);
    found.layers.push_back(tensor);
  }
  return found;
}

std::vector<PlannedSchedule> schedulesOf(const std::vector<Layer>& layers, const WireCost& wire) {
  std::vector<Group> singles;
  double onWire = 0;
  for (size_t l = 0; l < layers.size(); ++l) {
    singles.push_back({l, l});
    onWire += wire.of(layers[l].bytes);
  }
  const std::vector<Group> together{{0, layers.size() - 1}};
  const double compute = forwardSeconds(layers) + backwardSeconds(layers);
  const timing::SlicedLink wholeLayers{.sliceBytes = std::numeric_limits<double>::infinity(),
                                       .beyondRecall = 1,
                                       .byPriority = false};
  auto paper = mergeByAlgorithm1(layers, wire);
  auto exact = mergeExactly(layers, wire);
  auto priority = mergeWithPriority(layers, wire);
  return {{"naive", compute + onWire, singles},
          {"wfbp", wfbpBound(layers, wire), singles},
          {"one-message", iterationSeconds(layers, wire, together), together},
          {"mgwfbp-paper", paper.seconds, std::move(paper.groups)},
          {"mgwfbp", exact.seconds, std::move(exact.groups)},
          {"fifo", simulateSliced(layers, wire, wholeLayers), singles},
          {"p3", simulatePreemptive(layers, wire), singles},
          {"mgp3", priority.seconds, std::move(priority.groups)},
          {"pipe", pipeBound(layers, wire, 0), together}};
}

Result<const ReductionMethod*> methodOf(std::string_view name) {
  for (const ReductionMethod& method : kReductionMethods) {
    if (method.name == name) return &method;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("there is no method '{}'; use ring, halving-doubling, "
                            "recursive-doubling, binary-tree or link",
                            name));
}

Result<timing::Link> linkOf(const FormulaFlags& flags) {
  timing::Link link;
  SLUICE_ASSIGN_OR_RETURN(const Duration latency, base::parseDuration(flags.latency));
  SLUICE_ASSIGN_OR_RETURN(const Rate rate, base::parseRate(flags.rate));
  link.alpha = base::seconds(latency);
  link.beta = 8 / static_cast<double>(rate.bitsPerSecond);
  if (!flags.sumRate.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const Rate sum, base::parseRate(flags.sumRate));
    link.gamma = 8 / static_cast<double>(sum.bitsPerSecond);
  }
  return link;
}

ordered_json toJson(const NamedLayers& model) {
  auto list = ordered_json::array();
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const Layer& layer = model.layers[l];
    list.push_back({{"name", model.names[l]},
                    {"bytes", layer.bytes},
                    {"forward_s", layer.forward},
                    {"backward_s", layer.backward}});
  }
  return list;
}

ordered_json toJson(const PlannedSchedule& schedule, double computeSeconds) {
  auto groups = ordered_json::array();
  for (const auto& [first, last] : schedule.groups) groups.push_back({first, last});
  return {{"schedule", schedule.name},
          {"iteration_s", schedule.seconds},
          {"exposed_s", schedule.seconds - computeSeconds},
          {"groups", std::move(groups)}};
}

Result<int> runFormulas(const FormulaFlags& flags) {
  SLUICE_ASSIGN_OR_RETURN(const Profile profile, timing::findProfile(flags.profile));
  SLUICE_ASSIGN_OR_RETURN(const Duration computeTime, base::parseDuration(flags.computeTime));
  SLUICE_ASSIGN_OR_RETURN(const timing::Link link, linkOf(flags));
  SLUICE_ASSIGN_OR_RETURN(const ReductionMethod* method, methodOf(flags.method));
  const double compute = base::seconds(computeTime);
  const auto model = namedLayersOf(profile, compute, flags.byTensor);
  Table table({"workers", "schedule", "messages", "iteration ms", "not hidden ms", "speed-up"});
  auto plans = ordered_json::array();
  for (const auto text : base::split(flags.workers, ',')) {
    SLUICE_ASSIGN_OR_RETURN(const int64_t workers, base::parseInteger(base::trim(text)));
    if (workers < 2 || workers > 1'000'000)
      return Status(Code::kInvalidArgument,
                    fmt::format("--workers has {}; give 2 to 1000000", workers));
    const auto ranks = static_cast<uint32_t>(workers);
    ordered_json each{{"workers", ranks}};
    for (const ReductionMethod& one : kReductionMethods) {
      const WireCost cost = one.cost(ranks, link);
      each["costs"][std::string(one.name)] = {{"a_s", cost.start}, {"b_s_per_byte", cost.perByte}};
    }
    each["schedules"] = ordered_json::array();
    for (const PlannedSchedule& schedule : schedulesOf(model.layers, method->cost(ranks, link))) {
      each["schedules"].push_back(toJson(schedule, compute));
      table.addRow({fmt::to_string(ranks), schedule.name, fmt::to_string(schedule.groups.size()),
                    fmt::format("{:.3f}", schedule.seconds * 1e3),
                    fmt::format("{:.3f}", (schedule.seconds - compute) * 1e3),
                    fmt::format("{:.2f}", ranks * compute / schedule.seconds)});
    }
    plans.push_back(std::move(each));
  }
  if (!flags.asJson) {
    table.print(false);
    return 0;
  }
  const ordered_json document{{"profile", profile.model},       {"compute_s", compute},
                              {"alpha_s", link.alpha},          {"beta_s_per_byte", link.beta},
                              {"gamma_s_per_byte", link.gamma}, {"method", method->name},
                              {"layers", toJson(model)},        {"plans", std::move(plans)}};
  fmt::print("{}\n", document.dump(1));
  return 0;
}

}  // namespace

void addFormulasCommand(Program& program, CLI::App& root) {
  CLI::App* command = program.addCommand(
      root, "formulas", "Compute what an iteration takes by the papers' formulas; sends nothing",
      {"sluice formulas --profile resnet50 --workers 4,64 --compute-time 500ms --latency 45us",
       "sluice formulas --profile vgg19 --workers 4 --rate 15gbit --json"});
  auto flags = std::make_shared<FormulaFlags>();
  addWithDefault(
      command, "--profile", flags->profile,
      fmt::format("Which model: {}, or a file", fmt::join(timing::builtInProfiles(), ", ")));
  addWithDefault(command, "--workers", flags->workers, "Numbers of workers");
  addWithDefault(command, "--compute-time", flags->computeTime, "Of one forward and backward pass");
  addWithDefault(command, "--latency", flags->latency,
                 "Cost of a message between two, besides bytes");
  addWithDefault(command, "--rate", flags->rate, "Speed of each link");
  command->add_option("--sum-rate", flags->sumRate,
                      "Speed of adding two gradients, as 40gbit; default: it costs nothing");
  addWithDefault(command, "--method", flags->method,
                 "How all-reduces go: ring, halving-doubling, recursive-doubling, binary-tree; "
                 "link: one link");
  command->add_flag("--by-tensor", flags->byTensor, "A message for each tensor, not each layer");
  command->add_flag("--json", flags->asJson, "Print JSON, with all messages, instead of a table");
  program.onRun(command, [flags](const base::Config&) { return runFormulas(*flags); });
}

}  // namespace sluice::cli
