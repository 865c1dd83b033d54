#include <sluice/secret/job_key.h>

#include <set>

#include <gtest/gtest.h>

namespace sluice::secret {
namespace {

std::string hexOf(const Key& key) {
  std::string hex;
  for (const std::byte b : key.bytes()) hex += fmt::format("{:02x}", std::to_integer<int>(b));
  return hex;
}

TEST(JobKey, IsPrintedAsItIsParsed) {
  const JobKey key = JobKey::random();
  EXPECT_TRUE(key.isSecret());
  EXPECT_EQ(key.toHex().size(), 64U);
  EXPECT_EQ(JobKey::parse(" " + key.toHex() + "\n").value(), key);
  EXPECT_NE(JobKey::random(), key);
}

TEST(JobKey, WhatIsNoKeyIsRefusedWithoutRepeatingIt) {
  const std::string good = JobKey::random().toHex();
  for (const std::string& bad :
       {std::string(), good.substr(1), good + "0", good.substr(0, 63) + "g",
        good.substr(0, 32) + " " + good.substr(33), std::string(64, '0')}) {
    const auto parsed = JobKey::parse(bad);
    EXPECT_FALSE(parsed.isOk()) << bad;
    EXPECT_EQ(parsed.status().message().find(good.substr(1, 8)), std::string::npos);
  }
}

TEST(JobKey, NoKeyIsTheSameEverywhereAndNoSecret) {
  EXPECT_FALSE(JobKey::none().isSecret());
  EXPECT_EQ(JobKey::none(), JobKey::none());
}

TEST(JobKey, EveryPurposeAndEveryKeyGivesAnotherSubKey) {
  const JobKey a = JobKey::random();
  const JobKey b = JobKey::random();
  std::set<std::string> seen{a.toHex(), b.toHex()};
  for (const auto purpose : {Purpose::kRendezvous, Purpose::kFabric, Purpose::kTlsPsk,
                             Purpose::kWireHeader, Purpose::kStoreNote, Purpose::kMembership}) {
    EXPECT_TRUE(seen.insert(hexOf(a.derive(purpose))).second) << name(purpose);
    EXPECT_TRUE(seen.insert(hexOf(b.derive(purpose))).second) << name(purpose);
    EXPECT_EQ(a.derive(purpose), JobKey::parse(a.toHex()).value().derive(purpose));
  }
}

TEST(JobKey, EveryJobGivesOtherSubKeys) {
  const JobKey key = JobKey::random();
  const JobNonce nonce = randomNonce();
  const JobKey job = key.forJob(nonce);
  EXPECT_EQ(job, key.forJob(nonce));
  EXPECT_TRUE(job.isSecret());
  EXPECT_FALSE(JobKey::none().forJob(nonce).isSecret());
  EXPECT_NE(job, key.forJob(randomNonce()));
  EXPECT_NE(job, JobKey::random().forJob(nonce));
  EXPECT_NE(job.derive(Purpose::kFabric), key.derive(Purpose::kFabric));
}

// Other versions of sluice must derive the same keys: this vector may never change. It is what
// Python's hashlib.blake2b gives with the purpose as salt and the context as person.
TEST(JobKey, DerivationIsPinned) {
  const std::string ones(64, '1');
  EXPECT_EQ(hexOf(JobKey::parse(ones).value().derive(Purpose::kRendezvous)),
            "606aebaf5b8abc09c1e520357df3cd1c1d4b60db8cc662efb614b6cb2f4650d2");
  // hashlib.blake2b(b"sluice job" + bytes(16), digest_size=32, key=bytes.fromhex("11" * 32))
  EXPECT_EQ(JobKey::parse(ones).value().forJob({}).toHex(),
            "8ef4609173148d4d3d2f7d6de02f52e9bc044cb2c7d14d853ef5ba2c92fb784a");
}

}  // namespace
}  // namespace sluice::secret
