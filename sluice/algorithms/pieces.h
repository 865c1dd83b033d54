// Work of a model's size on the loop, cut into pieces: between two of them messages, timers and
// heartbeats get their turn.
#pragma once

#include <cstddef>
#include <functional>

#include <sluice/base/loop.h>
#include <sluice/base/status.h>

namespace sluice::algorithms {

// About a millisecond of copying.
inline constexpr size_t kPieceBytes = size_t{4} << 20;

// Runs work(0) to work(count - 1) on the loop, in this order, and returns when all have run, or why
// the loop runs no more. Each returns how many bytes it has moved. Any thread; on the loop itself
// it is one piece. REQUIRES: what the loop does in between does not change what `work` reads.
Status inPieces(Loop& loop, size_t count, const std::function<size_t(size_t)>& work);

}  // namespace sluice::algorithms
