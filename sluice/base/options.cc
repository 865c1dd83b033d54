#include <sluice/base/options.h>

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/text.h>

namespace sluice::base {
namespace {

// clang-format off: one a line, whatever their number, so that a new one is one line of a change
constexpr std::array kAll{
    &option::kAlgorithm,
    &option::kAlpha,
    &option::kBusyLimit,
    &option::kCheckRanksEvery,
    &option::kCodec,
    &option::kCollective,
    &option::kCollectiveCosts,
    &option::kComputeTime,
    &option::kConfig,
    &option::kCongestionControl,
    &option::kCredit,
    &option::kDebug,
    &option::kDgc,
    &option::kDgcClip,
    &option::kDgcSparsity,
    &option::kDgcWarmUp,
    &option::kEncrypt,
    &option::kFabric,
    &option::kGossipProbability,
    &option::kHeartbeatInterval,
    &option::kIface,
    &option::kInsecure,
    &option::kJobKey,
    &option::kJobKeyFile,
    &option::kLayerTimes,
    &option::kLeaveOnTerm,
    &option::kLog,
    &option::kMerge,
    &option::kMetricsAddress,
    &option::kMetricsPort,
    &option::kNoOverlap,
    &option::kPayloadCheck,
    &option::kPipeDepth,
    &option::kPipeWarmUp,
    &option::kReductionRate,
    &option::kReductionStart,
    &option::kReductions,
    &option::kRendezvousTimeout,
    &option::kReplanSteps,
    &option::kServers,
    &option::kSilenceLimit,
    &option::kSliceElements,
    &option::kStaleness,
    &option::kStallAfter,
    &option::kSurviveLoss,
    &option::kTau,
    &option::kTopology,
    &option::kTrace,
    &option::kTraceEvents,
    &option::kTrustedNetwork,
    &option::kUcxTransports,
    &option::kWaitTimeout,
};
// clang-format on

static_assert(std::ranges::is_sorted(kAll, {}, &Option::name),
              "keep the list sorted: it is what people read");

}  // namespace

std::span<const Option* const> allOptions() {
  return kAll;
}

std::string unknownName(std::string_view what, std::string_view written,
                        std::span<const std::string_view> known) {
  const auto guess = nearest(written, known);
  if (guess.empty()) {
    return fmt::format("unknown {} '{}'; 'sluice config show' lists all", what, written);
  }
  return fmt::format("unknown {} '{}'; did you mean '{}'?", what, written, guess);
}

const Option* findOption(std::string_view name) {
  const auto found = std::ranges::find(kAll, name, &Option::name);
  return found == kAll.end() ? nullptr : *found;
}

Result<const Option*> knownOption(std::string_view name) {
  if (const Option* option = findOption(name)) return option;
  std::vector<std::string_view> names;
  for (const Option* each : kAll) names.push_back(each->name);
  return Status(Code::kInvalidArgument, unknownName("option", name, names));
}

std::string environmentName(std::string_view optionName) {
  std::string name = "SLUICE_" + upper(optionName);
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string_view kindName(Kind kind) {
  switch (kind) {
    case Kind::kText: return "text";
    case Kind::kInteger: return "integer";
    case Kind::kNumber: return "number";
    case Kind::kSwitch: return "on/off";
    case Kind::kDuration: return "duration";
    case Kind::kBytes: return "bytes";
    case Kind::kRate: return "rate";
    case Kind::kChoice: return "choice";
  }
  return "?";
}

}  // namespace sluice::base
