#include <sluice/base/text.h>

#include <array>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

TEST(Text, TrimAndCase) {
  EXPECT_EQ(trim("  a b\t\n"), "a b");
  EXPECT_EQ(trim(" \t "), "");
  EXPECT_EQ(lower("MiB"), "mib");
  EXPECT_EQ(upper("log-level"), "LOG-LEVEL");
}

TEST(Text, SplitKeepsEmptyPieces) {
  EXPECT_EQ(split("a,,b", ','), (std::vector<std::string_view>{"a", "", "b"}));
  EXPECT_EQ(split("", ','), (std::vector<std::string_view>{""}));
}

TEST(Text, NearestGuessesTyposAndOnlyTypos) {
  constexpr std::array<std::string_view, 3> kNames{"SLUICE_LOG", "SLUICE_CONFIG", "SLUICE_FABRIC"};
  EXPECT_EQ(nearest("SLUICE_LGO", kNames), "SLUICE_LOG");
  EXPECT_EQ(nearest("lgo", std::array<std::string_view, 2>{"dgc", "log"}),
            "log");  // swapped is one slip
  EXPECT_EQ(nearest("SLUICE_CONFG", kNames), "SLUICE_CONFIG");
  EXPECT_EQ(nearest("entirely different words", kNames), "");
}

TEST(Text, PrintableEscapesWhatATerminalWouldObey) {
  EXPECT_EQ(printable("rank 3: größe 5 \u20ac"), "rank 3: größe 5 \u20ac");
  EXPECT_EQ(printable("a\nb\tc"), "a\\nb\\tc");
  EXPECT_EQ(printable("\x1b[2Jx\r\x7f"), "\\x1b[2Jx\\x0d\\x7f");
  EXPECT_EQ(printable(std::string_view("\0a", 2)), "\\x00a");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b"
            "31m");                                         // U+009B begins an escape sequence too
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");           // no UTF-8
  EXPECT_EQ(printable("\xc0\x8a"), "\\xc0\\x8a");           // an overlong line break
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");  // half of a surrogate pair
}

}  // namespace
}  // namespace sluice::base
