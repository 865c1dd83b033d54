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
  EXPECT_EQ(nearest("lgo", std::array<std::string_view, 2>{"dgc", "log"}), "log");  // swapped is one slip
  EXPECT_EQ(nearest("SLUICE_CONFG", kNames), "SLUICE_CONFIG");
  EXPECT_EQ(nearest("entirely different words", kNames), "");
}

}  // namespace
}  // namespace sluice::base
