// The contract of Store, run on both kinds: ranks beside the table, and ranks behind sockets.
#include <sluice/join/rendezvous/store.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/join/rendezvous/message.h>
#include <sluice/join/rendezvous/testing/test_world.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr uint32_t kWorld = 4;

// Four ranks, each with its Store, whatever is behind it.
class World {
 public:
  virtual ~World() = default;
  virtual net::EpollLoop& loop(uint32_t rank) = 0;
  virtual Store& store(uint32_t rank) = 0;
};

class LocalWorld final : public World {
 public:
  LocalWorld() : table_(std::make_unique<ValueTable>(thread_.loop(), kWorld)) {
    for (uint32_t r = 0; r < kWorld; ++r)
      stores_.push_back(std::make_unique<LocalStore>(thread_.loop(), *table_, Rank{r}));
  }
  ~LocalWorld() override {
    onLoop(thread_.loop(), [&] { table_.reset(); });
  }
  net::EpollLoop& loop(uint32_t) override { return thread_.loop(); }
  Store& store(uint32_t rank) override { return *stores_[rank]; }

 private:
  net::LoopThread thread_{"ranks"};
  std::unique_ptr<ValueTable> table_;
  std::vector<std::unique_ptr<LocalStore>> stores_;
};

class RemoteWorld final : public World {
 public:
  RemoteWorld()
      : server_(ServerOptions{.listen = {}, .key = key_, .worldSize = kWorld, .agreement = {}}) {
    for (uint32_t r = 1; r < kWorld; ++r) {
      ranks_.push_back(std::make_unique<TestRank>(
          thread_.loop(),
          RemoteOptions{
              .master = {server_.address()}, .key = key_, .rank = Rank{r}, .agreement = {}}));
      EXPECT_EQ(ranks_.back()->join().get(), base::ok());
    }
  }
  net::EpollLoop& loop(uint32_t rank) override {
    return rank == 0 ? server_.loop() : thread_.loop();
  }
  Store& store(uint32_t rank) override {
    return rank == 0 ? server_.store() : ranks_[rank - 1]->store();
  }

 private:
  const secret::JobKey key_ = secret::JobKey::random();
  TestServer server_;
  net::LoopThread thread_{"ranks"};
  std::vector<std::unique_ptr<TestRank>> ranks_;
};

class StoreContract : public testing::TestWithParam<bool> {
 protected:
  StoreContract() {
    if (GetParam()) {
      world_ = std::make_unique<RemoteWorld>();
    } else {
      world_ = std::make_unique<LocalWorld>();
    }
  }

  Status set(uint32_t rank, const std::string& key, const std::string& value) {
    std::future<Status> done;
    auto completed = completion(done);
    world_->loop(rank).post([&, completed] { world_->store(rank).set(key, value, completed); });
    return done.get();
  }
  Result<std::string> get(uint32_t rank, const std::string& key) {
    std::future<Result<std::string>> done;
    auto completed = completion(done);
    world_->loop(rank).post([&, completed] { world_->store(rank).get(key, completed); });
    return done.get();
  }
  std::future<Result<std::string>> wait(uint32_t rank, const std::string& key, Duration timeout) {
    std::future<Result<std::string>> done;
    auto completed = completion(done);
    world_->loop(rank).post([=, this] { world_->store(rank).wait(key, timeout, completed); });
    return done;
  }
  std::future<Result<std::vector<std::string>>> gather(uint32_t rank, const std::string& key,
                                                       const std::string& value,
                                                       Duration timeout = 20s) {
    std::future<Result<std::vector<std::string>>> done;
    auto completed = completion(done);
    world_->loop(rank).post(
        [=, this] { world_->store(rank).gather(key, value, timeout, completed); });
    return done;
  }

  std::unique_ptr<World> world_;
};

INSTANTIATE_TEST_SUITE_P(Stores, StoreContract, testing::Bool(),
                         [](const auto& which) { return which.param ? "Remote" : "Local"; });

TEST_P(StoreContract, WhatOneRankSetsAllGet) {
  EXPECT_EQ(set(1, "plan", "abc"), base::ok());
  for (uint32_t r = 0; r < kWorld; ++r) EXPECT_EQ(get(r, "plan").value(), "abc");
  EXPECT_EQ(set(2, "plan", ""), base::ok());
  EXPECT_EQ(get(3, "plan").value(), "");
}

TEST_P(StoreContract, WhatNobodyHasSetIsNotFound) {
  const auto got = get(2, "nothing");
  EXPECT_EQ(got.status().code(), Code::kNotFound);
  EXPECT_THAT(got.status().message(), HasSubstr("'nothing'"));
}

