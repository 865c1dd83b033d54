#include <sluice/join/membership/talk/member_message.h>

#include <sluice/base/byte_io.h>

namespace sluice::members {

std::vector<std::byte> encode(const Word& word) {
  base::ByteWriter writer;
  writer.reserve(word.bytes.size() + word.key.size() + 64);
  writer.number(static_cast<uint8_t>(word.kind));
  writer.number(static_cast<uint64_t>(index(word.epoch)));
  writer.number(word.number);
  writer.number(word.total);
  writer.number(word.offset);
  writer.text(word.key);
  writer.text(word.bytes);
  return std::move(writer).take();
}

Result<Word> decodeWord(std::span<const std::byte> bytes) {
  base::ByteReader reader(bytes);
  Word word;
  const auto kind = reader.number<uint8_t>();
  const auto epoch = reader.number<uint64_t>();
  word.number = reader.number<uint64_t>();
  word.total = reader.number<uint64_t>();
  word.offset = reader.number<uint64_t>();
  word.key = reader.text(kLongestKeyBytes);
  word.bytes = reader.text(kPartBytes);
  const bool fits = !reader.failed() && reader.atEnd() &&
                    kind <= static_cast<uint8_t>(WordKind::kHave) && epoch <= UINT32_MAX;
  if (!fits) return Status(Code::kRefused, "a member has sent a word that is malformed");
  word.kind = static_cast<WordKind>(kind);
  word.epoch = Epoch{static_cast<uint32_t>(epoch)};
  return word;
}

}  // namespace sluice::members
