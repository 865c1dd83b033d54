#include <sluice/join/membership/store_address.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::membership {
namespace {

TEST(StoreAddress, NamesServersWithTheirPorts) {
  const auto address = parseEtcdAddress("etcd://a, b:4000,[::1],[fe80::1]:1,10.0.0.1,a:2379");
  ASSERT_TRUE(address.isOk()) << address.status().toString();
  EXPECT_FALSE(address->hasTls);
  EXPECT_THAT(address->servers, testing::ElementsAre("a:2379", "b:4000", "[::1]:2379",
                                                     "[fe80::1]:1", "10.0.0.1:2379"));
  EXPECT_EQ(*parseEtcdAddress(address->toString()), *address);
  EXPECT_TRUE(parseEtcdAddress("etcds://etcd-0.example")->hasTls);
}

TEST(StoreAddress, AnythingElseIsRefused) {
  for (const std::string text : {"", "etcd://", "etcd://a,,b", "etcd://a:0", "etcd://a:65536",
                                 "etcd://a:x", "http://a:1", "a:2379", "etcd://a/b", "etcd://a b",
                                 "etcd://user@a", "etcd://[::1", "etcd://[::1]:0", "ETCD://a"})
    EXPECT_EQ(parseEtcdAddress(text).status().code(), Code::kInvalidArgument) << text;
}

TEST(StoreAddress, AUserInItIsRefusedAndNotRepeated) {
  for (const std::string text :
       {"etcd://root:hunter2@a", "etcds://a,root:hunter2@b:1", "hunter2@"}) {
    const Status status = parseEtcdAddress(text).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), testing::Not(testing::HasSubstr("hunter2")));
    EXPECT_THAT(status.message(), testing::HasSubstr("members-password-file"));
  }
}

}  // namespace
}  // namespace sluice::membership
