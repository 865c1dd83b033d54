#include <sluice/base/text.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include <fmt/format.h>

namespace sluice::base {
namespace {

// Levenshtein's distance, with swaps: the fewest edits that turn `a` into `b`. An edit inserts,
// deletes or replaces one character, or swaps two neighbours.
size_t editDistance(std::string_view a, std::string_view b) {
  // Three rows of the table are enough, since a swap looks back by two.
  std::vector<size_t> beforeLast(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    beforeLast.swap(last);
    last.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      const bool isSwapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (isSwapped) row[j] = std::min(row[j], beforeLast[j - 2] + 1);
    }
  }
  return row.back();
}

template <int (*Convert)(int)>
std::string convert(std::string_view text) {
  std::string result(text);
  // The functions of <cctype> are undefined for negative values, which char may have.
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(Convert(c)); });
  return result;
}

// The length of the UTF-8 sequence at the start of `text`; 0 if it is invalid, or a
// control character.
size_t printableLength(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  // Other ranks' texts reach terminals and logs. Only well-formed UTF-8 without control
  // characters passes: an overlong form or a surrogate could hide a control character from a
  // check that comes later.
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t length = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  const bool isControl = first == 0xc2 && byte(1) < 0xa0;  // U+0080 to U+009F
  const bool isOverlong = (first == 0xe0 && byte(1) < 0xa0) || (first == 0xf0 && byte(1) < 0x90);
  const bool isNoCharacter =
      (first == 0xed && byte(1) >= 0xa0) || (first == 0xf4 && byte(1) >= 0x90);
  return isControl || isOverlong || isNoCharacter ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t length = printableLength(text);
    if (length > 0) {
      result += text.substr(0, length);
    } else if (text.front() == '\n') {
      result += "\\n";
    } else if (text.front() == '\t') {
      result += "\\t";
    } else {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text.front()));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string lower(std::string_view text) {
  return convert<std::tolower>(text);
}
std::string upper(std::string_view text) {
  return convert<std::toupper>(text);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (true) {
    const auto at = text.find(separator);
    pieces.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return pieces;
    text.remove_prefix(at + 1);
  }
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  // A guess that differs in more than a third of the letters would puzzle more than help.
  size_t best = std::max<size_t>(2, word.size() / 3) + 1;
  std::string_view found;
  for (const auto candidate : candidates) {
    const size_t distance = editDistance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace sluice::base
