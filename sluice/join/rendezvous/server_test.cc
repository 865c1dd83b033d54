// Rank 0 and the others over real sockets on loopback: joining, and every way it can go wrong among
// members.
#include <sluice/join/rendezvous/server.h>

#include <sys/resource.h>
#include <sys/socket.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/join/rendezvous/connection.h>
#include <sluice/join/rendezvous/testing/test_world.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class Joining : public testing::Test {
 protected:
  ServerOptions serverOptions(uint32_t worldSize) {
    return {.listen = {},
            .key = key_,
            .worldSize = worldSize,
            .agreement = Agreement(base::Config(), worldSize)};
  }
  RemoteOptions rankOptions(uint32_t rank, const Address& master, uint32_t worldSize) {
    return {.master = {master},
            .key = key_,
            .rank = Rank{rank},
            .agreement = Agreement(base::Config(), worldSize)};
  }

  // A world of three in which rank 1 waits for the others.
  struct OneWaiting final {
    OneWaiting(Joining& test, Duration refusalGrace)
        : server([&] {
            ServerOptions options = test.serverOptions(3);
            options.refusalGrace = refusalGrace;
            return options;
          }()),
          one(test.ranks_.loop(), test.rankOptions(1, server.address(), 3)) {
      EXPECT_EQ(one.join().get(), base::ok());
      gathering = one.gather("start", "one", 60s);
    }

    TestServer server;
    TestRank one;
    decltype(one.gather("", "", {})) gathering;
  };

  const secret::JobKey key_ = secret::JobKey::random();
  net::LoopThread ranks_{"ranks"};
};

TEST_F(Joining, ASecondOfTheSameRankIsRefusedAndTheFirstStays) {
  TestServer server(serverOptions(3));
  TestRank first(ranks_.loop(), rankOptions(1, server.address(), 3));
  TestRank second(ranks_.loop(), rankOptions(1, server.address(), 3));
  TestRank zero(ranks_.loop(), rankOptions(0, server.address(), 3));
  ASSERT_EQ(first.join().get(), base::ok());
  const Status refused = second.join().get();
  EXPECT_EQ(refused.code(), Code::kRefused);
  EXPECT_THAT(refused.message(), HasSubstr("two processes have rank 1"));
  EXPECT_THAT(zero.join().get().message(), HasSubstr("two processes have rank 0"));
  EXPECT_EQ(server.memberCount(), 1U);
  EXPECT_EQ(server.strangers().refused, 2U);
}

// A process that was started a minute before rank 0 and has looked for it ever since.
TEST_F(Joining, ALeftoverYieldsToTheProcessThatWasStartedLater) {
  TestServer server(serverOptions(2));
  RemoteOptions old = rankOptions(1, server.address(), 2);
  old.processAge += 60s;
  old.begun = ranks_.loop().now() - 60s;
  TestRank leftover(ranks_.loop(), old);
  auto waiting = leftover.join();
  EXPECT_EQ(waiting.wait_for(500ms), std::future_status::timeout)
      << "it must wait for a later process";
  TestRank right(ranks_.loop(), rankOptions(1, server.address(), 2));
  EXPECT_EQ(right.join().get(), base::ok());
  const Status refused = waiting.get();
  EXPECT_EQ(refused.code(), Code::kRefused);
  EXPECT_THAT(refused.message(), HasSubstr("was started 60 s before rank 0"));
  EXPECT_THAT(refused.message(), HasSubstr("left over from an earlier launch; end it"));
  TestRank again(ranks_.loop(), old);
  EXPECT_THAT(again.join().get().message(), HasSubstr("left over from an earlier launch; end it"));
  EXPECT_EQ(server.memberCount(), 1U);
}

TEST_F(Joining, ARankThatWasStartedEarlyIsLetInIfNoOtherClaimsItsPlace) {
  ServerOptions options = serverOptions(2);
  options.refusalGrace = 200ms;
  TestServer server(options);
  RemoteOptions early = rankOptions(1, server.address(), 2);
  early.processAge += 60s;
  early.begun = ranks_.loop().now() - 60s;
  TestRank one(ranks_.loop(), early);
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(one.join().get(), base::ok());
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 200ms);
  EXPECT_EQ(one.jobNonce(), server.server().jobNonce());
}

