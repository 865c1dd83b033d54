#include <sluice/transport/fabric/ucx/ucx_fabric.h>

#include <map>

#include <sluice/base/mutex.h>
#include <sluice/transport/fabric/testing/contract_suite.h>

namespace sluice::fabric {
namespace {

// The book in which the ranks of one process leave their addresses for each other.
class AddressBook final {
 public:
  void put(Rank rank, UcxAddress address) {
    book_.with([&](Book& book) { book[rank] = std::move(address); });
  }
  Result<UcxAddress> find(Rank rank) const {
    return book_.with([&](const Book& book) -> Result<UcxAddress> {
      const auto found = book.find(rank);
      if (found == book.end()) return Status(Code::kNotFound, "no address in the book");
      return found->second;
    });
  }

 private:
  using Book = std::map<Rank, UcxAddress>;
  base::Guarded<Book> book_;
};

UcxOptions testOptions(Rank rank, size_t worldSize) {
  UcxOptions options;
  options.rank = rank;
  options.worldSize = worldSize;
  options.isNetworkTrusted = true;
  options.device = "lo";
  options.closeDeadline = std::chrono::seconds(1);
  return options;
}

std::unique_ptr<Fabric> join(const UcxOptions& options, const std::shared_ptr<AddressBook>& book,
                             net::EpollLoop& loop, Receiver& receiver) {
  auto port = UcxPort::open(options, loop);
  SLUICE_CHECK(port.isOk(), port.status().toString());
  book->put(options.rank, (*port)->address());
  return (*port)->start(receiver, [book](Rank rank) { return book->find(rank); });
}

}  // namespace

namespace contract {
namespace {

class UcxEngine final : public Engine {
 public:
  UcxEngine(size_t worldSize, void (*adjust)(UcxOptions&))
      : worldSize_(worldSize), adjust_(adjust), world_(worldSize) {}
  World& world() override { return world_; }
  std::unique_ptr<Fabric> make(Rank rank, Receiver& receiver) override {
    UcxOptions options = testOptions(rank, worldSize_);
    adjust_(options);
    return join(options, book_, world_.loop(index(rank)), receiver);
  }

