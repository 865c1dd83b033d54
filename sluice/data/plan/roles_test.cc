#include <sluice/data/plan/roles.h>

#include <gtest/gtest.h>

namespace sluice::plan {
namespace {

TEST(Roles, ServersAreParsed) {
  const struct {
    std::string_view servers;
    uint32_t world;
    std::string_view expected;
  } cases[] = {
      {"all", 1, "1 ranks: servers 0, workers 0"},
      {"all", 4096, "4096 ranks: servers 0-4095, workers 0-4095"},
      {"1", 4, "4 ranks: servers 0, workers 0-3"},
      {"4", 4, "4 ranks: servers 0-3, workers 0-3"},
      {"dedicated:1", 4, "4 ranks: servers 3, workers 0-2"},
      {"dedicated:3", 4, "4 ranks: servers 1-3, workers 0"},
  };
  for (const auto& c : cases) {
    const auto roles = parseRoles(c.servers, c.world);
    ASSERT_TRUE(roles.isOk()) << roles.status().toString();
    EXPECT_EQ(roles->toString(), c.expected);
    EXPECT_TRUE(check(*roles).isOk());
  }
}

TEST(Roles, MistakesSayWhatIsAccepted) {
  const struct {
    std::string_view servers;
    uint32_t world;
    std::string_view message;
  } cases[] = {
      {"some", 4,
       "--servers 'some' is not understood; write all, K or dedicated:K, where K is a number"},
      {"", 4, "--servers '' is not understood; write all, K or dedicated:K, where K is a number"},
      {"dedicated:", 4,
       "--servers 'dedicated:' is not understood; write all, K or dedicated:K, where K is a "
       "number"},
      {"0", 4, "--servers 0: a job of 4 ranks can have 1 to 4 servers"},
      {"5", 4, "--servers 5: a job of 4 ranks can have 1 to 4 servers"},
      {"-1", 4, "--servers -1: a job of 4 ranks can have 1 to 4 servers"},
      {"dedicated:4", 4,
       "--servers dedicated:4: a job of 4 ranks can have 1 to 3 dedicated servers"},
      {"all", 0, "a job cannot have 0 ranks; give 1 to 1048576"},
  };
  for (const auto& c : cases)
    EXPECT_EQ(parseRoles(c.servers, c.world).status().message(), c.message);
}

TEST(Roles, PositionsCountWithinTheRole) {
  const auto roles = *parseRoles("dedicated:2", 5);
  EXPECT_TRUE(roles.isServer(Rank{3}));
  EXPECT_FALSE(roles.isWorker(Rank{3}));
  EXPECT_FALSE(roles.isServer(Rank{2}));
  EXPECT_EQ(roles.serverPosition(Rank{4}), 1U);
  EXPECT_EQ(roles.workerPosition(Rank{2}), 2U);
}

TEST(Roles, WhatCameFromElsewhereIsChecked) {
  const std::vector<Rank> both{Rank{0}, Rank{1}};
  EXPECT_TRUE(check(Roles{2, both, {Rank{1}}}).isOk());
  EXPECT_EQ(check(Roles{2, {}, both}).message(), "the job has no server");
  EXPECT_EQ(check(Roles{2, both, {}}).message(), "the job has no worker");
  EXPECT_EQ(check(Roles{2, {Rank{1}, Rank{0}}, both}).message(),
            "the servers are not in ascending order");
  EXPECT_EQ(check(Roles{2, both, {Rank{1}, Rank{1}}}).message(),
            "the workers are not in ascending order");
  EXPECT_EQ(check(Roles{1, both, both}).message(), "server 1 is outside a job of 1 ranks");
  EXPECT_EQ(check(Roles{3, both, both}).message(), "rank 2 neither serves nor trains");
}

}  // namespace
}  // namespace sluice::plan