// An old process of a pool that is told of a new job, and a process that joins while rank 0 still
// loads data.
TEST_F(Joining, ALongLifeOrALongWaitAloneIsNoLeftover) {
  ServerOptions options = serverOptions(3);
  options.refusalGrace = 1h;
  TestServer server(options);
  RemoteOptions pooled = rankOptions(1, server.address(), 3);
  pooled.processAge += 60s;
  RemoteOptions waiting = rankOptions(2, server.address(), 3);
  waiting.begun = ranks_.loop().now() - 60s;
  EXPECT_EQ(TestRank(ranks_.loop(), pooled).join().get(), base::ok());
  EXPECT_EQ(TestRank(ranks_.loop(), waiting).join().get(), base::ok());
}

// Returns rank 0's answer to a process that describes itself as `newcomer`; the connection stays
// open until `keep` goes.
Message answerTo(net::EpollLoop& loop, const Address& master, const secret::JobKey& key,
                 const Newcomer& newcomer, std::shared_ptr<Connection>& keep) {
  std::future<Message> answer;
  auto got = completion(answer);
  net::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(::connect(socket.get(), master.raw(), master.rawSize()) == 0 || errno == EINPROGRESS);
  onLoop(loop, [&] {
    keep = Connection::start(
        loop, std::move(socket),
        secret::Handshake::client(key, secret::Purpose::kRendezvous, claimOf(Rank{1})),
        kLargestAnswerBytes,
        {.proved =
             [&] { keep->send(encode({.kind = MessageKind::kJoin, .value = newcomer.encode()})); },
         .received = [got](const std::string& bytes) { got(decode(bytes).value()); },
         .closed = {}});
  });
  return answer.get();
}

TEST_F(Joining, AMemberThatComesBackIsKnownByItsJobAndItsProcess) {
  ServerOptions options = serverOptions(2);
  options.refusalGrace = 1h;
  TestServer server(options);
  std::vector<std::shared_ptr<Connection>> open;
  const auto answer = [&](const Newcomer& newcomer) {
    return answerTo(ranks_.loop(), server.address(), key_, newcomer, open.emplace_back());
  };
  Newcomer member{.agreementHash = options.agreement.hash(), .process = secret::randomNonce()};
  ASSERT_EQ(answer(member).kind, MessageKind::kWelcome);
  // It is not held back for its age, and takes the place of its own old connection.
  member.job = server.server().jobNonce();
  member.age = member.waits = 2h;
  EXPECT_EQ(answer(member).kind, MessageKind::kWelcome);
  EXPECT_EQ(server.memberCount(), 1U);
  Newcomer second = member;
  second.process = secret::randomNonce();
  second.age = second.waits = 0s;
  EXPECT_THAT(answer(second).value, HasSubstr("two processes have rank 1"));
  member.job = secret::randomNonce();
  EXPECT_THAT(answer(member).value, HasSubstr("was a member of a job that is over"));
  onLoop(ranks_.loop(), [&] { open.clear(); });
}

TEST_F(Joining, ARankOfAnotherLaunchIsRefusedByName) {
  const auto launched = [](const std::string& id) {
    Agreement agreement(base::Config(), 2);
    if (!id.empty()) agreement.addLaunchId("SLURM_JOB_ID", id);
    return agreement;
  };
  ServerOptions options = serverOptions(2);
  options.agreement = launched("2");
  TestServer server(options);
  RemoteOptions rank = rankOptions(1, server.address(), 2);
  rank.agreement = launched("1");
  const Status refused = TestRank(ranks_.loop(), rank).join().get();
  EXPECT_EQ(refused.code(), Code::kRefused);
  EXPECT_THAT(refused.message(),
              HasSubstr("belongs to another launch: SLURM_JOB_ID is 1 on rank 1 but 2 on rank 0"));
  rank.agreement = launched("");  // started by hand, without the launcher's variables
  EXPECT_EQ(TestRank(ranks_.loop(), rank).join().get(), base::ok());
}

TEST_F(Joining, ARankThatWentMayComeBack) {
  TestServer server(serverOptions(2));
  for (int life = 0; life < 3; ++life) {
    Status joined;
    // The server may hear of the new life before it hears of the old one's end.
    do joined = TestRank(ranks_.loop(), rankOptions(1, server.address(), 2)).join().get();
    while (joined.code() == Code::kRefused);
    EXPECT_EQ(joined, base::ok());
  }
}

TEST_F(Joining, DifferentSettingsAreNamedToTheRank) {
  TestServer server(serverOptions(3));
  TestRank other(ranks_.loop(), rankOptions(1, server.address(), 4));
  const Status refused = other.join().get();
  EXPECT_EQ(refused.code(), Code::kRefused);
  EXPECT_EQ(refused.message(),
            "rank 1 must be started like rank 0: world size is 4 on rank 1 but 3 on rank 0");
}

