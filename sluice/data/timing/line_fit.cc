#include <sluice/data/timing/line_fit.h>

namespace sluice::timing {

WireCost fitLine(std::span<const TimedMessage> messages) {
  // Minimises sum (a + b*M - t)^2 / t, which is linear in a and b.
  // The division keeps the longest messages, whose errors are largest, from deciding alone.
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double a1 = 0;
  double b1 = 0;
  for (const auto& [bytes, seconds] : messages) {
    aa += 1 / seconds;
    ab += bytes / seconds;
    bb += bytes * bytes / seconds;
    a1 += 1;
    b1 += bytes;
  }
  const double determinant = aa * bb - ab * ab;
  return {.start = (a1 * bb - b1 * ab) / determinant, .perByte = (aa * b1 - ab * a1) / determinant};
}

}  // namespace sluice::timing
