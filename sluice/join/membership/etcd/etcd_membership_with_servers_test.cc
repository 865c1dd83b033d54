#include <sluice/join/membership/etcd/etcd_membership.h>

#include <sluice/join/membership/etcd/testing/etcd_store.h>
#include <sluice/join/membership/etcd/testing/relay.h>
#include <sluice/join/membership/testing/contract_suite.h>

namespace sluice::membership {

namespace contract {

INSTANTIATE_TEST_SUITE_P(Etcd, MembershipContract,
                         testing::Values(StoreCase{"servers",
                                                   []() -> std::unique_ptr<StoreUnderTest> {
                                                     EtcdServers* servers = sharedServers();
                                                     if (servers == nullptr) return nullptr;
                                                     return std::make_unique<EtcdStore>(*servers);
                                                   }}),
                         caseName);

}  // namespace contract

namespace {

using namespace std::chrono_literals;
using contract::epochOf;
using contract::MemberSeat;
using testing::HasSubstr;

class EtcdMembershipTest : public testing::Test {
 protected:
  void SetUp() override {
    if (sharedServers() == nullptr)
      GTEST_SKIP() << "etcd is not installed; run scripts/install_deps.sh";
    store_ = std::make_unique<EtcdStore>(*sharedServers());
    options_ = {.job = "job-" + RandomId::random().toString().substr(0, 8),
                .key = secret::JobKey::random(),
                .pollEvery = 60s};
  }
  EtcdServers& servers() { return store_->servers(); }
  // Puts a relay before the first server, and makes it the only one.
  std::unique_ptr<EtcdRelay> onlyRelay() {
    auto relay = std::make_unique<EtcdRelay>(servers().port(0));
    store_->options().address.servers = {fmt::format("127.0.0.1:{}", relay->port())};
    return relay;
  }
  static StoredEpoch begun(MemberSeat& seat) {
    auto stored = seat.begin(epochOf(0, {seat.self()}, "the job begins"));
    EXPECT_TRUE(stored.isOk()) << stored.status().toString();
    return *stored;
  }
  static EpochRecord following(const StoredEpoch& before, const MemberSeat& seat) {
    return epochOf(index(before.record.number) + 1, {seat.self()}, "a change");
  }

