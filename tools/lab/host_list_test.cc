#include <tools/lab/host_list.h>

#include <gtest/gtest.h>

namespace sluice::lab {
namespace {

TEST(HostList, ReadsNumbersAndRanges) {
  EXPECT_EQ(*parseHostList("2", 4), std::vector{2});
  EXPECT_EQ(*parseHostList("0-3", 4), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(*parseHostList("5,0-2", 6), (std::vector{5, 0, 1, 2}));
}

TEST(HostList, RefusesWhatTheLabDoesNotHave) {
  for (const char* text :
       {"", "x", "3-1", "1-", "-1", "0,,1", "0-1-2", "4", "0-4", "1,1", "0-2,1"}) {
    EXPECT_EQ(parseHostList(text, 4).status().code(), Code::kInvalidArgument) << text;
  }
  EXPECT_EQ(parseHostList("7", 4).status().message(),
            "there is no host 7: the lab has hosts 0 to 3");
}

}  // namespace
}  // namespace sluice::lab