TEST_P(StoreContract, SizesAreBounded) {
  EXPECT_EQ(set(1, "", "x").code(), Code::kInvalidArgument);
  EXPECT_EQ(set(1, std::string(kLargestKeyBytes + 1, 'k'), "x").code(), Code::kInvalidArgument);
  EXPECT_EQ(set(1, "k", std::string(kLargestValueBytes + 1, 'v')).code(), Code::kInvalidArgument);
  const std::string key(kLargestKeyBytes, 'k');
  const std::string value(kLargestValueBytes, 'v');
  EXPECT_EQ(set(1, key, value), base::ok());
  EXPECT_EQ(get(2, key).value(), value);
}

TEST_P(StoreContract, AWaitEndsWhenTheValueComes) {
  auto first = wait(1, "late", 20s);
  auto second = wait(2, "late", 20s);
  EXPECT_EQ(first.wait_for(20ms), std::future_status::timeout);
  EXPECT_EQ(set(3, "late", "here"), base::ok());
  EXPECT_EQ(first.get().value(), "here");
  EXPECT_EQ(second.get().value(), "here");
  EXPECT_EQ(wait(0, "late", 0s).get().value(), "here");
}

TEST_P(StoreContract, AWaitEndsWhenItsTimeIsUp) {
  auto patient = wait(1, "never", 20s);
  const auto got = wait(1, "never", 20ms).get();
  EXPECT_EQ(got.status().code(), Code::kTimeout);
  EXPECT_THAT(got.status().message(), HasSubstr("'never'"));
  EXPECT_EQ(set(2, "never", "after all"), base::ok());
  EXPECT_EQ(patient.get().value(), "after all");
}

TEST_P(StoreContract, AGatherGivesEachRankEverythingInRankOrder) {
  for (int round = 0; round < 3; ++round) {  // the same key again
    std::vector<std::future<Result<std::vector<std::string>>>> all;
    for (const uint32_t r : {2U, 0U, 3U, 1U})
      all.push_back(gather(r, "address", fmt::format("{}:{}", r, round)));
    for (auto& each : all) {
      EXPECT_THAT(each.get().value(),
                  testing::ElementsAre(fmt::format("0:{}", round), fmt::format("1:{}", round),
                                       fmt::format("2:{}", round), fmt::format("3:{}", round)));
    }
  }
}

TEST_P(StoreContract, AGatherThatIsNotCompleteInTimeNamesWhoIsMissing) {
  auto patient = gather(0, "address", "zero");
  const auto got = gather(2, "address", "two", 30ms).get();
  EXPECT_EQ(got.status().code(), Code::kTimeout);
  EXPECT_THAT(got.status().message(),
              HasSubstr("ranks 1, 3 did not come to 'address' in 30ms (2 of 4"));
  auto one = gather(1, "address", "one");
  auto three = gather(3, "address", "three");
  EXPECT_EQ(patient.get().value(), one.get().value());
  EXPECT_EQ(three.get().value().at(2), "two");
}

TEST_P(StoreContract, ARankBringsOneValueToAGather) {
  auto first = gather(1, "address", "one", 10s);
  EXPECT_EQ(gather(1, "address", "again").get().status().code(), Code::kAlreadyExists);
  for (const uint32_t r : {0U, 2U, 3U}) (void)gather(r, "address", "");
  EXPECT_EQ(first.get().value().at(1), "one");
}

TEST_P(StoreContract, LargeGathersArriveWhole) {
  const std::string large(kLargestValueBytes, 'x');
  std::vector<std::future<Result<std::vector<std::string>>>> all;
  for (uint32_t r = 0; r < kWorld; ++r) all.push_back(gather(r, "large", large));
  for (auto& each : all) EXPECT_EQ(each.get().value(), std::vector<std::string>(kWorld, large));
}

TEST_P(StoreContract, WhatIsPendingWhenTheWorldEndsCompletesOnce) {
  auto waiting = wait(1, "never", 20s);
  auto gathering = gather(2, "address", "two");
  EXPECT_EQ(get(1, "x").status().code(),
            Code::kNotFound);  // both requests are with the table by now
  EXPECT_EQ(get(2, "x").status().code(), Code::kNotFound);
  world_.reset();
  EXPECT_FALSE(waiting.get().isOk());
  EXPECT_FALSE(gathering.get().isOk());
}

}  // namespace
}  // namespace sluice::rendezvous
