#include <sluice/observe/trace/trace_file.h>

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/check.h>
#include <sluice/base/net/fd.h>

namespace sluice::trace {
namespace {

using nlohmann::json;

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

void writeEvents(EventWriter& writer, const RankTrace& trace, const Journeys& journeys) {
  const auto names = quotedAll(trace.tensors);
  // Names are quoted once, not for each event: a trace may have millions.
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

}  // namespace

std::string quoted(const std::string& text) {
  return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::vector<std::string> quotedAll(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const auto& text : texts) all.push_back(quoted(text));
  return all;
}

std::string argsOf(Rank rank, const std::string& name, TensorId tensor, SliceId slice, Step step,
                   Rank peer) {
  return fmt::format(R"("rank":{},"tensor":{},"layer":{},"slice":{},"step":{},"peer":{})", rank,
                     name, tensor, slice, step, peer);
}

std::string traceFileName(const std::string& directory, const std::string& session, Rank rank) {
  std::string safe = session;  // the user chose the name; it must not lead to another folder
  std::ranges::replace(safe, '/', '_');
  return fmt::format("{}/{}.rank-{}.json", directory, safe, rank);
}

Status writeTraces(const std::string& path, std::span<const RankTrace> traces,
                   const FurtherEvents& further) {
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
  // Times in the file are microseconds from this origin. Viewers keep them as doubles, which
  // could not tell apart the nanoseconds of a clock that counts from a machine's start.
  TimePoint origin = further.first;
  json ranks = json::array();
  for (const auto& trace : traces) {
    origin = std::min(origin, trace.begin());
    ranks.push_back(describe(trace));
  }
  const json other{{"sluice_trace", kFileVersion},
                   {"session", traces.front().session},
                   {"clock_origin_ns", origin.time_since_epoch().count()},
                   {"ranks", std::move(ranks)},
                   {"tensors", traces.front().tensors}};
  const Journeys journeys(traces);
  // Events are written as text instead of being collected as JSON, which would take many times
  // the file's size in memory.
  EventWriter writer(file.get(), origin);
  writer.raw(R"({"displayTimeUnit":"ms","otherData":)" +
             other.dump(-1, ' ', false, json::error_handler_t::replace) + R"(,"traceEvents":[)");
  for (const auto& trace : traces) {
    writeTracks(writer, trace);
    writeEvents(writer, trace, journeys);
  }
  if (further.write) SLUICE_RETURN_IF_ERROR(further.write(writer, journeys));
  writer.raw("\n]}\n");
  writer.flush();
  return writer.failed() || std::fflush(file.get()) != 0 ? base::fromErrno("cannot write " + path)
                                                         : base::ok();
}

}  // namespace sluice::trace
