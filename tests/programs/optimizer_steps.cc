// Runs a server-side optimizer over raw bytes, for tests/programs/optimizer_vs_torch_test.py:
//   optimizer_steps SPEC DTYPE ELEMENTS STEPS < IN > OUT
// IN: the parameters; then for every step its hyperparameters (f64, in the optimizer's order) and
// its mean gradient (f32, or f64 for f64). OUT: what is published after every step.
#include <charconv>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <sluice/data/kernel/reduce.h>
#include <sluice/data/optimizer/optimizer_spec.h>

namespace {

using sluice::DType;
using sluice::Status;

sluice::Result<DType> parseDType(std::string_view text) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    if (sluice::name(dtype) == text) return dtype;
  }
  return Status(sluice::Code::kInvalidArgument,
                fmt::format("no type '{}'; use f32, f64, bf16 or f16", text));
}

sluice::Result<size_t> parseCount(std::string_view text) {
  size_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error == std::errc() && end == text.data() + text.size()) return count;
  return Status(sluice::Code::kInvalidArgument, fmt::format("'{}' is not a count", text));
}

Status readAll(std::span<std::byte> bytes) {
  if (std::fread(bytes.data(), 1, bytes.size(), stdin) == bytes.size()) return sluice::base::ok();
  return {sluice::Code::kDataLoss, "the input is too short"};
}

Status writeAll(std::span<const std::byte> bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return sluice::base::ok();
  return sluice::base::fromErrno("write");
}

Status run(std::span<char*> args) {
  if (args.size() != 5) {
    return {sluice::Code::kInvalidArgument,
            "usage: optimizer_steps SPEC DTYPE ELEMENTS STEPS < IN > OUT"};
  }
  SLUICE_ASSIGN_OR_RETURN(auto spec, sluice::optimizer::parseOptimizerSpec(args[1]));
  SLUICE_ASSIGN_OR_RETURN(const DType dtype, parseDType(args[2]));
  SLUICE_ASSIGN_OR_RETURN(const size_t elements, parseCount(args[3]));
  SLUICE_ASSIGN_OR_RETURN(const size_t steps, parseCount(args[4]));
  std::vector<std::byte> published(elements * sizeOf(dtype));
  std::vector<std::byte> gradient(elements * sizeOf(sluice::kernel::accumulatorOf(dtype)));
  sluice::optimizer::OptimizerState state(spec.optimizer->name(), dtype, elements);
  SLUICE_RETURN_IF_ERROR(readAll(published));
  for (size_t step = 0; step < steps; ++step) {
    SLUICE_RETURN_IF_ERROR(readAll(std::as_writable_bytes(std::span(spec.values))));
    SLUICE_RETURN_IF_ERROR(readAll(gradient));
    SLUICE_RETURN_IF_ERROR(
        sluice::optimizer::applyStep(*spec.optimizer, state, published, gradient, spec.values));
    SLUICE_RETURN_IF_ERROR(writeAll(published));
  }
  return sluice::base::ok();
}

}  // namespace

int main(int argc, char** argv) {
  const Status status = run({argv, static_cast<size_t>(argc)});
  if (status.isOk()) return 0;
  fmt::print(stderr, "optimizer_steps: {}\n", status.message());
  return 1;
}
