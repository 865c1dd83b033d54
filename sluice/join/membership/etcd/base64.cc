#include <sluice/join/membership/etcd/base64.h>

#include <array>
#include <cstdint>

namespace sluice::membership {
namespace {

constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> makeDigitValues() {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  for (size_t i = 0; i < kBase64Digits.size(); ++i)
    values[static_cast<unsigned char>(kBase64Digits[i])] = static_cast<int8_t>(i);
  return values;
}
constexpr std::array<int8_t, 256> kDigitValues = makeDigitValues();

uint32_t byteAt(std::string_view bytes, size_t i) {
  return i < bytes.size() ? static_cast<unsigned char>(bytes[i]) : 0;
}

}  // namespace

std::string toBase64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const uint32_t group =
        byteAt(bytes, i) << 16U | byteAt(bytes, i + 1) << 8U | byteAt(bytes, i + 2);
    text.push_back(kBase64Digits[group >> 18U]);
    text.push_back(kBase64Digits[group >> 12U & 63U]);
    text.push_back(i + 1 < bytes.size() ? kBase64Digits[group >> 6U & 63U] : '=');
    text.push_back(i + 2 < bytes.size() ? kBase64Digits[group & 63U] : '=');
  }
  return text;
}

std::optional<std::string> fromBase64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t group = 0;
    for (size_t digit = i; digit < i + 4; ++digit) {
      const bool isPadding = digit >= text.size() - padding;
      const int value = isPadding ? 0 : kDigitValues[static_cast<unsigned char>(text[digit])];
      if (value < 0) return std::nullopt;
      group = group << 6U | static_cast<uint32_t>(value);
    }
    for (const uint32_t shift : {16U, 8U, 0U}) bytes.push_back(static_cast<char>(group >> shift));
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

}  // namespace sluice::membership