TEST_F(Joining, ARankThatIsRefusedForItsSettingsEndsTheWaitOfTheOthers) {
  OneWaiting world(*this, 10ms);
  TestRank two(ranks_.loop(), rankOptions(2, world.server.address(), 4));
  ASSERT_EQ(two.join().get().code(), Code::kRefused);
  ASSERT_EQ(world.gathering.wait_for(20s), std::future_status::ready);
  const auto got = world.gathering.get();
  EXPECT_EQ(got.status().code(), Code::kRefused);
  EXPECT_EQ(got.status().message(),
            "rank 2 was refused while the others wait for it at 'start': rank 2 must be started "
            "like rank 0: "
            "world size is 4 on rank 2 but 3 on rank 0");
  // A rank that comes later hears it at once.
  EXPECT_EQ(world.one.gather("start", "one", 60s).get().status().code(), Code::kRefused);
}

TEST_F(Joining, ARefusedRankThatComesBackInTimeEndsNothing) {
  // The grace is longer than the second between two looks, so that one look falls in between.
  OneWaiting world(*this, 1500ms);
  ASSERT_EQ(TestRank(ranks_.loop(), rankOptions(2, world.server.address(), 4)).join().get().code(),
            Code::kRefused);
  TestRank two(ranks_.loop(), rankOptions(2, world.server.address(), 3));
  ASSERT_EQ(two.join().get(), base::ok());
  EXPECT_EQ(world.gathering.wait_for(3s), std::future_status::timeout);
}

// Two of one rank, a rank that this world does not have, and a leftover of another job whose rank
// is here already: no rank is missing, so no stray may end what the others do.
TEST_F(Joining, StraysThatAreRefusedEndNothing) {
  OneWaiting world(*this, 0s);
  struct Stray {
    uint32_t rank;
    uint32_t worldSize;
  };
  for (const Stray stray : {Stray{1, 3}, Stray{0, 3}, Stray{1, 4}, Stray{0, 4}, Stray{3, 4}}) {
    TestRank second(ranks_.loop(),
                    rankOptions(stray.rank, world.server.address(), stray.worldSize));
    EXPECT_EQ(second.join().get().code(), Code::kRefused)
        << stray.rank << " of " << stray.worldSize;
  }
  EXPECT_EQ(world.gathering.wait_for(2500ms), std::future_status::timeout);
}

TEST_F(Joining, ARankBeyondTheWorldIsRefused) {
  TestServer server(serverOptions(3));
  TestRank other(ranks_.loop(), rankOptions(3, server.address(), 3));
  EXPECT_THAT(other.join().get().message(), HasSubstr("rank 3 does not exist in a job of 3 ranks"));
}

TEST_F(Joining, AnotherJobKeyIsSaidAtOnce) {
  TestServer server(serverOptions(2));
  for (const auto& key : {secret::JobKey::random(), secret::JobKey::none()}) {
    RemoteOptions options = rankOptions(1, server.address(), 2);
    options.key = key;
    TestRank rank(ranks_.loop(), options);
    const Status status = rank.join().get();
    EXPECT_EQ(status.code(), Code::kPermissionDenied);
    EXPECT_THAT(status.message(), HasSubstr("does not hold the same job key"));
  }
  EXPECT_EQ(server.memberCount(), 0U);
}

TEST_F(Joining, RanksWaitForAMasterThatComesLater) {
  uint16_t port = 0;
  {
    TestServer gone(serverOptions(2));
    port = gone.port();
  }
  TestRank rank(ranks_.loop(), rankOptions(1, Address::loopback(port), 2));
  auto joined = rank.join();
  EXPECT_EQ(joined.wait_for(100ms), std::future_status::timeout);
  net::LoopThread thread("rank 0");
  ServerOptions options = serverOptions(2);
  options.listen = Address::loopback(port);
  std::unique_ptr<Server> server;
  onLoop(thread.loop(), [&] { server = Server::start(thread.loop(), options).value(); });
  EXPECT_EQ(joined.get(), base::ok());
  onLoop(thread.loop(), [&] { server.reset(); });
}

TEST_F(Joining, AMasterThatNeverComesIsNamed) {
  uint16_t port = 0;
  {
    TestServer gone(serverOptions(2));
    port = gone.port();
  }
  RemoteOptions options = rankOptions(1, Address::loopback(port), 2);
  options.timeout = 150ms;
  TestRank rank(ranks_.loop(), options);
  const Status status = rank.join().get();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr(Address::loopback(port).toString()));
  EXPECT_THAT(status.message(), HasSubstr("Connection refused"));
}

