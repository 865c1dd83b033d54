#include <sluice/transport/wire/header.h>

#include <sodium.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::wire {
namespace {

// The offset of each field. A field ends where the next begins, so that every byte belongs to one.
//
//   offset  bytes  field
constexpr size_t kMagicAt = 0;         // 4
constexpr size_t kVersionAt = 4;       // 2
constexpr size_t kFlagsAt = 6;         // 2
constexpr size_t kEpochAt = 8;         // 4
constexpr size_t kSourceAt = 12;       // 4
constexpr size_t kSequenceAt = 16;     // 8
constexpr size_t kStepAt = 24;         // 8
constexpr size_t kTensorAt = 32;       // 4
constexpr size_t kSliceAt = 36;        // 4
constexpr size_t kStageAt = 40;        // 1
constexpr size_t kDTypeAt = 41;        // 1
constexpr size_t kLaneAt = 42;         // 1
constexpr size_t kReservedAt = 43;     // 1, zero
constexpr size_t kDestinationAt = 44;  // 4
constexpr size_t kLengthAt = 48;       // 8
constexpr size_t kCheckAt = 56;        // 16
constexpr size_t kCheckBytes = 16;
static_assert(kVersionAt == kMagicAt + sizeof(uint32_t));
static_assert(kFlagsAt == kVersionAt + sizeof(uint16_t));
static_assert(kEpochAt == kFlagsAt + sizeof(Flags));
static_assert(kSourceAt == kEpochAt + sizeof(Epoch));
static_assert(kSequenceAt == kSourceAt + sizeof(Rank));
static_assert(kStepAt == kSequenceAt + sizeof(uint64_t));
static_assert(kTensorAt == kStepAt + sizeof(Step));
static_assert(kSliceAt == kTensorAt + sizeof(TensorId));
static_assert(kStageAt == kSliceAt + sizeof(SliceId));
static_assert(kDTypeAt == kStageAt + sizeof(Stage));
static_assert(kLaneAt == kDTypeAt + sizeof(DType));
static_assert(kReservedAt == kLaneAt + sizeof(Lane));
static_assert(kDestinationAt == kReservedAt + 1);
static_assert(kLengthAt == kDestinationAt + sizeof(Rank));
static_assert(kCheckAt == kLengthAt + sizeof(uint64_t));
static_assert(kHeaderBytes == kCheckAt + kCheckBytes);
static_assert(std::endian::native == std::endian::little,
              "put() and get() copy numbers as they lie");

constexpr uint32_t kMagic = 0x43554c53;  // "SLUC"
constexpr uint16_t kKnownFlags = static_cast<uint16_t>(
    Flags::kGoodbye | Flags::kHeartbeat | Flags::kEncoded | Flags::kTaken | Flags::kFree);

template <typename T>
void put(HeaderBytes& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

template <typename T>
T get(std::span<const std::byte, kHeaderBytes> bytes, size_t at) {
  T value{};
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// Keyed BLAKE2b cut to 16 bytes. It is a pseudo-random function by design (no HMAC around it, so
// one pass instead of two), and a forger has one guess in 2^128 per connection, since a wrong check
// ends it.
std::array<unsigned char, kCheckBytes> checkOf(const std::byte* header, const secret::Key& key) {
  static_assert(kCheckBytes >= crypto_generichash_BYTES_MIN);
  std::array<unsigned char, kCheckBytes> check{};
  crypto_generichash(check.data(), check.size(), reinterpret_cast<const unsigned char*>(header),
                     kCheckAt, reinterpret_cast<const unsigned char*>(key.bytes().data()),
                     key.bytes().size());
  return check;
}

}  // namespace

std::string_view name(Lane lane) {
  switch (lane) {
    case Lane::kControl: return "control";
    case Lane::kUrgent: return "urgent";
    case Lane::kBulk: return "bulk";
  }
  return "?";
}

std::string Header::toString() const {
  return fmt::format("epoch {}, {} -> {} {} #{}: step {} tensor {} slice {} {} {} {} B",
                     index(epoch), index(source), index(destination), wire::name(lane), sequence,
                     index(step), index(tensor), index(slice), sluice::name(stage),
                     sluice::name(dtype), length);
}

HeaderBytes seal(const Header& header, const secret::Key& key) {
  SLUICE_CHECK(header.length <= kMaxLength, header.length);
  HeaderBytes bytes{};
  put(bytes, kMagicAt, kMagic);
  put(bytes, kVersionAt, kVersion);
  put(bytes, kFlagsAt, header.flags);
  put(bytes, kEpochAt, header.epoch);
  put(bytes, kSourceAt, header.source);
  put(bytes, kSequenceAt, header.sequence);
  put(bytes, kStepAt, header.step);
  put(bytes, kTensorAt, header.tensor);
  put(bytes, kSliceAt, header.slice);
  put(bytes, kStageAt, header.stage);
  put(bytes, kDTypeAt, header.dtype);
  put(bytes, kLaneAt, header.lane);
  put(bytes, kDestinationAt, header.destination);
  put(bytes, kLengthAt, header.length);
  put(bytes, kCheckAt, checkOf(bytes.data(), key));
  return bytes;
}

std::variant<Header, Drop> open(std::span<const std::byte, kHeaderBytes> bytes,
                                const secret::Key& key, const Expectations& expected) {
  // Magic and version come before the check, although a stranger can forge both: they tell a
  // wrong program or release from a wrong key, and the user needs to know which. Everything
  // after the check was written by a holder of the key, so a fault there is one of our own
  // programs.
  if (get<uint32_t>(bytes, kMagicAt) != kMagic) return Drop::kBadMagic;
  if (get<uint16_t>(bytes, kVersionAt) != kVersion) return Drop::kBadVersion;
  if (sodium_memcmp(checkOf(bytes.data(), key).data(), bytes.data() + kCheckAt, kCheckBytes) != 0) {
    return Drop::kBadCheck;
  }
  Header header;
  // The length is the first field to be judged, since a stream can only go on behind a payload
  // whose length is believable. From the source on the reasons no longer end the stream
  // (endsStream), and their order only decides which is named.
  header.length = get<uint64_t>(bytes, kLengthAt);
  if (header.length > std::min(expected.maxLength, kMaxLength)) return Drop::kTooLong;
  header.sequence = get<uint64_t>(bytes, kSequenceAt);
  if (header.sequence != expected.sequence) return Drop::kOutOfSequence;
  header.source = get<Rank>(bytes, kSourceAt);
  if (header.source != expected.source) return Drop::kWrongSource;
  header.destination = get<Rank>(bytes, kDestinationAt);
  if (header.destination != expected.destination) return Drop::kWrongDestination;
  header.lane = get<Lane>(bytes, kLaneAt);
  if (header.lane != expected.lane) return Drop::kWrongLane;
  header.epoch = get<Epoch>(bytes, kEpochAt);
  if (header.epoch != expected.epoch) return Drop::kWrongEpoch;
  const auto flags = get<uint16_t>(bytes, kFlagsAt);
  if ((flags & ~kKnownFlags) != 0) return Drop::kUnknownFlags;
  header.flags = static_cast<Flags>(flags);
  if (has(header.flags, Flags::kGoodbye) && header.length > 0) return Drop::kTooLong;
  // A number becomes an enumerator only after it is known to be one.
  const auto stage = get<uint8_t>(bytes, kStageAt);
  if (stage >= kPath.size()) return Drop::kUnknownStage;
  header.stage = static_cast<Stage>(stage);
  const auto dtype = get<uint8_t>(bytes, kDTypeAt);
  const size_t elementBytes = sizeOf(static_cast<DType>(dtype));  // 0 for one that does not exist
  if (elementBytes == 0) return Drop::kUnknownDType;
  header.dtype = static_cast<DType>(dtype);
  if (!has(header.flags, Flags::kEncoded) && header.length % elementBytes != 0)
    return Drop::kRaggedLength;
  if (get<uint8_t>(bytes, kReservedAt) != 0) return Drop::kReserved;
  header.step = get<Step>(bytes, kStepAt);
  header.tensor = get<TensorId>(bytes, kTensorAt);
  header.slice = get<SliceId>(bytes, kSliceAt);
  return header;
}

uint64_t lengthToSkip(std::span<const std::byte, kHeaderBytes> bytes) {
  const auto length = get<uint64_t>(bytes, kLengthAt);
  SLUICE_CHECK(length <= kMaxLength, length);
  return length;
}

}  // namespace sluice::wire
