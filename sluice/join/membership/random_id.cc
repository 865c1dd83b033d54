#include <sluice/join/membership/random_id.h>

#include <fmt/format.h>

#include <sluice/base/text.h>
#include <sluice/secret/key.h>

namespace sluice::membership {
namespace {

int valueOfDigit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

RandomId RandomId::random() {
  RandomId id;
  secret::fillRandom(id.bytes_);
  return id;
}

Result<RandomId> RandomId::parse(std::string_view hex) {
  RandomId id;
  bool isHex = hex.size() == 2 * kIdBytes;
  // All digits are looked at by one rule, so an id has exactly one text: upper case is refused,
  // and two texts are equal if and only if the ids are.
  for (size_t i = 0; isHex && i < kIdBytes; ++i) {
    const int high = valueOfDigit(hex[2 * i]);
    const int low = valueOfDigit(hex[2 * i + 1]);
    isHex = high >= 0 && low >= 0;
    if (isHex) id.bytes_[i] = static_cast<std::byte>(high * 16 + low);
  }
  if (!isHex)
    return Status(Code::kInvalidArgument,
                  fmt::format("invalid id '{}'; it must have {} hexadecimal digits",
                              base::printable(hex.substr(0, 64)), 2 * kIdBytes));
  return id;
}

std::string RandomId::toString() const {
  std::string hex;
  for (const std::byte byte : bytes_) hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  return hex;
}

}  // namespace sluice::membership
