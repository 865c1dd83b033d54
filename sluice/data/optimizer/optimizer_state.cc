#include <sluice/data/optimizer/optimizer_state.h>

#include <bit>
#include <cstring>
#include <limits>

#include <sluice/data/kernel/reduce.h>

namespace sluice::optimizer {
namespace {

static_assert(std::endian::native == std::endian::little,
              "checkpoints are written in this order of bytes");

constexpr uint32_t kMagic = 0x504f4c53;  // "SLOP": sluice optimizer state
constexpr uint8_t kVersion = 1;
constexpr size_t kMostBuffers = 16;

class Writer final {
 public:
  template <typename T>
  void number(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof(T));
  }
  void bytes(std::span<const std::byte> bytes) {
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }
  void reserve(size_t bytes) { out_.reserve(bytes); }
  std::vector<std::byte> take() { return std::move(out_); }

 private:
  std::vector<std::byte> out_;
};

// After the first read beyond the end every read gives zeros, and failed() is true.
class Reader final {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}
  template <typename T>
  T number() {
    T value{};
    const auto source = bytes(sizeof(T));
    if (!source.empty()) std::memcpy(&value, source.data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> bytes(size_t count) {
    if (count > rest_.size()) {
      failed_ = true;
      return {};
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  size_t left() const { return rest_.size(); }
  bool failed() const { return failed_; }

 private:
  std::span<const std::byte> rest_;
  bool failed_ = false;
};

Status damaged(std::string_view why) {
  return {
      Code::kDataLoss,
      fmt::format("the checkpoint's optimizer state is damaged: {}; use another checkpoint", why)};
}

}  // namespace

OptimizerState::OptimizerState(std::string_view optimizer, DType dtype, size_t elements)
    : optimizer_(optimizer), dtype_(dtype), elements_(elements) {
  SLUICE_CHECK(kernel::checkArithmetic(dtype).isOk(), sluice::name(dtype));
  SLUICE_CHECK(optimizer.size() <= std::numeric_limits<uint8_t>::max(), optimizer);
}

size_t OptimizerState::bytesPerBuffer() const {
  return elements_ * sizeOf(kernel::accumulatorOf(dtype_));
}

std::span<std::byte> OptimizerState::buffer(size_t index) {
  SLUICE_CHECK(index < kMostBuffers, index);
  // A buffer appears when the optimizer first asks for it, as zeros. By hasBuffer() the
  // optimizer knows before whether this is its first step.
  if (index >= buffers_.size()) buffers_.resize(index + 1);
  Buffer& buffer = buffers_[index];
  if (!buffer.used) {
    buffer.bytes.resize(bytesPerBuffer());
    buffer.used = true;
  }
  return buffer.bytes;
}

std::span<const std::byte> OptimizerState::buffer(size_t index) const {
  SLUICE_CHECK(hasBuffer(index), index);
  return buffers_[index].bytes;
}

size_t OptimizerState::bufferBytes() const {
  size_t total = 0;
  for (const Buffer& buffer : buffers_) total += buffer.bytes.size();
  return total;
}

size_t OptimizerState::savedBytes() const {
  constexpr size_t kWords = 32;  // counts and lengths
  return kWords + optimizer_.size() + buffers_.size() + bufferBytes();
}

std::vector<std::byte> OptimizerState::toBytes() const {
  Writer out;
  out.reserve(savedBytes());
  out.number(kMagic);
  out.number(kVersion);
  out.number(static_cast<uint8_t>(dtype_));
  out.number(static_cast<uint64_t>(elements_));
  out.number(steps_);
  out.number(static_cast<uint8_t>(optimizer_.size()));
  out.bytes(std::as_bytes(std::span(optimizer_)));
  out.number(static_cast<uint8_t>(buffers_.size()));
  for (const Buffer& buffer : buffers_) {
    out.number(static_cast<uint8_t>(buffer.used));
    out.bytes(buffer.bytes);
  }
  return out.take();
}

Result<OptimizerState> OptimizerState::fromBytes(std::span<const std::byte> bytes) {
  Reader in(bytes);
  if (in.number<uint32_t>() != kMagic) return damaged("it begins with the bytes of something else");
  if (const auto version = in.number<uint8_t>(); version != kVersion) {
    return damaged(
        fmt::format("it has version {}, and this sluice reads version {}", version, kVersion));
  }
  const auto dtype = static_cast<DType>(in.number<uint8_t>());
  if (!kernel::checkArithmetic(dtype)) return damaged("its type of numbers is unknown");
  const auto elements = in.number<uint64_t>();
  const auto steps = in.number<uint64_t>();
  const auto nameBytes = in.bytes(in.number<uint8_t>());
  const auto buffers = in.number<uint8_t>();
  if (in.failed()) return damaged("it is too short");
  if (buffers > kMostBuffers) return damaged("it has too many buffers");
  // The number is judged before anything is multiplied by it. A product that overflows could
  // pass for a small one, and the buffers would be shorter than the loops over them.
  if (elements > std::numeric_limits<size_t>::max() / sizeof(double))
    return damaged("it is impossibly long");

  OptimizerState state({reinterpret_cast<const char*>(nameBytes.data()), nameBytes.size()}, dtype,
                       elements);
  state.steps_ = steps;
  // Lengths follow from the element count that was just read, and bytes() refuses what is not
  // there: a damaged count never makes this program reserve memory for it.
  for (size_t i = 0; i < buffers; ++i) {
    const auto used = in.number<uint8_t>();
    if (used > 1) return damaged("a buffer is neither there nor not");
    const auto content = in.bytes(used == 1 ? state.bytesPerBuffer() : 0);
    if (in.failed()) return damaged("it is too short");
    state.buffers_.push_back({used == 1, {content.begin(), content.end()}});
  }
  if (in.left() != 0) return damaged("it is too long");
  return state;
}

}  // namespace sluice::optimizer
