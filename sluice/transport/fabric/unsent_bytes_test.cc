#include <sluice/transport/fabric/unsent_bytes.h>

#include <gtest/gtest.h>

namespace sluice::fabric {
namespace {

TEST(UnsentBytes, AreSharedByAllConnectionsWithinLimits) {
  EXPECT_EQ(unsentBytesPerConnection(0), kMostUnsentBytes);
  EXPECT_EQ(unsentBytesPerConnection(1), kMostUnsentBytes);
  EXPECT_EQ(unsentBytesPerConnection(3), kMostUnsentBytes);
  EXPECT_EQ(unsentBytesPerConnection(15), kUnsentBytes / 15);
  EXPECT_EQ(unsentBytesPerConnection(1023), kFewestUnsentBytes);
  EXPECT_EQ(unsentBytesPerConnection(3, 8), kMostUnsentBytes / 8);
  EXPECT_EQ(unsentBytesPerConnection(15, 64), kFewestShrunkBytes);
}

}  // namespace
}  // namespace sluice::fabric
