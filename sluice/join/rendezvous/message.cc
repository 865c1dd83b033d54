#include <sluice/join/rendezvous/message.h>

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::rendezvous {
namespace {

// 0 kind, 1 code, 2 key length (2), 4 id (4), 8 timeout in ms (4), 12 value length (4), 16 key,
// value. A timeout of 2^32 - 1 is kNoEnd.
constexpr uint32_t kNoEndMillis = std::numeric_limits<uint32_t>::max();
constexpr auto kLastCode = static_cast<uint8_t>(Code::kInternal);

template <typename Number>
void put(std::string& out, Number value) {
  for (size_t i = 0; i < sizeof value; ++i)
    out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

// REQUIRES: bytes.size() >= at + sizeof(Number)
template <typename Number>
Number get(std::string_view bytes, size_t at) {
  Number value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value |=
        static_cast<Number>(static_cast<Number>(static_cast<uint8_t>(bytes[at + i])) << (8 * i));
  }
  return value;
}

bool isKnown(uint8_t kind) {
  return (kind >= static_cast<uint8_t>(MessageKind::kJoin) &&
          kind <= static_cast<uint8_t>(MessageKind::kGather)) ||
         (kind >= static_cast<uint8_t>(MessageKind::kWelcome) &&
          kind <= static_cast<uint8_t>(MessageKind::kAnswer));
}

Status malformed(std::string_view what) {
  return {Code::kDataLoss, "a rendezvous message is malformed: " + std::string(what)};
}

}  // namespace

Status checkSizes(const std::string& key, const std::string& value) {
  if (key.empty() || key.size() > kLargestKeyBytes) {
    return {Code::kInvalidArgument, fmt::format("a key must have 1 to {} bytes; this one has {}",
                                                kLargestKeyBytes, key.size())};
  }
  if (value.size() > kLargestValueBytes) {
    return {Code::kInvalidArgument,
            fmt::format("the value of '{}' has {} bytes; it may have at most {}", key, value.size(),
                        kLargestValueBytes)};
  }
  return base::ok();
}

std::string encode(const Message& message) {
  return encodeHead(message, message.value.size()) + message.value;
}

std::string encodeHead(const Message& message, size_t valueBytes) {
  SLUICE_CHECK(message.key.size() <= kLargestKeyBytes, message.key.size());
  // Times are rounded up: a wait of less than a millisecond must not become no wait at all.
  const auto millis = std::chrono::ceil<std::chrono::milliseconds>(message.timeout).count();
  std::string out;
  out.push_back(static_cast<char>(message.kind));
  out.push_back(static_cast<char>(message.code));
  put(out, static_cast<uint16_t>(message.key.size()));
  put(out, message.id);
  put(out, static_cast<uint32_t>(std::clamp<int64_t>(millis, 0, kNoEndMillis)));
  put(out, static_cast<uint32_t>(valueBytes));
  out += message.key;
  return out;
}

Result<Message> decode(std::string_view bytes) {
  if (bytes.size() < kMessageOverheadBytes) return malformed("too short");
  const auto kind = static_cast<uint8_t>(bytes[0]);
  const auto code = static_cast<uint8_t>(bytes[1]);
  const auto keyBytes = get<uint16_t>(bytes, 2);
  const auto valueBytes = get<uint32_t>(bytes, 12);
  // Every number is checked before it becomes an enumerator or a length. The sender holds the
  // job key, but it may be another version.
  if (!isKnown(kind)) return malformed("unknown kind");
  if (code > kLastCode) return malformed("unknown code");
  if (keyBytes > kLargestKeyBytes) return malformed("key too long");
  if (bytes.size() != kMessageOverheadBytes + keyBytes + size_t{valueBytes})
    return malformed("wrong length");
  const auto millis = get<uint32_t>(bytes, 8);
  return Message{
      .kind = static_cast<MessageKind>(kind),
      .code = static_cast<Code>(code),
      .id = get<uint32_t>(bytes, 4),
      .timeout = millis == kNoEndMillis ? kNoEnd : Duration(std::chrono::milliseconds(millis)),
      .key = std::string(bytes.substr(kMessageOverheadBytes, keyBytes)),
      .value = std::string(bytes.substr(kMessageOverheadBytes + keyBytes))};
}

std::string encodeList(const std::vector<std::string>& values) {
  size_t total = 4;
  for (const auto& value : values) total += 4 + value.size();
  std::string out;
  out.reserve(total);
  put(out, static_cast<uint32_t>(values.size()));
  for (const auto& value : values) {
    put(out, static_cast<uint32_t>(value.size()));
    out += value;
  }
  return out;
}

Result<std::vector<std::string>> decodeList(std::string_view bytes) {
  if (bytes.size() < 4) return malformed("list too short");
  const auto count = get<uint32_t>(bytes, 0);
  bytes.remove_prefix(4);
  // Each value takes at least its length field: a count that cannot be true is not believed.
  if (count > bytes.size() / 4) return malformed("list count");
  std::vector<std::string> values;
  values.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    if (bytes.size() < 4) return malformed("list cut off");
    const auto size = get<uint32_t>(bytes, 0);
    bytes.remove_prefix(4);
    if (size > bytes.size()) return malformed("list value cut off");
    values.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  if (!bytes.empty()) return malformed("bytes after the list");
  return values;
}

}  // namespace sluice::rendezvous
