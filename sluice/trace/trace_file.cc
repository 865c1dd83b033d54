#include <sluice/trace/trace_file.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sluice/base/check.h>
#include <sluice/net/fd.h>
#include <sluice/trace/journeys.h>

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

class Writer final {
 public:
  Writer(std::FILE* file, TimePoint origin) : file_(file), origin_(origin) {}

  // Adds text between two events, or around all of them.
  void raw(std::string_view text) { buffer_ += text; }

  template <typename... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    buffer_ += isFirst_ ? "\n" : ",\n";
    isFirst_ = false;
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
    if (buffer_.size() >= kChunkBytes) flush();
  }

  void metadata(Rank rank, std::optional<size_t> track, std::string_view what,
                const std::string& value) {
    event(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", rank, track.value_or(0),
          what, value);
  }

  // Writes an activity from `from` to `to`, or a moment at `from` if nobody knows the end.
  // Activities may overlap on a track, so they are asynchronous events.
  void span(Rank rank, size_t track, std::string_view category, std::string_view name,
            TimePoint from, std::optional<TimePoint> to, const std::string& args) {
    if (!to) {
      event(
          R"({{"ph":"i","s":"t","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{},"args":{{{}}}}})",
          category, name, rank, track, time(from), args);
      return;
    }
    const uint64_t id = nextId_++;
    event(R"({{"ph":"b","cat":"{}","id":"{:x}","name":"{}","pid":{},"tid":{},)"
          R"("ts":{},"args":{{{}}}}})",
          category, id, name, rank, track, time(from), args);
    // Two clocks may disagree by a little about what came first.
    event(R"({{"ph":"e","cat":"{}","id":"{:x}","name":"{}","pid":{},"tid":{},"ts":{}}})", category,
          id, name, rank, track, time(std::max(from, *to)));
  }

  void flush() {
    if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size()) failed_ = true;
    buffer_.clear();
  }
  bool failed() const { return failed_; }

 private:
  static constexpr size_t kChunkBytes = size_t{1} << 18;

  // Microseconds, exact to the nanosecond.
  std::string time(TimePoint at) const {
    const auto nanoseconds = (at - origin_).count();
    return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
  }

  std::FILE* const file_;
  const TimePoint origin_;
  std::string buffer_;
  uint64_t nextId_ = 1;
  bool isFirst_ = true;
  bool failed_ = false;
};

json describe(const RankTrace& trace) {
  json clocks = json::array();
  for (const auto& [peer, clock] : trace.clocks) {
    clocks.push_back({{"rank", index(peer)},
                      {"offset_ns", clock.offset.count()},
                      {"round_trip_ns", clock.roundTrip.count()}});
  }
  return {{"rank", index(trace.rank)}, {"lost", trace.lost}, {"clocks", std::move(clocks)}};
}

// Gradients in host memory are not staged: their traces have no tracks for that.
bool hasTrack(const RankTrace& trace, Stage stage) {
  if (stage != Stage::kStageOut && stage != Stage::kStageIn) return true;
  return std::ranges::find(trace.events, stage, &StageEvent::stage) != trace.events.end();
}

void writeTracks(Writer& writer, const RankTrace& trace) {
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

void writeEvents(Writer& writer, const RankTrace& trace, const Journeys& journeys) {
  std::vector<std::string> names;  // as JSON writes them
  for (const auto& name : trace.tensors)
    names.push_back(json(name).dump(-1, ' ', false, json::error_handler_t::replace));
  for (const auto& event : trace.events) {
    writer.span(trace.rank, trackOf(event.stage), kSliceCategory, sluice::name(event.stage),
                event.at, journeys.endOf(trace.rank, event),
                fmt::format(R"("rank":{},"tensor":{},"layer":{},"slice":{},"step":{},"peer":{})",
                            trace.rank, names.at(index(event.tensor)), event.tensor, event.slice,
                            event.step, event.peer));
  }
  for (const auto& wait : trace.waits) {
    writer.span(trace.rank, kWaitTrack, kWaitCategory, kWaitCategory, wait.from, wait.to,
                fmt::format(R"("rank":{},"tensor":{},"layer":{},"step":{})", trace.rank,
                            names.at(index(wait.tensor)), wait.tensor, wait.step));
  }
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
    RankTrace& trace = *byRank_.at(event.at("pid").get<uint32_t>());
    const json& args = event.at("args");
    const TensorId tensor{args.at("layer").get<uint32_t>()};
    const Step step{args.at("step").get<uint64_t>()};
    if (index(tensor) >= trace.tensors.size())
      throw std::out_of_range("an event names a tensor that is not in the list");
    if (event.at("cat").get<std::string_view>() == kWaitCategory) {
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

Status writeTraces(const std::string& path, std::span<const RankTrace> traces) {
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
  const json other{{"sluice_trace", kVersion},
                   {"session", traces.front().session},
                   {"clock_origin_ns", origin.time_since_epoch().count()},
                   {"ranks", std::move(ranks)},
                   {"tensors", traces.front().tensors}};
  const Journeys journeys(traces);
  Writer writer(file.get(), origin);
  writer.raw(R"({"displayTimeUnit":"ms","otherData":)" +
             other.dump(-1, ' ', false, json::error_handler_t::replace) + R"(,"traceEvents":[)");
  for (const auto& trace : traces) {
    writeTracks(writer, trace);
    writeEvents(writer, trace, journeys);
  }
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
