#include <sluice/observe/trace/trace_file.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sluice/base/check.h>
#include <sluice/base/net/fd.h>
#include <sluice/observe/trace/arrows.h>
#include <sluice/observe/trace/event_writer.h>
#include <sluice/observe/trace/journeys.h>
#include <sluice/observe/trace/torch_ranks.h>

namespace sluice::trace {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr std::string_view kSliceCategory = "slice";
constexpr std::string_view kWaitCategory = "wait";
constexpr size_t kWaitTrack = kPath.size();  // after the stages

// Returns the number of a stage's track, which is its place on the path.
constexpr size_t trackOf(Stage stage) {
  return static_cast<size_t>(std::ranges::find(kPath, stage) - kPath.begin());
}

// ---- To a file ----

json describe(const RankTrace& trace) {
  json clocks = json::array();
  for (const auto& [peer, clock] : trace.clocks) {
    clocks.push_back({{"rank", index(peer)},
                      {"offset_ns", clock.offset.count()},
                      {"round_trip_ns", clock.roundTrip.count()}});
  }
  json described{{"rank", index(trace.rank)}, {"lost", trace.lost}, {"clocks", std::move(clocks)}};
  if (trace.wall) {
    described["wall_clock"] = {{"ahead_ns", trace.wall->ahead.count()},
                               {"uncertainty_ns", trace.wall->uncertainty.count()}};
  }
  return described;
}

// Gradients in host memory are not staged: their traces have no tracks for that.
bool hasTrack(const RankTrace& trace, Stage stage) {
  if (stage != Stage::kStageOut && stage != Stage::kStageIn) return true;
  return std::ranges::find(trace.events, stage, &StageEvent::stage) != trace.events.end();
}

void writeTracks(EventWriter& writer, const RankTrace& trace) {
  const Rank rank = trace.rank;
  writer.metadata(rank, {}, "process_name", fmt::format(R"("name":"rank {}")", rank));
  writer.metadata(rank, {}, "process_sort_index", fmt::format(R"("sort_index":{})", rank));
  for (size_t track = 0; track <= kWaitTrack; ++track) {
    if (track < kWaitTrack && !hasTrack(trace, kPath[track])) continue;
    const auto name = track < kWaitTrack ? sluice::name(kPath[track]) : kWaitCategory;
    writer.metadata(rank, track, "thread_name", fmt::format(R"("name":"{}")", name));
    writer.metadata(rank, track, "thread_sort_index", fmt::format(R"("sort_index":{})", track));
  }
}

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> quoted(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const auto& text : texts) all.push_back(quoted(text));
  return all;
}

// Returns what every event of a slice says of itself.
std::string argsOf(Rank rank, const std::string& name, TensorId tensor, SliceId slice, Step step,
                   Rank peer) {
  return fmt::format(R"("rank":{},"tensor":{},"layer":{},"slice":{},"step":{},"peer":{})", rank,
                     name, tensor, slice, step, peer);
}

void writeEvents(EventWriter& writer, const RankTrace& trace, const Journeys& journeys) {
  const auto names = quoted(trace.tensors);
  for (const auto& event : trace.events) {
    writer.span(trace.rank, trackOf(event.stage), kSliceCategory, sluice::name(event.stage),
                event.at, journeys.endOf(trace.rank, event),
                argsOf(trace.rank, names.at(index(event.tensor)), event.tensor, event.slice,
                       event.step, event.peer));
  }
  for (const auto& wait : trace.waits) {
    writer.span(trace.rank, kWaitTrack, kWaitCategory, kWaitCategory, wait.from, wait.to,
                fmt::format(R"("rank":{},"tensor":{},"layer":{},"step":{})", trace.rank,
                            names.at(index(wait.tensor)), wait.tensor, wait.step));
  }
}

void writeArrows(EventWriter& writer, std::span<const RankTrace> traces, const Journeys& journeys) {
  std::map<Rank, std::vector<std::string>> names;
  for (const auto& trace : traces) names[trace.rank] = quoted(trace.tensors);
  for (const Arrow& arrow : arrowsBetween(traces, journeys)) {
    const uint64_t id = writer.newId();
    const auto write = [&](char phase, const ArrowEnd& end) {
      writer.arrowEnd(phase, id, end.rank, trackOf(end.stage), sluice::name(end.stage), end.at,
                      end.length,
                      argsOf(end.rank, names.at(arrow.from.rank).at(index(arrow.tensor)),
                             arrow.tensor, arrow.slice, arrow.step, end.peer));
    };
    write('s', arrow.from);
    write('f', arrow.to);
  }
}

