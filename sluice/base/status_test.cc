#include <sluice/base/status.h>

#include <cerrno>

#include <gtest/gtest.h>

namespace sluice::base {
namespace {

TEST(Status, SuccessIsTheDefaultAndPrintsItself) {
  EXPECT_TRUE(Status().isOk());
  EXPECT_EQ(Status().toString(), "ok");
  EXPECT_EQ(Status().message(), "");
}

TEST(Status, ErrorsNameTheirKindAndKeepTheirText) {
  const Status lost(Code::kPeerLost, "rank 3 is gone");
  EXPECT_FALSE(lost.isOk());
  EXPECT_EQ(lost.code(), Code::kPeerLost);
  EXPECT_EQ(lost.toString(), "peer lost: rank 3 is gone");
  EXPECT_EQ(lost.withContext("step 7").toString(), "peer lost: step 7: rank 3 is gone");
  EXPECT_TRUE(Status().withContext("step 7").isOk());
}

TEST(Status, ErrnoBecomesACode) {
  EXPECT_EQ(fromErrno("open", ENOENT).toString(), "not found: open: No such file or directory");
  EXPECT_EQ(fromErrno("bind", EACCES).code(), Code::kPermissionDenied);
  EXPECT_EQ(fromErrno("recv", ECONNRESET).code(), Code::kPeerLost);
  EXPECT_EQ(fromErrno("connect", ECONNREFUSED).code(), Code::kUnavailable);
}

Result<int> half(int number) {
  if (number % 2 != 0) return Status(Code::kInvalidArgument, "odd");
  return number / 2;
}

Result<int> quarter(int number) {
  SLUICE_ASSIGN_OR_RETURN(const int once, half(number));
  SLUICE_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Status isFourfold(int number) {
  SLUICE_RETURN_IF_ERROR(quarter(number).status());
  return ok();
}

TEST(Result, CarriesAValueOrTheReason) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_TRUE(isFourfold(4).isOk());
  EXPECT_EQ(isFourfold(5).code(), Code::kInvalidArgument);
}

TEST(ResultDeathTest, TakingTheValueOfAnErrorIsABug) {
  EXPECT_DEATH(half(3).value(), "odd");
}

TEST(CheckDeathTest, PrintsConditionValuesAndPlace) {
  const int have = 3;
  EXPECT_DEATH(SLUICE_CHECK(have == 4, have, "of", 4),
               "check failed: have == 4 \\[3\\] \\[of\\] \\[4\\] at .*status_test.cc");
}

}  // namespace
}  // namespace sluice::base
