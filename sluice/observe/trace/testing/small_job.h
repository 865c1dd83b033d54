// A small job as its ranks' traces would have it, for tests of what works on traces. Two ranks, one
// tensor of one slice, which lives on rank 1, and two steps. Tests only.
#pragma once

#include <vector>

#include <sluice/observe/trace/rank_trace.h>

namespace sluice::trace {

inline TimePoint msAt(int64_t ms) {
  return TimePoint(std::chrono::milliseconds(ms));
}

// Step 0 ends at 10 ms on both. Then, in milliseconds of rank 0's clock:
//
//   rank 0   ready 10, queued 11, pushed 14 ...................... applied 33, goes on 34, ready 50
//   rank 1   ready 10     collects its own 10, rank 0's 20, reduces 20, updates 22,
//                         publishes 24 (queued 23)
inline std::vector<RankTrace> smallJob() {
  const TensorId tensor{0};
  const SliceId slice{0};
  const Rank worker{0};
  const Rank server{1};
  RankTrace first{.session = "model", .rank = worker, .tensors = {"w \"quoted\""}};
  RankTrace second{.session = "model", .rank = server, .tensors = first.tensors};
  first.events = {{Stage::kReady, Step{0}, tensor, slice, worker, msAt(10)},
                  {Stage::kQueued, Step{0}, tensor, slice, server, msAt(11)},
                  {Stage::kPush, Step{0}, tensor, slice, server, msAt(14)},
                  {Stage::kApplied, Step{0}, tensor, slice, server, msAt(33)},
                  {Stage::kReady, Step{1}, tensor, slice, worker, msAt(50)}};
  first.waits = {{tensor, Step{0}, msAt(12), msAt(34)}};
  second.events = {{Stage::kReady, Step{0}, tensor, slice, server, msAt(10)},
                   {Stage::kCollect, Step{0}, tensor, slice, server, msAt(10)},
                   {Stage::kCollect, Step{0}, tensor, slice, worker, msAt(20)},
                   {Stage::kReduce, Step{0}, tensor, slice, server, msAt(20)},
                   {Stage::kUpdate, Step{0}, tensor, slice, server, msAt(22)},
                   {Stage::kApplied, Step{0}, tensor, slice, server, msAt(23)},
                   {Stage::kQueued, Step{0}, tensor, slice, worker, msAt(23)},
                   {Stage::kPublish, Step{0}, tensor, slice, worker, msAt(24)},
                   {Stage::kReady, Step{1}, tensor, slice, server, msAt(40)}};
  second.waits = {{tensor, Step{0}, msAt(13), msAt(24)}};
  return {first, second};
}

// The same job, but rank 0 has a device: its gradient is ready at 9 ms and is copied to the host from
// 10 to 11 ms, the result is copied back from 33 to 36 ms, and the rank goes on at 37 ms.
inline std::vector<RankTrace> smallDeviceJob() {
  std::vector<RankTrace> traces = smallJob();
  RankTrace& first = traces[0];
  const auto [stage, step, tensor, slice, server, at] = first.events[3];
  first.events[0].at = msAt(9);
  first.events[3] = {Stage::kStageIn, step, tensor, slice, server, at};
  first.events.insert(first.events.begin() + 4, {stage, step, tensor, slice, server, msAt(36)});
  first.events.insert(first.events.begin() + 1,
                      {Stage::kStageOut, step, tensor, slice, first.rank, msAt(10)});
  first.waits[0].to = msAt(37);
  return traces;
}

}  // namespace sluice::trace
