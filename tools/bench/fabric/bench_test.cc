#include <tools/bench/fabric/bench.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sluice::bench {
namespace {

TEST(FabricFigures, AreMediansInJson) {
  FabricFigures figures{.samples = {{"sluice_gbit", {30, 10, 20}}, {"ucx_gbit", {}}},
                        .derived = {{"over_ucx", 0}, {"over_iperf3", 0.75}},
                        .options = {.which = FabricCase::kPair, .fabric = "tcp", .encrypt = "off"}};
  EXPECT_EQ(toJson(figures).dump(),
            R"({"case":"pair","fabric":"tcp","encrypt":"off","rate":"unshaped","sluice_gbit":20.0,)"
            R"("ucx_gbit":null,"over_ucx":null,"over_iperf3":0.75})");
  figures.options.rate = Rate{1'200'000'000};
  EXPECT_EQ(toJson(figures)["rate"].get<std::string>(), "1.2gbit");
}

TEST(FabricFigures, ShowTheirSpreadToPeople) {
  const FabricFigures figures{
      .samples = {{"fifo_ms", {300, 280}}, {"p50_ms", {4, 6, 5}}},
      .derived = {{"p99_ms", 6}},
      .beside = "fifo / p50 58.0",
      .options = {.which = FabricCase::kOvertake, .fabric = "tcp", .encrypt = "on"}};
  EXPECT_EQ(toText(figures),
            "overtake on tcp, encrypt on, unshaped:  fifo_ms 290.00 (280.00 to 300.00, 2 samples)  "
            "p50_ms 5.00 "
            "(4.00 to 6.00, 3 samples)  p99_ms 6.000  fifo / p50 58.0");
}

}  // namespace
}  // namespace sluice::bench
