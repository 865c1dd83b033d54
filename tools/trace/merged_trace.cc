#include <tools/trace/merged_trace.h>

#include <algorithm>
#include <map>
#include <vector>

#include <fmt/format.h>

#include <sluice/observe/trace/trace_file.h>

#include <tools/trace/arrows.h>
#include <tools/trace/torch_ranks.h>

namespace sluice::trace {
namespace {

void writeArrows(EventWriter& writer, std::span<const RankTrace> traces, const Journeys& journeys) {
  std::map<Rank, std::vector<std::string>> names;
  for (const auto& trace : traces) names[trace.rank] = quotedAll(trace.tensors);
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
  const auto trackOfThread = [](size_t thread) { return kFreeTracks + thread; };
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

}  // namespace

Status writeMergedTrace(const std::string& path, std::span<const RankTrace> traces,
                        std::span<const TorchProfile> profiles) {
  std::map<Rank, const RankTrace*> byRank;
  for (const auto& trace : traces) byRank[trace.rank] = &trace;
  FurtherEvents further;
  for (const auto& profile : profiles)
    further.first = std::min(further.first, momentOf(*byRank.at(*profile.rank), profile.first));
  further.write = [&](EventWriter& writer, const Journeys& journeys) -> Status {
    writeArrows(writer, traces, journeys);
    for (const auto& profile : profiles)
      SLUICE_RETURN_IF_ERROR(writeProfile(writer, profile, *byRank.at(*profile.rank)));
    return base::ok();
  };
  return writeTraces(path, traces, further);
}

}  // namespace sluice::trace
