#include <sluice/plan/line_fit.h>

namespace sluice::plan {

WireCost fitLine(std::span<const TimedMessage> messages) {
  // Minimises sum ((a + b*M)/t - 1)^2, which is linear in a and b.
  double aa = 0;
  double ab = 0;
  double bb = 0;
  double a1 = 0;
  double b1 = 0;
  for (const auto& [size, seconds] : messages) {
    const double one = 1 / seconds;
    const double bytes = size / seconds;
    aa += one * one;
    ab += one * bytes;
    bb += bytes * bytes;
    a1 += one;
    b1 += bytes;
  }
  const double determinant = aa * bb - ab * ab;
  return {.start = (a1 * bb - b1 * ab) / determinant, .perByte = (aa * b1 - ab * a1) / determinant};
}

}  // namespace sluice::plan
