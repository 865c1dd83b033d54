#include <sluice/base/net/address.h>

#include <gtest/gtest.h>

namespace sluice::net {
namespace {

TEST(Address, IsPrintedAsItIsParsed) {
  for (const char* text : {"10.0.0.1:29500", "[::1]:1", "[2001:db8::5]:65535", "127.0.0.1:0"}) {
    EXPECT_EQ(Address::parse(text).value().toString(), text);
  }
  EXPECT_EQ(Address::parse("[::ffff:10.0.0.1]:5").value().toString(), "10.0.0.1:5");
}

TEST(Address, WhatIsNoneIsRefused) {
  for (const char* text : {"", ":", "10.0.0.1", "10.0.0.1:", ":80", "10.0.0.1:65536", "10.0.0.1:-1",
                           "host:80", "::1:80", "[10.0.0.1]:80", "[]:80", "10.0.0.1:80x"}) {
    EXPECT_FALSE(Address::parse(text).isOk()) << text;
  }
}

TEST(Address, KnowsLoopback) {
  EXPECT_TRUE(Address::parse("127.9.9.9:1").value().isLoopback());
  EXPECT_TRUE(Address::parse("[::1]:1").value().isLoopback());
  EXPECT_TRUE(Address::parse("[::ffff:127.0.0.1]:1").value().isLoopback());
  EXPECT_FALSE(Address::parse("10.0.0.1:1").value().isLoopback());
  EXPECT_FALSE(Address::wildcard(AF_INET, 1).isLoopback());
  EXPECT_FALSE(Address::wildcard(AF_INET6, 1).isLoopback());
  EXPECT_FALSE(Address().isLoopback());
  EXPECT_FALSE(Address().isSet());
}

TEST(Address, NamesAreResolved) {
  const auto found = Address::resolve("localhost", 80);
  ASSERT_TRUE(found.isOk());
  EXPECT_TRUE(found->front().isLoopback());
  EXPECT_EQ(found->front().port(), 80);
  EXPECT_EQ(Address::resolve("no-such-host.invalid", 80).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace sluice::net
