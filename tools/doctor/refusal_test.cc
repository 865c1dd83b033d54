#include <tools/doctor/refusal.h>

#include <gtest/gtest.h>

namespace sluice::doctor {
namespace {

TEST(Refusal, ErrorsOfTheRendezvousHaveCodes) {
  HostReport own;
  own.masterName = "head";
  own.master = {"10.0.0.1"};
  const std::vector<std::pair<Status, Fault>> cases{
      {Status(Code::kPermissionDenied,
              "rank 2 does not trust rank 0 at 10.0.0.1:29500: it does not hold the same job key "
              "(SLUICE_JOB_KEY_FILE)"),
       Fault::kWrongKey},
      {Status(Code::kRefused, "it uses version 3 of the handshake, and this side version 2"),
       Fault::kOtherVersion},
      {Status(Code::kInvalidArgument,
              "no network interface is named 'eth9' or lies in that "
              "network; this host has: lo (127.0.0.1)"),
       Fault::kWrongInterface},
      {Status(Code::kRefused, "world size is 4 on rank 3 but 8 on rank 0"), Fault::kOtherSettings},
      {Status(Code::kTimeout,
              "rank 2 did not reach rank 0 at 10.0.0.1:29500 in 9.75s: no answer; "
              "is rank 0 running, and may its port be reached?"),
       Fault::kBlockedPort},
  };
  for (const auto& [error, fault] : cases) {
    const auto finding = explainRefusal(error, 2, own, {"10.0.0.3"});
    ASSERT_TRUE(finding.has_value()) << error.message();
    EXPECT_EQ(name(finding->fault), name(fault)) << error.message();
    EXPECT_NE(finding->evidence.find(error.message()), std::string::npos);
  }
}

TEST(Refusal, AHostThatTakesItselfForRank0HasAResolverThatLies) {
  const Status late(Code::kTimeout,
                    "rank 2 did not reach rank 0 at 127.0.1.1:29500 in 9.75s: "
                    "connection refused");
  HostReport own;
  own.masterName = "head";
  for (const std::string address : {"127.0.1.1", "10.0.0.3"}) {
    own.master = {address};
    EXPECT_EQ(explainRefusal(late, 2, own, {"10.0.0.3"})->fault, Fault::kResolver) << address;
  }
  own.master = {"127.0.0.1"};
  own.localRank = 1;  // rank 0 may well be on this host
  EXPECT_EQ(explainRefusal(late, 2, own, {"10.0.0.3"})->fault, Fault::kBlockedPort);
}

TEST(Refusal, OtherErrorsStayAsTheyAre) {
  HostReport own;
  own.master = {"10.0.0.1"};
  EXPECT_FALSE(explainRefusal(Status(Code::kInternal, "cannot open a socket"), 2, own, {}));
}

}  // namespace
}  // namespace sluice::doctor
