#include <sluice/algorithms/pieces.h>

#include <sluice/transport/fabric/common.h>

namespace sluice::algorithms {

Status inPieces(Loop& loop, size_t count, const std::function<size_t(size_t)>& work) {
  for (size_t next = 0; next < count;) {
    SLUICE_RETURN_IF_ERROR(fabric::runAndWait(loop, [&] {
      for (size_t bytes = 0; next < count && bytes < kPieceBytes;) bytes += work(next++);
    }));
  }
  return base::ok();
}

}  // namespace sluice::algorithms