 private:
  const size_t worldSize_;
  void (*const adjust_)(UcxOptions&);
  ThreadWorld world_;
  const std::shared_ptr<AddressBook> book_ = std::make_shared<AddressBook>();
};

EngineCase engineCase(const char* name, void (*adjust)(UcxOptions&)) {
  return {name, [adjust](size_t worldSize) -> std::unique_ptr<Engine> {
            return std::make_unique<UcxEngine>(worldSize, adjust);
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Ucx, FabricContract,
    testing::Values(engineCase("tcp", [](UcxOptions&) {}),
                    // Every payload by rendezvous, so that the landings' own path is walked by all
                    // cases.
                    engineCase("rendezvous", [](UcxOptions& options) { options.eagerBytes = 0; })),
    caseName);

}  // namespace
}  // namespace contract

namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(UcxFabric, DoesNotStartOnANetworkThatNobodyCalledTrusted) {
  net::LoopThread thread("rank");
  UcxOptions options = testOptions(Rank{0}, 1);
  options.isNetworkTrusted = false;
  const auto port = UcxPort::open(options, thread.loop());
  ASSERT_FALSE(port.isOk());
  EXPECT_THAT(port.status().message(), HasSubstr("--trusted-network"));
}

TEST(UcxFabric, ADeviceThatIsNotThereIsAnErrorThatNamesIt) {
  net::LoopThread thread("rank");
  UcxOptions options = testOptions(Rank{0}, 1);
  options.device = "nosuch0";
  const auto port = UcxPort::open(options, thread.loop());
  ASSERT_FALSE(port.isOk());
  EXPECT_THAT(port.status().message(), HasSubstr("nosuch0"));
}

TEST(UcxFabric, APortThatIsNeverStartedIsClosed) {
  net::LoopThread thread("rank");
  const auto port = UcxPort::open(testOptions(Rank{0}, 1), thread.loop());
  ASSERT_TRUE(port.isOk()) << port.status().toString();
  EXPECT_FALSE((*port)->address().empty());
}

// UCX fetches a large payload when it has a landing. One that was changed after its checksum was
// made is what damage on the way looks like.
TEST(UcxFabric, APayloadThatChangesOnTheWayLosesItsSender) {
  contract::Completions sends;
  std::array<contract::ThreadRank, 2> ranks;
  const auto book = std::make_shared<AddressBook>();
  contract::Watched<bool> isAsked;
  std::atomic<bool> isLater{true};
  ranks[0].receiver.answer = [&](Rank, Lane, const wire::Header&) -> Result<Landing> {
    isAsked.change([](bool& yes) { yes = true; });
    return isLater ? Landing::later() : Landing{};
  };
  for (uint32_t i = 0; i < 2; ++i) {
    ranks[i].receiver.loop = &ranks[i].thread.loop();
    ranks[i].fabric =
        join(testOptions(Rank{i}, 2), book, ranks[i].thread.loop(), ranks[i].receiver);
  }
  auto payload = contract::pattern(300'000);
  ranks[1].fabric->send(Rank{0}, Lane::kBulk, {}, contract::view(payload), sends.expect());
  ASSERT_TRUE(isAsked.waitUntil([](bool yes) { return yes; }));
  payload[150'000] ^= std::byte{4};
  isLater = false;
  ranks[0].fabric->resume(Rank{1}, Lane::kBulk);
  ASSERT_TRUE(ranks[0].receiver.waitLost());
  const contract::Seen seen = ranks[0].receiver.seen.get();
  EXPECT_THAT(seen.lost[0].second.message(),
              HasSubstr("rank 1 is lost: the payload of epoch 0, 1 -> 0 bulk #0: "));
  EXPECT_THAT(seen.lost[0].second.message(), HasSubstr("does not match its checksum"));
  ASSERT_EQ(seen.arrivals.size(), 1U);
  EXPECT_EQ(seen.arrivals[0].status.code(), Code::kPeerLost);
  EXPECT_EQ(ranks[0].fabric->counters().drops.of(wire::Drop::kBadPayload), 1U);
  for (auto& rank : ranks) rank.fabric.reset();
}

// A stranger that reached the port and speaks our protocol, but has no key or another job's.
TEST(UcxFabric, AStrangersMessagesAreDroppedAndCounted) {
  contract::Completions sends;
  contract::ThreadRank member;
  contract::ThreadRank stranger;
  member.receiver.loop = &member.thread.loop();
  stranger.receiver.loop = &stranger.thread.loop();
  const auto book = std::make_shared<AddressBook>();
  UcxOptions options = testOptions(Rank{0}, 2);
  options.jobKey = secret::JobKey::random();
  member.fabric = join(options, book, member.thread.loop(), member.receiver);
  options.rank = Rank{1};
  options.jobKey = secret::JobKey::random();
  stranger.fabric = join(options, book, stranger.thread.loop(), stranger.receiver);
  const auto small = contract::pattern(100);
  const auto large = contract::pattern(1 << 20);
  const auto dropped = [&] { return member.fabric->counters().drops.of(wire::Drop::kBadCheck); };
  const auto awaitDrops = [&](uint64_t count) {
    const auto until = std::chrono::steady_clock::now() + contract::kPatience;
    while (dropped() < count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(dropped(), count);
  };
  // One after the other: a large one that is refused ends the stranger's connections, and with them
  // what it has not sent yet.
  stranger.fabric->send(Rank{0}, Lane::kBulk, {}, contract::view(small), sends.expect());
  awaitDrops(1);
  stranger.fabric->send(Rank{0}, Lane::kUrgent, {}, contract::view(large), sends.expect());
  awaitDrops(2);
  EXPECT_TRUE(member.receiver.seen.get().arrivals.empty());
  EXPECT_EQ(member.fabric->counters().messagesReceived, 0U);
  EXPECT_EQ(member.fabric->counters().connections, 0U) << "no way back is made to a stranger";
  stranger.fabric.reset();
  member.fabric.reset();
}

// A rank of another job that uses the same key file sends what somebody could have recorded there:
// a message, and the notice that it has given rank 0 up, which would end this job. Goodbyes are
// opened in the same way.
TEST(UcxFabric, WhatWasSealedInAnotherJobWithTheSameKeyIsDroppedAndCounted) {
  const secret::JobKey file = secret::JobKey::random();
  contract::Completions sends;
  contract::ThreadRank member;
  contract::ThreadRank other;
  for (auto* rank : {&member, &other}) rank->receiver.loop = &rank->thread.loop();
  const auto book = std::make_shared<AddressBook>();
  UcxOptions options = testOptions(Rank{0}, 2);
  options.jobKey = file.forJob(secret::randomNonce());
  member.fabric = join(options, book, member.thread.loop(), member.receiver);
  options.rank = Rank{1};
  options.jobKey = file.forJob(secret::randomNonce());
  other.fabric = join(options, book, other.thread.loop(), other.receiver);
  const auto awaitDrops = [&](uint64_t count) {
    const auto dropped = [&] { return member.fabric->counters().drops.of(wire::Drop::kBadCheck); };
    const auto until = std::chrono::steady_clock::now() + contract::kPatience;
    while (dropped() < count && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    EXPECT_EQ(dropped(), count);
  };
  const auto payload = contract::pattern(100);
  other.fabric->send(Rank{0}, Lane::kControl, {}, contract::view(payload), sends.expect());
  awaitDrops(1);
  other.fabric->giveUp(Rank{0}, Status(Code::kPeerLost, "nothing heard"));
  awaitDrops(2);
  const contract::Seen seen = member.receiver.seen.get();
  EXPECT_TRUE(seen.arrivals.empty());
  EXPECT_TRUE(seen.left.empty() && seen.lost.empty()) << "rank 1 of this job has not gone";
  for (auto* rank : {&other, &member}) rank->fabric.reset();
}

}  // namespace
}  // namespace sluice::fabric
