#include <sluice/algorithms/elastic/result_report.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace sluice::algorithms {
namespace {

constexpr Epoch kNow{9};

LastResult last(uint64_t steps, uint32_t made = 0, bool isEmpty = false) {
  return {.steps = steps, .made = Epoch{made}, .isEmpty = isEmpty};
}

RC_GTEST_PROP(ResultReport, BytesGiveBackTheReport, ()) {
  const auto least = *rc::gen::inRange<uint64_t>(0, 1'000'000);
  ResultReport report;
  for (const auto& [ahead, made, isEmpty] :
       *rc::gen::container<std::vector<std::tuple<uint64_t, uint32_t, bool>>>(
           rc::gen::tuple(rc::gen::inRange<uint64_t>(0, 100), rc::gen::inRange<uint32_t>(0, 10),
                          rc::gen::arbitrary<bool>())))
    report.push_back(last(least + ahead, made, isEmpty));
  const auto bytes = toBytes(report, kNow).value();
  RC_ASSERT(bytes.size() == reportBytes(report.size()));
  const auto back = reportFromBytes(bytes, report.size(), kNow).value();
  RC_ASSERT(back.size() == report.size());
  for (size_t s = 0; s < report.size(); ++s) {
    RC_ASSERT(back[s].steps == report[s].steps);
    RC_ASSERT(back[s].made == report[s].made);
    RC_ASSERT(back[s].isEmpty == report[s].isEmpty);
  }
}

RC_GTEST_PROP(ResultReport, AnyBytesAreAReportOrRefused, (const std::vector<uint8_t>& bytes)) {
  const auto report = reportFromBytes(std::as_bytes(std::span(bytes)), 3, kNow);
  const bool isRight =
      report.isOk() ? report->size() == 3 : report.status().code() == Code::kRefused;
  RC_ASSERT(isRight);
}

TEST(ResultReport, RefusesSlicesThatAreFarApart) {
  EXPECT_EQ(toBytes({last(1), last(300)}, kNow).status().code(), Code::kInvalidArgument);
}

TEST(ResultReport, TheLowestRankThatHasAResultHandsItOver) {
  const std::vector<ResultReport> reports{
      {last(4), last(7, 2)}, {last(5, 1), last(7, 2)}, {last(5, 1), last(7, 2)}};
  const auto agreed = agreeOn(reports).value();
  EXPECT_EQ(agreed[0].holder, Rank{1});
  EXPECT_EQ(agreed[0].result.steps, 5U);
  EXPECT_EQ(agreed[0].result.made, Epoch{1});
  EXPECT_EQ(agreed[1].holder, Rank{0});
  EXPECT_EQ(agreed[1].result.steps, 7U);
}

TEST(ResultReport, RefusesAMemberThatIsTwoResultsBehind) {
  const std::vector<ResultReport> reports{{last(4)}, {last(6)}};
  EXPECT_EQ(agreeOn(reports).status().message(),
            "rank 1 has 6 results of slice 0, and another member only 4");
}

}  // namespace
}  // namespace sluice::algorithms
