#include <sluice/data/kernel/mix.h>

#include <sluice/data/kernel/element.h>

namespace sluice::kernel {
namespace {

template <typename Element>
struct DrawTogether final {
  using Compute = typename Element::Compute;
  SLUICE_KERNEL static void run(std::byte* __restrict centre, std::byte* __restrict x, size_t count,
                                Compute alpha) {
    for (size_t i = 0; i < count; ++i) {
      const Compute own = Element::load(x, i);
      const Compute other = Element::load(centre, i);
      // Both ends move by the same amount, which is calculated once, so that their sum stays
      // what it was but for rounding.
      const Compute step = (own - other) * alpha;
      Element::store(x, i, own - step);
      Element::store(centre, i, other + step);
    }
  }
};

template <typename Element>
struct Mix final {
  using Compute = typename Element::Compute;
  SLUICE_KERNEL static void run(std::byte* __restrict x, const std::byte* __restrict other,
                                size_t count, Compute keep, Compute take) {
    for (size_t i = 0; i < count; ++i)
      Element::store(x, i, Element::load(x, i) * keep + Element::load(other, i) * take);
  }
};

template <typename Element>
struct MoveHalfway final {
  using Compute = typename Element::Compute;
  SLUICE_KERNEL static void run(std::byte* __restrict x, const std::byte* __restrict from,
                                const std::byte* __restrict to, size_t count) {
    constexpr Compute kHalf{0.5F};
    for (size_t i = 0; i < count; ++i) {
      // x may have been trained on since `from` was sent. Adding half the way between the two
      // models that met, and not setting x to their middle, keeps those steps.
      const Compute way = Element::load(to, i) - Element::load(from, i);
      Element::store(x, i, Element::load(x, i) + way * kHalf);
    }
  }
};

size_t elementsOf(DType dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  const size_t count = a.size() / sizeOf(dtype);
  SLUICE_CHECK(a.size() == b.size() && a.size() == count * sizeOf(dtype), a.size(), b.size(),
               sluice::name(dtype));
  return count;
}

}  // namespace

void drawTogether(DType dtype, std::span<std::byte> centre, std::span<std::byte> x, double alpha,
                  Level level) {
  const size_t count = elementsOf(dtype, centre, x);
  withElement(dtype, [&]<typename Element>(Element) {
    run<DrawTogether<Element>>(level, centre.data(), x.data(), count,
                               static_cast<typename Element::Compute>(alpha));
  });
}

void mix(DType dtype, std::span<std::byte> x, std::span<const std::byte> other, double keep,
         double take, Level level) {
  const size_t count = elementsOf(dtype, x, other);
  withElement(dtype, [&]<typename Element>(Element) {
    using Compute = typename Element::Compute;
    run<Mix<Element>>(level, x.data(), other.data(), count, static_cast<Compute>(keep),
                      static_cast<Compute>(take));
  });
}

void moveHalfway(DType dtype, std::span<std::byte> x, std::span<const std::byte> from,
                 std::span<const std::byte> to, Level level) {
  const size_t count = elementsOf(dtype, from, to);
  SLUICE_CHECK(x.size() == from.size(), x.size(), from.size());
  withElement(dtype, [&]<typename Element>(Element) {
    run<MoveHalfway<Element>>(level, x.data(), from.data(), to.data(), count);
  });
}

}  // namespace sluice::kernel