  std::unique_ptr<EtcdStore> store_;
  StoreOptions options_;
};

TEST_F(EtcdMembershipTest, AChangeSurvivesTheLeadersDeath) {
  MemberSeat one(*store_, options_, "one");
  MemberSeat watcher(*store_, options_, "watcher");
  StoredEpoch before = begun(one);
  watcher.watch();
  ASSERT_TRUE(watcher.waitReported(Epoch{0}));
  for (size_t i = 0; i < servers().count(); ++i) {
    if (!servers().leads(i)) continue;
    const EpochRecord next = following(before, one);
    const auto answer = one.startReplace(before, next);
    servers().kill(i);
    const EpochRecord afterwards = epochOf(2, {one.self()}, "after the leader's death");
    const auto stored = one.wait(answer);
    ASSERT_TRUE(stored.isOk()) << stored.status().toString();
    EXPECT_EQ(stored->record, next);
    const TimePoint start = store_->now();
    ASSERT_TRUE(one.replace(*stored, afterwards).isOk());
    EXPECT_LT(store_->now() - start, 6s);
    servers().restart(i);
    EXPECT_TRUE(watcher.waitReported(Epoch{2}));
    ASSERT_TRUE(servers().waitServing());
    return;
  }
  ADD_FAILURE() << "nobody leads";
}

TEST_F(EtcdMembershipTest, AnAnswerThatIsLostAfterSuccessIsKnownByItsNonce) {
  const auto relay = onlyRelay();
  MemberSeat one(*store_, options_, "one");
  StoredEpoch before = begun(one);
  for (int lost = 1; lost <= 3; ++lost) {
    const EpochRecord next = following(before, one);
    relay->swallow(lost);
    const auto stored = one.replace(before, next);
    ASSERT_TRUE(stored.isOk()) << stored.status().toString();
    EXPECT_EQ(relay->leftToSwallow(), 0);
    EXPECT_EQ(stored->record, next);
    before = *stored;
  }
  EXPECT_EQ(one.history(10)->size(), 4U);
}

TEST_F(EtcdMembershipTest, AWatchCatchesUpAfterACutAndACompaction) {
  MemberSeat proposer(*store_, options_, "proposer");
  const auto relay = onlyRelay();
  MemberSeat watcher(*store_, options_, "watcher");
  StoredEpoch before = begun(proposer);
  watcher.watch();
  ASSERT_TRUE(watcher.waitReported(Epoch{0}));
  for (const bool isCompacted : {false, true}) {
    // Reads that the watch began with must not be what catches up.
    (void)store_->runUntil([] { return false; }, 200ms);
    relay->setCut(true);
    for (int i = 0; i < 3; ++i) before = *proposer.replace(before, following(before, proposer));
    if (isCompacted)
      servers().postAnywhere("/v3/kv/compaction",
                             fmt::format(R"({{"revision":"{}"}})", before.revision));
    relay->setCut(false);
    EXPECT_TRUE(watcher.waitReported(before.record.number, 10s));
  }
  before = *proposer.replace(before, following(before, proposer));
  EXPECT_TRUE(watcher.waitReported(before.record.number));
}

TEST_F(EtcdMembershipTest, AServerWithoutALeaderDoesNotSilenceAWatch) {
  MemberSeat proposer(*store_, options_, "proposer");
  MemberSeat watcher(*store_, options_, "watcher");
  StoredEpoch before = begun(proposer);
  watcher.watch();
  ASSERT_TRUE(watcher.waitReported(Epoch{0}));
  servers().kill(0);
  servers().kill(1);
  EXPECT_FALSE(
      proposer.wait(proposer.startReplace(before, following(before, proposer), 1500ms)).isOk());
  EXPECT_TRUE(proposer.waitHealth(false));
  EXPECT_THAT(proposer.healths().back().message(), HasSubstr("none of the etcd servers"));
  servers().restart(0);
  servers().restart(1);
  ASSERT_TRUE(servers().waitServing());
  const StoredEpoch now = *proposer.latest();
  const auto next = proposer.replace(now, following(now, proposer));
  ASSERT_TRUE(next.isOk());
  EXPECT_TRUE(watcher.waitReported(next->record.number, 10s));
}

TEST_F(EtcdMembershipTest, ARemovedAnnouncementIsMadeAnew) {
  MemberSeat one(*store_, options_, "one");
  ASSERT_TRUE(one.announce().isOk());
  const std::string key = JobSpace(options_.job, options_.key).seal(one.self()).key;
  store_->remove(key);
  for (const TimePoint end = store_->now() + 10s; !store_->get(key) && store_->now() < end;)
    std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(store_->get(key));
}

TEST_F(EtcdMembershipTest, NobodyListeningIsNamed) {
  store_->options().address.servers = {"127.0.0.1:1", "localhost:1"};
  MemberSeat one(*store_, options_, "one");
  const auto status = one.wait(one.startLatest(2s)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("127.0.0.1:1, localhost:1"));
  EXPECT_THAT(one.firstFault(), HasSubstr("Connection refused"));
}

TEST_F(EtcdMembershipTest, SomethingThatIsNotEtcdIsNamed) {
  // The port for other servers answers, but with other pages.
  store_->options().address.servers = {fmt::format("127.0.0.1:{}", servers().peerPort(0))};
  MemberSeat one(*store_, options_, "one");
  const auto status = one.wait(one.startLatest(2s)).status();
  EXPECT_EQ(status.code(), Code::kTimeout);
  EXPECT_THAT(status.message(), HasSubstr("HTTP status 404 without JSON"));
}

// ---- Users ----

class EtcdUsersTest : public testing::Test {
 protected:
  static constexpr const char* kPassword = "the-right-password";

