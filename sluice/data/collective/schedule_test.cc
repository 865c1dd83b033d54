// Plays the schedules of all ranks against each other, without data: a part is the set of ranks
// that are in its sum.
#include <sluice/data/collective/schedule.h>

#include <deque>
#include <map>
#include <set>

#include <gtest/gtest.h>

namespace sluice::collective {
namespace {

using Sums = std::vector<std::multiset<uint32_t>>;  // by part: the ranks in its sum

struct Player {
  Schedule schedule;
  size_t round = 0;
  bool hasSent = false;
  Sums sums;
};

using Inbox = std::map<std::pair<uint32_t, uint32_t>,
                       std::deque<std::pair<Parts, Sums>>>;  // by sender and receiver

// Lets a player do its next action; true iff it could do one.
bool step(std::vector<Player>& players, uint32_t self, Inbox& inbox) {
  Player& player = players[self];
  if (player.round == player.schedule.size()) return false;
  const ScheduleRound& round = player.schedule[player.round];
  if (!player.hasSent) {
    for (const OutgoingParts& send : round.sends) {
      const auto begin = player.sums.begin() + send.parts.first;
      inbox[{self, index(send.to)}].push_back({send.parts, Sums(begin, begin + send.parts.count)});
    }
    player.hasSent = true;
    return true;
  }
  for (const IncomingParts& receive : round.receives) {
    if (inbox[{index(receive.from), self}].empty()) return false;
  }
  for (const IncomingParts& receive : round.receives) {
    auto& queue = inbox[{index(receive.from), self}];
    EXPECT_EQ(queue.front().first, receive.parts)
        << "rank " << self << " from " << index(receive.from);
    for (uint32_t i = 0; i < receive.parts.count; ++i) {
      auto& sum = player.sums[receive.parts.first + i];
      const auto& arrived = queue.front().second[i];
      if (round.arriving == Arriving::kResults) sum.clear();
      sum.insert(arrived.begin(), arrived.end());
    }
    queue.pop_front();
  }
  ++player.round;
  player.hasSent = false;
  return true;
}

template <typename MakeSchedule>
std::vector<Player> play(uint32_t world, MakeSchedule&& make) {
  std::vector<Player> players(world);
  for (uint32_t r = 0; r < world; ++r)
    players[r] = {make(Rank{r}), 0, false, Sums(world, std::multiset<uint32_t>{r})};
  Inbox inbox;
  bool goesOn = true;
  while (goesOn) {
    goesOn = false;
    for (uint32_t r = 0; r < world; ++r) goesOn = step(players, r, inbox) || goesOn;
  }
  for (const auto& [pair, queue] : inbox)
    EXPECT_TRUE(queue.empty()) << pair.first << " to " << pair.second;
  for (const Player& player : players) EXPECT_EQ(player.round, player.schedule.size());
  return players;
}

std::multiset<uint32_t> everybody(uint32_t world) {
  std::multiset<uint32_t> all;
  for (uint32_t r = 0; r < world; ++r) all.insert(r);
  return all;
}

class Schedules : public testing::TestWithParam<Method> {};

TEST_P(Schedules, AllReduceHasEveryContributionOnceEverywhere) {
  for (uint32_t world = 1; world <= 19; ++world) {
    for (const Player& player :
         play(world, [&](Rank rank) { return allReduceSchedule(GetParam(), rank, world); })) {
      for (const auto& sum : player.sums) EXPECT_EQ(sum, everybody(world)) << world;
    }
  }
}

TEST_P(Schedules, ReduceScatterHasThemInTheOwnPart) {
  for (uint32_t world = 1; world <= 9; ++world) {
    const auto players =
        play(world, [&](Rank rank) { return reduceScatterSchedule(GetParam(), rank, world); });
    for (uint32_t r = 0; r < world; ++r) EXPECT_EQ(players[r].sums[r], everybody(world));
  }
}

TEST_P(Schedules, AllGatherHasEachRanksPart) {
  for (uint32_t world = 1; world <= 9; ++world) {
    for (const Player& player :
         play(world, [&](Rank rank) { return allGatherSchedule(GetParam(), rank, world); })) {
      for (uint32_t part = 0; part < world; ++part)
        EXPECT_EQ(player.sums[part], std::multiset<uint32_t>{part});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Schedules,
                         testing::Values(Method::kDirect, Method::kRing, Method::kHalvingDoubling),
                         [](const auto& method) {
                           return method.param == Method::kHalvingDoubling
                                      ? "halvingDoubling"
                                      : std::string(name(method.param));
                         });

TEST(Schedules, BroadcastReachesEverybodyFromAnyRoot) {
  for (uint32_t world = 1; world <= 9; ++world) {
    for (uint32_t root = 0; root < world; ++root) {
      for (const Player& player :
           play(world, [&](Rank rank) { return broadcastSchedule(Rank{root}, rank, world); })) {
        for (const auto& sum : player.sums) EXPECT_EQ(sum, std::multiset<uint32_t>{root});
      }
    }
  }
}

TEST(Schedules, RingAndHalvingDoublingSendAsMuchAsTheyMust) {
  const auto partsSent = [](const Schedule& schedule) {
    uint32_t parts = 0;
    for (const ScheduleRound& round : schedule) {
      for (const OutgoingParts& send : round.sends) parts += send.parts.count;
    }
    return parts;
  };
  for (const Method method : {Method::kDirect, Method::kRing, Method::kHalvingDoubling}) {
    EXPECT_EQ(partsSent(allReduceSchedule(method, Rank{3}, 8)), 14U) << name(method);
  }
  EXPECT_EQ(allReduceSchedule(Method::kHalvingDoubling, Rank{3}, 8).size(), 6U);
}

}  // namespace
}  // namespace sluice::collective
