#include <tools/trace/trace_reader.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sluice/base/json.h>
#include <sluice/base/text.h>
#include <sluice/observe/trace/trace_file.h>

namespace sluice::trace {
namespace {

using nlohmann::json;

// A trace with the default number of events has some 0.4 GB for each rank in it.
constexpr uintmax_t kMostBytes = uintmax_t{16} << 30;
constexpr size_t kLongestReason = 200;

// Sums and differences of such times fit into 64 bits: 73 years.
constexpr int64_t kLongestTime = int64_t{1} << 61;

Duration durationAt(const json& object, const char* key) {
  const json& value = object.at(key);
  const bool isPossible =
      value.is_number_integer() && value <= kLongestTime && value >= -kLongestTime;
  if (!isPossible) throw std::out_of_range(fmt::format("'{}' is not a possible time", key));
  return Duration(value.get<Duration::rep>());
}

RankTrace rankFrom(const json& described, const json& other) {
  RankTrace trace;
  trace.session = other.at("session").get<std::string>();
  trace.rank = Rank{described.at("rank").get<uint32_t>()};
  trace.tensors = other.at("tensors").get<std::vector<std::string>>();
  trace.lost = described.at("lost").get<uint64_t>();
  if (const auto wall = described.find("wall_clock"); wall != described.end())
    trace.wall = {durationAt(*wall, "ahead_ns"), durationAt(*wall, "uncertainty_ns")};
  for (const auto& clock : described.at("clocks")) {
    trace.clocks[Rank{clock.at("rank").get<uint32_t>()}] = {durationAt(clock, "offset_ns"),
                                                            durationAt(clock, "round_trip_ns")};
  }
  return trace;
}

std::optional<Stage> stageNamed(std::string_view name) {
  const auto found =
      std::ranges::find(kPath, name, [](Stage stage) { return sluice::name(stage); });
  return found == kPath.end() ? std::nullopt : std::optional(*found);
}

// Puts the events back into the traces they came from.
class Reader final {
 public:
  Reader(std::vector<RankTrace>& traces, TimePoint origin) : origin_(origin) {
    for (auto& trace : traces) byRank_[index(trace.rank)] = &trace;
  }

  void take(const json& event) {
    const auto phase = event.at("ph").get<std::string_view>();
    if (phase == "e") return end(event);
    if (phase != "b" && phase != "i") return;
    const auto category = event.at("cat").get<std::string_view>();
    if (category != kSliceCategory && category != kWaitCategory) return;  // of torch.profiler
    RankTrace& trace = *byRank_.at(event.at("pid").get<uint32_t>());
    const json& args = event.at("args");
    const TensorId tensor{args.at("layer").get<uint32_t>()};
    const Step step{args.at("step").get<uint64_t>()};
    if (index(tensor) >= trace.tensors.size())
      throw std::out_of_range("an event names a tensor that is not in the list");
    if (category == kWaitCategory) {
      open_[event.at("id").get<std::string>()] = {&trace, trace.waits.size()};
      trace.waits.push_back({tensor, step, time(event), time(event)});
      return;
    }
    const auto stage = stageNamed(event.at("name").get<std::string_view>());
    if (!stage) throw std::out_of_range("an event has an unknown stage");
    trace.events.push_back({*stage, step, tensor, SliceId{args.at("slice").get<uint32_t>()},
                            Rank{args.at("peer").get<uint32_t>()}, time(event)});
  }

 private:
  struct OpenWait {
    RankTrace* trace;
    size_t number;
  };

  void end(const json& event) {
    const auto found = open_.find(event.at("id").get<std::string>());
    if (found == open_.end()) return;  // of a stage: the next one's beginning says the same
    found->second.trace->waits[found->second.number].to = time(event);
    open_.erase(found);
  }
  TimePoint time(const json& event) const {
    const double nanoseconds = event.at("ts").get<double>() * 1000;
    if (!(std::abs(nanoseconds) <= static_cast<double>(kLongestTime)))
      throw std::out_of_range("an event has a time that is not possible");
    return origin_ + Duration(std::llround(nanoseconds));
  }

  const TimePoint origin_;
  std::map<uint32_t, RankTrace*> byRank_;
  std::map<std::string, OpenWait> open_;
};

}  // namespace

Result<std::vector<RankTrace>> readTraces(const std::string& path) {
  std::error_code unknown;
  if (const auto size = std::filesystem::file_size(path, unknown); !unknown && size > kMostBytes)
    return Status(Code::kInvalidArgument,
                  path + " has more than 16 GiB; trace fewer steps, or fewer ranks in a file");
  std::ifstream file(path, std::ios::binary);
  if (!file) return base::fromErrno("cannot read " + path);
  const auto wrong = [&](std::string_view why) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: this is not a trace of sluice: {}", path,
                              base::printable(why.substr(0, kLongestReason))));
  };
  try {
    std::vector<RankTrace> traces;
    std::optional<Reader> reader;
    const auto begin = [&](const json& document) -> Status {
      const json& other = document.at("otherData");
      if (other.at("sluice_trace") != kFileVersion)
        return {Code::kInvalidArgument,
                path +
                    ": this trace was written by another version of sluice; read it with that "
                    "version"};
      for (const auto& described : other.at("ranks")) traces.push_back(rankFrom(described, other));
      reader.emplace(traces, TimePoint(durationAt(other, "clock_origin_ns")));
      return base::ok();
    };
    // Event by event, so that memory holds what a trace keeps of them and not their text.
    Status fault;
    const auto rest = base::readJsonParts(
        file, {.list = "traceEvents",
               .kept = {"otherData"},
               .take = [&](json& event, uint64_t, const json& before) -> Status {
                 if (!reader) fault = begin(before);
                 if (fault.isOk()) reader->take(event);
                 return fault;
               }});
    if (!fault.isOk()) return fault;
    if (!rest.isOk()) return wrong(rest.status().message());
    if (!reader) SLUICE_RETURN_IF_ERROR(begin(*rest));
    return traces;
  } catch (const std::exception& error) {  // nlohmann's, and those of at()
    return wrong(error.what());
  }
}

Result<std::vector<RankTrace>> readDirectory(const std::string& directory,
                                             const std::string& session) {
  std::error_code error;
  std::vector<RankTrace> traces;
  std::set<std::string> sessions;
  const auto files = std::filesystem::directory_iterator(directory, error);
  if (error) return base::fromErrno("cannot read " + directory, error.value());
  for (const auto& entry : files) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".json") || name.find(".rank-") == std::string::npos) continue;
    SLUICE_ASSIGN_OR_RETURN(auto found, readTraces(entry.path().string()));
    for (auto& trace : found) {
      // A session that only carries words between ranks has nothing to show.
      if (session.empty() && trace.events.empty() && trace.waits.empty()) continue;
      sessions.insert(trace.session);
      if (session.empty() || trace.session == session) traces.push_back(std::move(trace));
    }
  }
  if (traces.empty()) {
    return Status(Code::kNotFound,
                  fmt::format("there are no traces in {}; run the job with SLUICE_TRACE={}",
                              directory, directory));
  }
  if (session.empty() && sessions.size() > 1) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} has traces of several sessions ({}): choose one with --session",
                              directory, fmt::join(sessions, ", ")));
  }
  std::ranges::sort(traces, {}, &RankTrace::rank);
  if (std::ranges::adjacent_find(traces, {}, &RankTrace::rank) != traces.end()) {
    return Status(
        Code::kInvalidArgument,
        directory + ": two traces are of the same rank; give every run a directory of its own");
  }
  return traces;
}

}  // namespace sluice::trace
