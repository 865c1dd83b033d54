#include <sluice/data/kernel/reduce.h>

#include <algorithm>

#include <sluice/data/kernel/element.h>

namespace sluice::kernel {
namespace {

template <typename Element>
struct SetScaled final {
  using Compute = typename Element::Compute;
  SLUICE_KERNEL static void run(std::byte* __restrict sum, const std::byte* __restrict in,
                                size_t count, Compute scale) {
    // Parts are scaled before they are added: a sum whose mean is finite could overflow before
    // it is divided.
    for (size_t i = 0; i < count; ++i)
      Accumulator<Element>::store(sum, i, Element::load(in, i) * scale);
  }
};

template <typename Element>
struct AddScaled final {
  using Compute = typename Element::Compute;
  SLUICE_KERNEL static void run(std::byte* __restrict sum, const std::byte* __restrict in,
                                size_t count, Compute scale) {
    using Sum = Accumulator<Element>;
    for (size_t i = 0; i < count; ++i)
      Sum::store(sum, i, Sum::load(sum, i) + Element::load(in, i) * scale);
  }
};

template <typename From, typename To>
struct Convert final {
  SLUICE_KERNEL static void run(std::byte* __restrict out, const std::byte* __restrict in,
                                size_t count) {
    for (size_t i = 0; i < count; ++i) To::store(out, i, From::load(in, i));
  }
};

size_t countOf(DType dtype, std::span<const std::byte> elements,
               std::span<const std::byte> accumulator) {
  const size_t count = elements.size() / sizeOf(dtype);
  SLUICE_CHECK(elements.size() == count * sizeOf(dtype), elements.size(), sluice::name(dtype));
  SLUICE_CHECK(accumulator.size() == count * sizeOf(accumulatorOf(dtype)), accumulator.size(),
               count, sluice::name(dtype));
  return count;
}

// A block of the sum this small stays in the first-level cache while every rank's part is added.
constexpr size_t kBlockElements = 2048;

}  // namespace

Status checkArithmetic(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF64:
    case DType::kBF16:
    case DType::kF16: return base::ok();
    case DType::kBytes: break;
  }
  return {Code::kInvalidArgument,
          fmt::format("tensors of type {} cannot be summed; use f32, f64, bf16 or f16",
                      sluice::name(dtype))};
}

DType accumulatorOf(DType dtype) {
  SLUICE_CHECK(checkArithmetic(dtype).isOk(), sluice::name(dtype));
  return dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

double meanScale(size_t ranks) {
  SLUICE_CHECK(ranks > 0);
  return 1.0 / static_cast<double>(ranks);
}

void setScaled(DType dtype, std::span<std::byte> accumulator,
               std::span<const std::byte> contribution, double scale, Level level) {
  const size_t count = countOf(dtype, contribution, accumulator);
  withElement(dtype, [&]<typename Element>(Element) {
    run<SetScaled<Element>>(level, accumulator.data(), contribution.data(), count,
                            static_cast<typename Element::Compute>(scale));
  });
}

void addScaled(DType dtype, std::span<std::byte> accumulator,
               std::span<const std::byte> contribution, double scale, Level level) {
  const size_t count = countOf(dtype, contribution, accumulator);
  withElement(dtype, [&]<typename Element>(Element) {
    run<AddScaled<Element>>(level, accumulator.data(), contribution.data(), count,
                            static_cast<typename Element::Compute>(scale));
  });
}

void sumInRankOrder(DType dtype, std::span<std::byte> accumulator,
                    std::span<const std::span<const std::byte>> contributions, double scale,
                    Level level) {
  SLUICE_CHECK(!contributions.empty());
  for (const auto& contribution : contributions) {
    SLUICE_CHECK(contribution.size() == contributions[0].size(), contribution.size(),
                 contributions[0].size());
  }
  const size_t count = countOf(dtype, contributions[0], accumulator);
  const size_t bytes = sizeOf(dtype);
  const size_t sumBytes = sizeOf(accumulatorOf(dtype));
  // Block by block instead of rank by rank: the sum of a block stays in the first-level cache
  // while all parts are added to it. The order of additions for each element is the same, so
  // the bits are.
  for (size_t begin = 0; begin < count; begin += kBlockElements) {
    const size_t length = std::min(kBlockElements, count - begin);
    const auto sum = accumulator.subspan(begin * sumBytes, length * sumBytes);
    const auto part = [&](size_t rank) {
      return contributions[rank].subspan(begin * bytes, length * bytes);
    };
    setScaled(dtype, sum, part(0), scale, level);
    for (size_t rank = 1; rank < contributions.size(); ++rank)
      addScaled(dtype, sum, part(rank), scale, level);
  }
}

void widen(DType dtype, std::span<std::byte> accumulator, std::span<const std::byte> elements,
           Level level) {
  const size_t count = countOf(dtype, elements, accumulator);
  withElement(dtype, [&]<typename Element>(Element) {
    run<Convert<Element, Accumulator<Element>>>(level, accumulator.data(), elements.data(), count);
  });
}

void narrow(DType dtype, std::span<std::byte> elements, std::span<const std::byte> accumulator,
            Level level) {
  const size_t count = countOf(dtype, elements, accumulator);
  withElement(dtype, [&]<typename Element>(Element) {
    run<Convert<Accumulator<Element>, Element>>(level, elements.data(), accumulator.data(), count);
  });
}

}  // namespace sluice::kernel