// Writes a profile into the process of its rank, below the stages.
Status writeProfile(EventWriter& writer, const TorchProfile& profile, const RankTrace& trace) {
  const auto trackOfThread = [](size_t thread) { return kWaitTrack + 1 + thread; };
  for (const auto& [key, thread] : profile.threads) {
    const size_t track = trackOfThread(thread.track);
    writer.metadata(trace.rank, track, "thread_name",
                    fmt::format(R"("name":{})", quoted(thread.name)));
    writer.metadata(trace.rank, track, "thread_sort_index",
                    fmt::format(R"("sort_index":{})", track));
  }
  std::map<std::string, uint64_t> ids;  // those of two profiles must differ
  return forEachEvent(profile, [&](const TorchEvent& event) {
    std::string id;
    if (event.id) {
      const auto [given, isNew] = ids.try_emplace(*event.id);
      if (isNew) given->second = writer.newId();
      id = fmt::format(R"(,"id":"{:x}")", given->second);
    }
    writer.event(R"({{{},"pid":{},"tid":{},"ts":{}{}}})", event.members, trace.rank,
                 trackOfThread(event.track), writer.time(momentOf(trace, event.at)), id);
  });
}

// ---- And back ----

Duration durationAt(const json& object, const char* key) {
  return Duration(object.at(key).get<Duration::rep>());
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
    return origin_ + Duration(std::llround(event.at("ts").get<double>() * 1000));
  }

  const TimePoint origin_;
  std::map<uint32_t, RankTrace*> byRank_;
  std::map<std::string, OpenWait> open_;
};

}  // namespace

std::string traceFileName(const std::string& directory, const std::string& session, Rank rank) {
  std::string safe = session;  // the user chose the name; it must not lead to another folder
  std::ranges::replace(safe, '/', '_');
  return fmt::format("{}/{}.rank-{}.json", directory, safe, rank);
}

Status writeTraces(const std::string& path, std::span<const RankTrace> traces,
                   std::span<const TorchProfile> profiles) {
  SLUICE_CHECK(!traces.empty());
  // A trace often goes to a shared directory such as /tmp. A link there, which another user may
  // have made, is not followed, and the file is for this user alone.
  net::Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid() && errno == ELOOP) {
    return {Code::kPermissionDenied,
            fmt::format("cannot write {}: it is a link; remove it or choose another path", path)};
  }
  if (!fd.valid()) return base::fromErrno("cannot write " + path);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(::fdopen(fd.get(), "w"), &std::fclose);
  if (!file) return base::fromErrno("cannot write " + path);
  (void)fd.release();  // the FILE closes it
  TimePoint origin = TimePoint::max();
  json ranks = json::array();
  for (const auto& trace : traces) {
    origin = std::min(origin, trace.begin());
    ranks.push_back(describe(trace));
  }
  std::map<Rank, const RankTrace*> byRank;
  for (const auto& trace : traces) byRank[trace.rank] = &trace;
  for (const auto& profile : profiles)
    origin = std::min(origin, momentOf(*byRank.at(*profile.rank), profile.first));
  const json other{{"sluice_trace", kVersion},
                   {"session", traces.front().session},
                   {"clock_origin_ns", origin.time_since_epoch().count()},
                   {"ranks", std::move(ranks)},
                   {"tensors", traces.front().tensors}};
  const Journeys journeys(traces);
  EventWriter writer(file.get(), origin);
  writer.raw(R"({"displayTimeUnit":"ms","otherData":)" +
             other.dump(-1, ' ', false, json::error_handler_t::replace) + R"(,"traceEvents":[)");
  for (const auto& trace : traces) {
    writeTracks(writer, trace);
    writeEvents(writer, trace, journeys);
  }
  writeArrows(writer, traces, journeys);
  for (const auto& profile : profiles)
    SLUICE_RETURN_IF_ERROR(writeProfile(writer, profile, *byRank.at(*profile.rank)));
  writer.raw("\n]}\n");
  writer.flush();
  return writer.failed() || std::fflush(file.get()) != 0 ? base::fromErrno("cannot write " + path)
                                                         : base::ok();
}

Result<std::vector<RankTrace>> readTraces(const std::string& path) {
  std::ifstream file(path);
  if (!file) return base::fromErrno("cannot read " + path);
  try {
    const json document = json::parse(file);
    const json& other = document.at("otherData");
    if (other.at("sluice_trace") != kVersion)
      return Status(
          Code::kInvalidArgument,
          path +
              ": this trace was written by another version of sluice; read it with that version");
    std::vector<RankTrace> traces;
    for (const auto& described : other.at("ranks")) traces.push_back(rankFrom(described, other));
    Reader reader(traces, TimePoint(durationAt(other, "clock_origin_ns")));
    for (const auto& event : document.at("traceEvents")) reader.take(event);
    return traces;
  } catch (const std::exception& error) {  // nlohmann's, and those of at()
    return Status(Code::kInvalidArgument,
                  fmt::format("{}: this is not a trace of sluice: {}", path, error.what()));
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