  void SetUp() override {
    // Tokens live for a second, and passwords are checked quickly.
    servers_ = EtcdServers::start(1, false, {"--auth-token-ttl", "1", "--bcrypt-cost", "4"});
    if (!servers_) GTEST_SKIP() << "etcd is not installed; run scripts/install_deps.sh";
    store_ = std::make_unique<EtcdStore>(*servers_);
  }
  void enableUsers() { servers_->enableUsers("trainer", "guest", kPassword); }
  void logInAs(const std::string& user, const std::string& password) {
    store_->options().user = user;
    store_->options().password = password;
  }
  Status whyNot() {
    MemberSeat one(*store_, options_, "one");
    return one.wait(one.startLatest(3s)).status();
  }

  std::unique_ptr<EtcdServers> servers_;
  std::unique_ptr<EtcdStore> store_;
  const StoreOptions options_{.job = "job", .key = secret::JobKey::random(), .pollEvery = 60s};
};

TEST_F(EtcdUsersTest, ATokenThatHasEndedOrWasForgottenIsRenewed) {
  enableUsers();
  logInAs("trainer", kPassword);
  MemberSeat one(*store_, options_, "one");
  MemberSeat watcher(*store_, options_, "watcher");
  watcher.watch();
  auto stored = one.begin(epochOf(0, {one.self()}, "the job begins"));
  ASSERT_TRUE(stored.isOk()) << stored.status().toString();
  EXPECT_TRUE(watcher.waitReported(Epoch{0}));
  for (const bool isRestarted : {false, true}) {
    std::this_thread::sleep_for(2500ms);  // etcd looks for old tokens once in a second
    if (isRestarted) {
      servers_->kill(0);
      servers_->restart(0);
    }
    const auto next =
        epochOf(index(stored->record.number) + 1, {one.self()}, "later than its token");
    stored = one.replace(*stored, next);
    ASSERT_TRUE(stored.isOk()) << stored.status().toString();
    EXPECT_EQ(stored->record, next);
    EXPECT_TRUE(watcher.waitReported(next.number, 10s));
  }
  ASSERT_TRUE(one.announce().isOk());
  EXPECT_TRUE(one.withdraw().isOk());
}

TEST_F(EtcdUsersTest, WhoMayNotEnterIsToldWhy) {
  logInAs("trainer", kPassword);
  EXPECT_THAT(whyNot().message(), HasSubstr("authentication is not enabled"));
  enableUsers();
  EXPECT_EQ(whyNot().code(), Code::kNotFound);  // of an epoch, which nobody has begun
  logInAs("guest", kPassword);
  EXPECT_THAT(whyNot().message(), HasSubstr("permission denied"));
  logInAs("", "");
  EXPECT_THAT(whyNot().message(), HasSubstr("give members-user and members-password-file"));
  logInAs("trainer", "a-wrong-password");
  const Status wrong = whyNot();
  EXPECT_THAT(wrong.message(), HasSubstr("authentication failed"));
  EXPECT_THAT(wrong.message(), HasSubstr("check members-user"));
  EXPECT_THAT(wrong.message(), testing::Not(HasSubstr("a-wrong-password")));
}

// ---- TLS ----

TEST(EtcdMembershipTls, BothEndsShowCertificates) {
  const auto servers = EtcdServers::start(1, /*hasTls=*/true);
  if (!servers) GTEST_SKIP() << "etcd is not installed; run scripts/install_deps.sh";
  const StoreOptions options{.job = "job", .key = secret::JobKey::random()};
  EtcdStore store(*servers);
  {
    MemberSeat one(store, options, "one");
    one.watch();
    ASSERT_TRUE(one.announce().isOk());
    const auto stored = one.begin(epochOf(0, {one.self()}, "the job begins"));
    ASSERT_TRUE(stored.isOk()) << stored.status().toString();
    EXPECT_TRUE(one.waitReported(Epoch{0}));
  }
  const TlsFiles right = store.options().files;
  store.options().files = {.ca = right.ca, .certificate = {}, .key = {}};
  {
    MemberSeat nobody(store, options, "nobody");
    nobody.startLatest();
    EXPECT_NE(nobody.firstFault(), "");
  }
  store.options().files = {.ca = {}, .certificate = right.certificate, .key = right.key};
  MemberSeat distrustful(store, options, "distrustful");
  distrustful.startLatest();
  EXPECT_THAT(distrustful.firstFault(), HasSubstr("certificate"));
}

}  // namespace
}  // namespace sluice::membership
