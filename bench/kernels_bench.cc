// Measures how fast sums, codecs and optimizer steps go through memory, beside memcpy.
// bytes_per_second counts every byte read and written. Sizes: one default slice (50,000 parameters,
// in the cache) and a large tensor (16 million, out of it).
#include <cstring>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <sluice/data/codec/codec.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/optimizer/optimizer_spec.h>

namespace {

using sluice::DType;
using sluice::kernel::Level;
using Bytes = std::vector<std::byte>;

constexpr int64_t kSlice = 50'000;
constexpr int64_t kLarge = 16'000'000;
constexpr size_t kRanks = 4;

void copy(benchmark::State& state) {
  const auto bytes = static_cast<size_t>(state.range(0)) * sizeof(float);
  const Bytes from(bytes, std::byte{1});
  Bytes to(bytes);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * bytes));
}

void sum(benchmark::State& state, DType dtype, Level level) {
  const auto count = static_cast<size_t>(state.range(0));
  const Bytes part(count * sizeOf(dtype));
  const std::vector<Bytes> parts(kRanks, part);
  const std::vector<std::span<const std::byte>> spans(parts.begin(), parts.end());
  Bytes out(count * sizeOf(sluice::kernel::accumulatorOf(dtype)));
  for (auto _ : state) {
    sluice::kernel::sumInRankOrder(dtype, out, spans, sluice::kernel::meanScale(kRanks), level);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(kRanks * part.size() + out.size()));
}

void narrow(benchmark::State& state, DType dtype, Level level) {
  const auto count = static_cast<size_t>(state.range(0));
  const Bytes in(count * sizeOf(sluice::kernel::accumulatorOf(dtype)));
  Bytes out(count * sizeOf(dtype));
  for (auto _ : state) {
    sluice::kernel::narrow(dtype, out, in, level);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(in.size() + out.size()));
}

// bytes_per_second counts the f32 bytes on one side and the encoded ones on the other.
void encode(benchmark::State& state, const sluice::codec::Codec& codec) {
  const auto count = static_cast<size_t>(state.range(0));
  const std::vector<float> in(count, 0.25F);
  Bytes out(codec.encodedBytes(count));
  for (auto _ : state) {
    codec.encode(std::as_bytes(std::span(in)), out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() *
                          static_cast<int64_t>(count * sizeof(float) + out.size()));
}

void decode(benchmark::State& state, const sluice::codec::Codec& codec) {
  const auto count = static_cast<size_t>(state.range(0));
  const Bytes in(codec.encodedBytes(count));
  Bytes out(count * sizeof(float));
  for (auto _ : state) {
    codec.decode(in, out);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(in.size() + out.size()));
}

void step(benchmark::State& state, const std::string& text, DType dtype, Level level) {
  const auto count = static_cast<size_t>(state.range(0));
  const auto spec = sluice::optimizer::parseOptimizerSpec(text).value();
  sluice::optimizer::OptimizerState memory(spec.optimizer->name(), dtype, count);
  Bytes parameters(count * sizeOf(dtype));
  const Bytes gradient(count * sizeOf(sluice::kernel::accumulatorOf(dtype)));
  for (auto _ : state) {
    const auto status = sluice::optimizer::applyStep(*spec.optimizer, memory, parameters, gradient,
                                                     spec.values, level);
    if (!status) state.SkipWithError(status.message().c_str());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(
      state.iterations() *
      static_cast<int64_t>(2 * parameters.size() + gradient.size() + 2 * memory.bufferBytes()));
}

void addAll() {
  const auto add = [](const std::string& name, auto function) {
    benchmark::RegisterBenchmark(name.c_str(), function)->Arg(kSlice)->Arg(kLarge);
  };
  add("memcpy", copy);
  for (const auto* codec : {&sluice::codec::kFp16, &sluice::codec::kBf16, &sluice::codec::kInt8}) {
    add(fmt::format("encode/{}", codec->name()), [=](benchmark::State& s) { encode(s, *codec); });
    add(fmt::format("decode/{}", codec->name()), [=](benchmark::State& s) { decode(s, *codec); });
  }
  for (const Level level : sluice::kernel::levels()) {
    const auto at = [&](std::string_view what, DType dtype) {
      return fmt::format("{}/{}/{}", what, sluice::name(dtype), sluice::kernel::name(level));
    };
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      add(at("sum4", dtype), [=](benchmark::State& s) { sum(s, dtype, level); });
    }
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      add(at("narrow", dtype), [=](benchmark::State& s) { narrow(s, dtype, level); });
    }
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      add(at("sgd", dtype), [=](benchmark::State& s) { step(s, "sgd", dtype, level); });
      add(at("sgd_momentum", dtype),
          [=](benchmark::State& s) { step(s, "sgd:momentum=0.9", dtype, level); });
      add(at("adam", dtype), [=](benchmark::State& s) { step(s, "adam", dtype, level); });
      add(at("adamw", dtype), [=](benchmark::State& s) { step(s, "adamw", dtype, level); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  addAll();
  benchmark::RunSpecifiedBenchmarks();
}
