#include <sluice/session/broadcast.h>

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/base/testing/manual_loop.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::session {
namespace {

class BroadcastRank final : public fabric::Receiver {
 public:
  BroadcastRank(fabric::LoopbackHub& hub, Rank rank, base::ManualLoop& loop)
      : loop_(loop), fabric_(hub.join(rank, loop, *this)), broadcast_(*fabric_) {}
  ~BroadcastRank() override {
    loop_.post([this] { fabric_.reset(); });
    loop_.runReady();
  }
  void start(Rank root, SharedBytes data) {
    loop_.post([this, root, data = std::move(data)] {
      broadcast_.start(root, data, [this](const Status& status) { endings.push_back(status); });
    });
  }
  void endAfter(uint64_t count, const Status& why) { broadcast_.endAfter(count, why); }
  uint64_t begun() const { return broadcast_.begun(); }
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    EXPECT_EQ(lane, kBroadcastLane);
    return broadcast_.onMessage(from, header);
  }
  void onPeerLost(Rank, const Status& why) override { broadcast_.fail(why); }
  void onPeerLeft(Rank) override {}

  std::vector<Status> endings;

 private:
  base::ManualLoop& loop_;
  std::unique_ptr<fabric::Fabric> fabric_;
  Broadcast broadcast_;
};

SharedBytes fill(size_t bytes, uint32_t seed) {
  auto data = std::make_shared<std::vector<std::byte>>(bytes);
  for (size_t i = 0; i < bytes; ++i) (*data)[i] = static_cast<std::byte>(seed + i / 3);
  return data;
}

// The sender is a member that is hostile, or has a bug.
TEST(Broadcast, APieceThatComesTwiceIsRefusedAndNotCounted) {
  struct Nobody final : fabric::Receiver {
    Result<fabric::Landing> onMessage(Rank, fabric::Lane, const wire::Header&) override {
      return Status(Code::kRefused, "nobody");
    }
    void onPeerLost(Rank, const Status&) override {}
    void onPeerLeft(Rank) override {}
  } nobody;
  base::ManualLoop loop;
  fabric::LoopbackHub hub(2);
  auto root = hub.join(Rank{0}, loop, nobody);
  BroadcastRank rank(hub, Rank{1}, loop);
  const size_t first = size_t{1} << 20;
  const SharedBytes sent = fill(first + 17, 3);
  const SharedBytes landed = fill(sent->size(), 0);
  rank.start(Rank{0}, landed);
  const auto send = [&](uint32_t number) {
    const auto piece =
        number == 0 ? std::span(*sent).first(first) : std::span(*sent).subspan(first);
    root->send(Rank{1}, kBroadcastLane, {.slice = SliceId{number}, .stage = Stage::kApplied},
               {piece.data(), piece.size()}, [](const Status&) {});
    loop.runReady();
  };
  send(0);
  send(0);
  EXPECT_TRUE(rank.endings.empty());
  send(1);
  ASSERT_EQ(rank.endings.size(), 1U);
  EXPECT_TRUE(rank.endings[0].isOk());
  EXPECT_EQ(*landed, *sent);
  loop.post([&] { root.reset(); });
  loop.runReady();
}

TEST(Broadcast, ReachesEveryRankFromAnyRootWhoeverCallsFirst) {
  for (const uint32_t world : {1U, 2U, 3U, 4U, 7U}) {
    if (world == 7 && base::testsAreShort()) continue;
    base::ManualLoop loop;
    fabric::LoopbackHub hub(world);
    std::vector<std::unique_ptr<BroadcastRank>> ranks;
    for (uint32_t r = 0; r < world; ++r)
      ranks.push_back(std::make_unique<BroadcastRank>(hub, Rank{r}, loop));
    // Three broadcasts at once: a short one, one of more than one piece, and an empty one.
    const std::vector<size_t> sizes{10, (size_t{1} << 20) + 17, 0};
    for (uint32_t root = 0; root < world; ++root) {
      std::vector<std::vector<SharedBytes>> data(world);
      for (uint32_t r = 0; r < world; ++r) {
        const uint32_t late = (r + root + 1) % world;  // others call before the root does
        for (size_t b = 0; b < sizes.size(); ++b)
          data[late].push_back(fill(sizes[b], late * 10 + b));
        for (const auto& bytes : data[late]) ranks[late]->start(Rank{root}, bytes);
        loop.runReady();
      }
      for (uint32_t r = 0; r < world; ++r) {
        for (size_t b = 0; b < sizes.size(); ++b)
          EXPECT_EQ(*data[r][b], *fill(sizes[b], root * 10 + b));
        EXPECT_EQ(ranks[r]->endings.size(), (root + 1) * sizes.size());
        EXPECT_TRUE(std::ranges::all_of(ranks[r]->endings, &Status::isOk));
      }
    }
  }
}

TEST(Broadcast, ALossEndsItOnce) {
  base::ManualLoop loop;
  fabric::LoopbackHub hub(2);
  auto lost = std::make_unique<BroadcastRank>(hub, Rank{0}, loop);
  BroadcastRank waiting(hub, Rank{1}, loop);
  waiting.start(Rank{0}, fill(10, 0));
  loop.runReady();
  EXPECT_TRUE(waiting.endings.empty());
  waiting.onPeerLost(Rank{0}, {Code::kPeerLost, "rank 0 is lost"});
  waiting.onPeerLost(Rank{0}, {Code::kPeerLost, "an echo"});
  ASSERT_EQ(waiting.endings.size(), 1U);
  EXPECT_EQ(waiting.endings[0].message(), "rank 0 is lost");
  waiting.start(Rank{0}, fill(10, 0));  // nor does anybody wait for it later
  loop.runReady();
  ASSERT_EQ(waiting.endings.size(), 2U);
  EXPECT_EQ(waiting.endings[1].message(), "rank 0 is lost");
}

// A rank has ended after its first broadcast, which is still on its way to us.
TEST(Broadcast, AnEndInGoodOrderLeavesEarlierOnesAlone) {
  base::ManualLoop loop;
  fabric::LoopbackHub hub(2);
  BroadcastRank leaving(hub, Rank{0}, loop);
  BroadcastRank waiting(hub, Rank{1}, loop);
  const auto first = fill(10, 0);
  waiting.start(Rank{0}, first);
  waiting.start(Rank{0}, fill(10, 0));
  loop.runReady();
  EXPECT_EQ(waiting.begun(), 2U);
  waiting.endAfter(1, {Code::kPeerLost, "rank 0 has ended"});
  ASSERT_EQ(waiting.endings.size(), 1U);
  EXPECT_EQ(waiting.endings[0].message(), "rank 0 has ended");
  leaving.start(Rank{0}, fill(10, 7));
  loop.runReady();
  ASSERT_EQ(waiting.endings.size(), 2U);
  EXPECT_TRUE(waiting.endings[1].isOk());
  EXPECT_EQ(*first, *fill(10, 7));
}

}  // namespace
}  // namespace sluice::session
