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
    &option::kBusyLimit,
    &option::kCheckRanksEvery,
    &option::kCompareRanks,
    &option::kConfig,
    &option::kCongestionControl,
    &option::kCredit,
    &option::kDebug,
    &option::kEncrypt,
    &option::kFabric,
    &option::kFlightBytes,
    &option::kFlightDir,
    &option::kFlightSignal,
    &option::kHeartbeatInterval,
    &option::kIface,
    &option::kInsecure,
    &option::kJob,
    &option::kJobKey,
    &option::kJobKeyFile,
    &option::kLeaveOnTerm,
    &option::kLog,
    &option::kMembers,
    &option::kMembersCa,
    &option::kMembersCertificate,
    &option::kMembersKey,
    &option::kMembersPasswordFile,
    &option::kMembersUser,
    &option::kMetricsAddress,
    &option::kMetricsPort,
    &option::kMinMembers,
    &option::kPayloadCheck,
    &option::kRendezvousTimeout,
    &option::kServers,
    &option::kShrink,
    &option::kSilenceLimit,
    &option::kSliceElements,
    &option::kStagingBytes,
    &option::kStallAfter,
    &option::kTrace,
    &option::kTraceEvents,
    &option::kTrustedNetwork,
    &option::kUcxTransports,
    &option::kWaitTimeout,
};
// clang-format on

static_assert(std::ranges::is_sorted(kAll, {}, &Option::name),
              "keep the list sorted: it is what people read");

std::vector<const Option*>& known() {
  // Parts of the program add options of their own while it starts (addOptions). A static of a
  // function is there for whoever comes first, in whatever order files are initialised.
  static std::vector<const Option*> options(kAll.begin(), kAll.end());
  return options;
}

}  // namespace

std::span<const Option* const> allOptions() {
  return known();
}

void addOptions(std::span<const Option* const> options) {
  for (const Option* option : options) {
    const auto place = std::ranges::lower_bound(known(), option->name, {}, &Option::name);
    if (place != known().end() && (*place)->name == option->name) continue;
    known().insert(place, option);
  }
}

std::string unknownName(std::string_view what, std::string_view name,
                        std::span<const std::string_view> known) {
  constexpr size_t kLongestShown = 64;  // no name is as long, and the text may come from a file
  const std::string written = printable(name.substr(0, kLongestShown));
  const auto guess = nearest(written, known);
  if (guess.empty()) {
    return fmt::format("unknown {} '{}'; 'sluice config show' lists all", what, written);
  }
  return fmt::format("unknown {} '{}'; did you mean '{}'?", what, written, guess);
}

const Option* findOption(std::string_view name) {
  const auto found = std::ranges::find(known(), name, &Option::name);
  return found == known().end() ? nullptr : *found;
}

Result<const Option*> knownOption(std::string_view name) {
  if (const Option* option = findOption(name)) return option;
  std::vector<std::string_view> names;
  for (const Option* each : known()) names.push_back(each->name);
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
