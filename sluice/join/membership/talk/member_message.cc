#include <sluice/join/membership/talk/member_message.h>

#include <sluice/base/byte_io.h>

namespace sluice::membership {

std::vector<std::byte> encode(const MemberMessage& message) {
  base::ByteWriter writer;
  writer.reserve(message.bytes.size() + message.key.size() + 64);
  writer.number(static_cast<uint8_t>(message.kind));
  writer.number(static_cast<uint64_t>(index(message.epoch)));
  writer.number(message.number);
  writer.number(message.total);
  writer.number(message.offset);
  writer.text(message.key);
  writer.text(message.bytes);
  return std::move(writer).take();
}

Result<MemberMessage> decodeMessage(std::span<const std::byte> bytes) {
  base::ByteReader reader(bytes);
  MemberMessage message;
  const auto kind = reader.number<uint8_t>();
  const auto epoch = reader.number<uint64_t>();
  message.number = reader.number<uint64_t>();
  message.total = reader.number<uint64_t>();
  message.offset = reader.number<uint64_t>();
  message.key = reader.text(kLongestKeyBytes);
  message.bytes = reader.text(kPartBytes);
  const bool fits = !reader.failed() && reader.atEnd() &&
                    kind <= static_cast<uint8_t>(MemberMessageKind::kHave) && epoch <= UINT32_MAX;
  if (!fits) return Status(Code::kRefused, "a member has sent a word that is malformed");
  message.kind = static_cast<MemberMessageKind>(kind);
  message.epoch = Epoch{static_cast<uint32_t>(epoch)};
  return message;
}

}  // namespace sluice::membership
