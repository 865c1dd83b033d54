#include <sluice/transport/fabric/ucx/ucs_status.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/transport/fabric/ucx/library.h>

namespace sluice::fabric::ucx {
namespace {

TEST(FromUcs, GivesEveryCodeOfUcxOneOfOurs) {
  ASSERT_TRUE(loadLibrary().isOk());
  struct Case {
    ucs_status_t ucs;
    Code code;
  };
  for (const Case& each :
       {Case{UCS_OK, Code::kOk}, Case{UCS_ERR_CONNECTION_RESET, Code::kPeerLost},
        Case{UCS_ERR_ENDPOINT_TIMEOUT, Code::kPeerLost}, Case{UCS_ERR_UNREACHABLE, Code::kPeerLost},
        Case{UCS_ERR_CANCELED, Code::kCancelled}, Case{UCS_ERR_TIMED_OUT, Code::kTimeout},
        Case{UCS_ERR_NO_DEVICE, Code::kUnavailable},
        Case{UCS_ERR_INVALID_ADDR, Code::kInvalidArgument},
        Case{UCS_ERR_MESSAGE_TRUNCATED, Code::kDataLoss},
        Case{UCS_ERR_NO_MEMORY, Code::kInternal}}) {
    EXPECT_EQ(fromUcs(each.ucs, "x").code(), each.code) << library().ucs_status_string(each.ucs);
  }
}

TEST(FromUcs, SaysWhatWasBeingDone) {
  ASSERT_TRUE(loadLibrary().isOk());
  EXPECT_THAT(fromUcs(UCS_ERR_NO_MEMORY, "connecting to rank 3").message(),
              testing::StartsWith("connecting to rank 3: UCX says \""));
}

}  // namespace
}  // namespace sluice::fabric::ucx
