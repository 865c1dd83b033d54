#include <sluice/data/kernel/mix.h>

#include <gtest/gtest.h>

#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::kernel {
namespace {

using Bytes = std::vector<std::byte>;

// Follows the definitions, element by element.
TEST(Mix, IsItsDefinitionAtEveryLevel) {
  constexpr double kAlpha = 0.225;
  constexpr double kKeep = 2.0 / 3;
  for (const Level level : levels()) {
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      for (const size_t count : {0U, 1U, 7U, 33U, 1000U}) {
        SCOPED_TRACE(fmt::format("{} {} {}", name(level), sluice::name(dtype), count));
        TestNumbers numbers(count + 1);
        const Bytes x = numbers.elements(dtype, count, /*ordinary=*/true);
        const Bytes other = numbers.elements(dtype, count, /*ordinary=*/true);
        Bytes drawn = x;
        Bytes centre = other;
        drawTogether(dtype, centre, drawn, kAlpha, level);
        Bytes mixed = x;
        mix(dtype, mixed, other, kKeep, 1 - kKeep, level);
        Bytes moved = x;
        const Bytes to = numbers.elements(dtype, count, /*ordinary=*/true);
        moveHalfway(dtype, moved, other, to, level);
        withElement(dtype, [&]<typename Element>(Element) {
          using Compute = typename Element::Compute;
          Bytes expected(sizeOf(dtype));
          const auto expectAt = [&](const Bytes& got, size_t i, Compute value) {
            Element::store(expected.data(), 0, value);
            ASSERT_EQ(Element::load(got.data(), i), Element::load(expected.data(), 0)) << i;
          };
          for (size_t i = 0; i < count; ++i) {
            const Compute own = Element::load(x.data(), i);
            const Compute theirs = Element::load(other.data(), i);
            const Compute difference = own - theirs;
            const Compute step = difference * static_cast<Compute>(kAlpha);
            expectAt(drawn, i, own - step);
            expectAt(centre, i, theirs + step);
            const Compute kept = own * static_cast<Compute>(kKeep);
            const Compute taken = theirs * static_cast<Compute>(1 - kKeep);
            expectAt(mixed, i, kept + taken);
            const Compute way = Element::load(to.data(), i) - theirs;
            const Compute half = way / 2;
            expectAt(moved, i, own + half);
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace sluice::kernel
