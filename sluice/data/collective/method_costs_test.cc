#include <sluice/data/collective/method_costs.h>

#include <gtest/gtest.h>

namespace sluice::collective {
namespace {

TEST(MethodCosts, AreReadAsTheyAreWritten) {
  const auto costs =
      parseMethodCosts("direct=220us+2.53ns, ring=0.5ms+2ns,halving-doubling=0us+3ns");
  ASSERT_TRUE(costs.isOk()) << costs.status().toString();
  ASSERT_EQ(costs->size(), 3);
  EXPECT_EQ((*costs)[1].method, Method::kRing);
  EXPECT_DOUBLE_EQ((*costs)[1].start, 500e-6);
  EXPECT_DOUBLE_EQ((*costs)[0].perByte, 2.53e-9);
  EXPECT_EQ(toText(*costs), "direct=220us+2.53ns,ring=500us+2ns,halving-doubling=0us+3ns");
  EXPECT_EQ(toText(*parseMethodCosts(toText(*costs))), toText(*costs));
  for (const char* bad : {"", "direct", "direct=1us", "direct+1ns", "tree=1us+1ns", "direct=1+1ns",
                          "direct=-1us+1ns", "direct=1us+xns", "direct=1us+1ns,"}) {
    EXPECT_FALSE(parseMethodCosts(bad).isOk()) << bad;
  }
}

TEST(MethodCosts, TheCheapestDependsOnTheSize) {
  const auto costs =
      parseMethodCosts("direct=100us+4ns,ring=400us+2ns,halving-doubling=100us+4ns").value();
  EXPECT_EQ(cheapest(costs, 0), Method::kDirect) << "the first of two that cost the same";
  EXPECT_EQ(cheapest(costs, 149'999), Method::kDirect);
  EXPECT_EQ(cheapest(costs, 150'001), Method::kRing);
}

}  // namespace
}  // namespace sluice::collective
