#include <sluice/algorithms/pieces.h>

#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {

Status inPieces(Loop& loop, size_t count, const std::function<size_t(size_t)>& work) {
  // Each piece is a task of its own, and the caller waits for it: the loop runs whatever else
  // has come between two pieces. The counter lives in the caller's frame, which is safe because
  // runAndWait() returns only when the task can run no more.
  for (size_t next = 0; next < count;) {
    SLUICE_RETURN_IF_ERROR(fabric::runAndWait(loop, [&] {
      for (size_t bytes = 0; next < count && bytes < kPieceBytes;) bytes += work(next++);
    }));
  }
  return base::ok();
}

}  // namespace sluice::algorithms