TEST_F(Joining, APortThatIsTakenIsNamed) {
  TestServer server(serverOptions(2));
  ServerOptions options = serverOptions(2);
  options.listen = server.address();
  net::EpollLoop loop;
  const auto second = Server::start(loop, options);
  EXPECT_THAT(second.status().message(), HasSubstr(server.address().toString()));
  EXPECT_THAT(second.status().message(), HasSubstr("MASTER_PORT"));
}

TEST_F(Joining, TheLossOfTheMasterEndsEveryWait) {
  TestServer server(serverOptions(3));
  TestRank rank(ranks_.loop(), rankOptions(2, server.address(), 3));
  ASSERT_EQ(rank.join().get(), base::ok());
  auto gathering = rank.gather("address", "two", 60s);
  EXPECT_EQ(gathering.wait_for(50ms), std::future_status::timeout);
  server.stop();
  const auto got = gathering.get();
  EXPECT_EQ(got.status().code(), Code::kPeerLost);
  EXPECT_THAT(got.status().message(), HasSubstr("rank 0 at 127.0.0.1:"));
  EXPECT_THAT(got.status().message(), HasSubstr("'address'"));
  EXPECT_EQ(rank.gather("address", "two", 60s).get().status().code(), Code::kPeerLost);
}

TEST_F(Joining, TheLossOfARankIsNamedToThoseThatWaitForIt) {
  TestServer server(serverOptions(3));
  TestRank one(ranks_.loop(), rankOptions(1, server.address(), 3));
  auto two = std::make_unique<TestRank>(ranks_.loop(), rankOptions(2, server.address(), 3));
  ASSERT_EQ(one.join().get(), base::ok());
  ASSERT_EQ(two->join().get(), base::ok());
  auto gathering = one.gather("address", "one", 60s);
  two.reset();
  const auto got = gathering.get();
  EXPECT_EQ(got.status().code(), Code::kPeerLost);
  EXPECT_THAT(got.status().message(), HasSubstr("rank 2 is gone"));
  EXPECT_THAT(got.status().message(), HasSubstr("'address'"));
  // A rank that asks later hears it at once.
  EXPECT_EQ(one.gather("address", "one", 60s).get().status().code(), Code::kPeerLost);
}

// The address sanitizer opens pipes of its own to look at memory, and takes their failure for ours.
constexpr bool kCanDoWithoutFiles =
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
    false &&
#endif
#endif
    true;

// No file can be opened while it lives.
class NoFilesLeft final {
 public:
  NoFilesLeft() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 3;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  ~NoFilesLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoFilesLeft(const NoFilesLeft&) = delete;
  NoFilesLeft& operator=(const NoFilesLeft&) = delete;

 private:
  rlimit before_{};
};

// Connects while the server can open no file; returns when the server has seen that.
net::Fd knockWithoutFiles(TestServer& server) {
  net::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const NoFilesLeft noFiles;
  EXPECT_EQ(::connect(socket.get(), server.address().raw(), server.address().rawSize()), 0);
  for (int turn = 0; turn < 2; ++turn)
    onLoop(server.loop(), [] {});  // one look at the sockets in between
  return socket;
}

TEST_F(Joining, AServerThatWaitsForFilesMayEnd) {
  if (!kCanDoWithoutFiles) GTEST_SKIP() << "the address sanitizer needs files of its own";
  TestServer server(serverOptions(2));
  const auto socket = knockWithoutFiles(server);
  server.stop();
  std::future<bool> waited;
  auto done = completion(waited);
  server.loop().post([&] { server.loop().after(1200ms, [done] { done(true); }); });
  EXPECT_TRUE(waited.get());  // past the time at which it would have looked again
}

TEST_F(Joining, AServerThatWaitedForFilesGoesOn) {
  if (!kCanDoWithoutFiles) GTEST_SKIP() << "the address sanitizer needs files of its own";
  TestServer server(serverOptions(2));
  const auto socket = knockWithoutFiles(server);
  TestRank rank(ranks_.loop(), rankOptions(1, server.address(), 2));
  EXPECT_EQ(rank.join().get(), base::ok());
}

TEST_F(Joining, RankZeroHearsWhenAllOthersHaveLeft) {
  TestServer server(serverOptions(2));
  auto rank = std::make_unique<TestRank>(ranks_.loop(), rankOptions(1, server.address(), 2));
  ASSERT_EQ(rank->join().get(), base::ok());
  auto left = std::make_shared<std::promise<void>>();
  auto heard = left->get_future();
  onLoop(server.loop(), [&] { server.server().whenAllLeft(60s, [left] { left->set_value(); }); });
  EXPECT_EQ(heard.wait_for(30ms), std::future_status::timeout);
  rank.reset();
  heard.get();
}

}  // namespace
}  // namespace sluice::rendezvous
