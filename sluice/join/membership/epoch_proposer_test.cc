#include <sluice/join/membership/epoch_proposer.h>

#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/base/testing/manual_loop.h>
#include <sluice/join/membership/testing/memory_membership.h>

namespace sluice::membership {
namespace {

using namespace std::chrono_literals;

// Members of one job, on one loop. What a member sees reaches the others at once, unless it is cut
// off.
class EpochProposerTest : public testing::Test {
 protected:
  struct Party {
    std::unique_ptr<Membership> membership;
    MemoryKeyValues* way = nullptr;
    std::unique_ptr<EpochProposer> proposer;
    bool isSilent = false;  // the others do not hear what it has seen
    std::vector<Epoch> epochs;
    Status end;
  };

  ~EpochProposerTest() override {
    onLoop([this] { parties_.clear(); });
  }

  void onLoop(const Task& task) {
    loop_.post(task);
    loop_.runReady();
  }

  void start(size_t members, const EpochProposerOptions& options = {}) {
    EpochRecord first;
    for (size_t m = 0; m < members; ++m) {
      first.members.push_back(
          {.id = MemberId::random(), .host = fmt::format("host{}", m), .address = ""});
    }
    first.why = "the job begins";
    first.proposer = first.members.front().id;
    first.nonce = Nonce::random();
    first.run = first.nonce;
    members_ = first.members;
    parties_.resize(members);
    for (size_t m = 0; m < members; ++m) {
      onLoop([&, m] {
        auto store = makeMemoryMembership(loop_, table_, {.job = "test", .key = key_});
        parties_[m].membership = std::move(store.membership);
        parties_[m].way = store.way;
        parties_[m].membership->begin(first, 10s, [this, m, options](Result<StoredEpoch> stored) {
          startProposer(m, *std::move(stored), options);
        });
      });
    }
  }

  void startProposer(size_t m, StoredEpoch stored, const EpochProposerOptions& options) {
    Party& party = parties_[m];
    party.proposer = std::make_unique<EpochProposer>(
        loop_, *party.membership, members_[m].id, std::move(stored), options,
        EpochProposer::Events{
            .onEpoch =
                [&party](const StoredEpoch& next) { party.epochs.push_back(next.record.number); },
            .onEnd = [&party](const Status& why) { party.end = why; },
            .tellOthers = [this, m](const MemberId& lost) { tellOthers(m, lost); },
            .nextStep = [] { return Step{7}; }});
  }

  void tellOthers(size_t witness, const MemberId& lost) {
    if (parties_[witness].isSilent) return;
    for (Party& other : parties_) {
      if (&other != &parties_[witness] && !other.isSilent)
        other.proposer->heardOfLoss(lost, members_[witness].id);
    }
  }

  void sees(size_t witness, size_t lost) {
    onLoop([&] {
      parties_[witness].proposer->sawLoss(members_[lost].id,
                                          Status(Code::kPeerLost, "it is silent"));
    });
  }

  std::vector<std::string> hosts(size_t m) const {
    std::vector<std::string> hosts;
    for (const Member& member : parties_[m].proposer->epoch().record.members)
      hosts.push_back(member.host);
    return hosts;
  }

  using Hosts = std::vector<std::string>;
  base::ManualLoop loop_;
  const std::shared_ptr<MemoryTable> table_ = std::make_shared<MemoryTable>();
  const secret::JobKey key_ = secret::JobKey::random();
  std::vector<Member> members_;
  std::vector<Party> parties_;
};

TEST_F(EpochProposerTest, TwoWitnessesRemoveALostMemberAtOnce) {
  start(3);
  sees(0, 2);
  EXPECT_EQ(parties_[0].proposer->describeWait(), "host2 is lost, as one member has seen");
  loop_.advance(100ms);
  EXPECT_TRUE(parties_[0].epochs.empty());
  sees(1, 2);
  loop_.advance(200ms);
  for (const size_t m : {0, 1}) {
    EXPECT_EQ(parties_[m].epochs, std::vector{Epoch{1}});
    EXPECT_EQ(hosts(m), (Hosts{"host0", "host1"}));
    EXPECT_EQ(parties_[m].proposer->describeWait(), "");
  }
  const EpochRecord& record = parties_[1].proposer->epoch().record;
  EXPECT_EQ(record.firstStep, Step{7});
  ASSERT_EQ(record.lost.size(), 1U);
  EXPECT_EQ(record.lost.front().host, "host2");
  EXPECT_EQ(record.why, "host2 is lost, as 2 members have seen (it is silent)");
}

TEST_F(EpochProposerTest, OfTwoMembersTheSurvivorGoesOnAlone) {
  start(2);
  sees(1, 0);
  loop_.advance(200ms);
  EXPECT_EQ(parties_[1].epochs, std::vector{Epoch{1}});
  EXPECT_EQ(hosts(1), Hosts{"host1"});
}

TEST_F(EpochProposerTest, AMemberThatIsCutOffDoesNotTurnTheOthersOut) {
  start(4);
  parties_[0].isSilent = true;
  for (const size_t other : {1, 2, 3}) sees(0, other);
  loop_.advance(300ms);  // the others notice later
  for (const size_t other : {1, 2, 3}) sees(other, 0);
  loop_.advance(5s);
  EXPECT_EQ(hosts(1), (Hosts{"host1", "host2", "host3"}));
  EXPECT_EQ(parties_[1].epochs.size(), 1U);
  EXPECT_EQ(parties_[0].end.code(), Code::kPeerLost);
  EXPECT_EQ(parties_[0].end.message(),
            "this process is not in epoch 1 of the job: host0 is lost, as 2 members have seen (it "
            "is silent); the members in it go on, and this one cannot come back");
}

TEST_F(EpochProposerTest, TwoMembersThatCannotHearEachOtherDoNotWaitForEver) {
  start(3);
  sees(0, 1);
  sees(1, 0);
  loop_.advance(1s);
  EXPECT_TRUE(parties_[2].epochs.empty());
  loop_.advance(1s);
  ASSERT_EQ(parties_[2].epochs.size(), 1U);
  EXPECT_EQ(hosts(2).size(), 2U);
  EXPECT_NE(parties_[0].end.isOk(), parties_[1].end.isOk());  // one of them is out
}

TEST_F(EpochProposerTest, SidesThatBothReachTheStoreAgreeOnOne) {
  start(4);
  for (const size_t m : {0, 1}) {
    for (const size_t other : {2, 3}) {
      onLoop([&] {
        parties_[m].isSilent = parties_[other].isSilent = true;
        parties_[m].proposer->heardOfLoss(members_[other].id, members_[1 - m].id);
        parties_[other].proposer->heardOfLoss(members_[m].id, members_[5 - other].id);
      });
      sees(m, other);
      sees(other, m);
    }
  }
  loop_.advance(5s);
  EXPECT_EQ(parties_[0].end.isOk(), parties_[1].end.isOk());
  EXPECT_EQ(parties_[2].end.isOk(), parties_[3].end.isOk());
  EXPECT_NE(parties_[0].end.isOk(), parties_[2].end.isOk());
}

TEST_F(EpochProposerTest, WaitsForAStoreThatIsAway) {
  start(2);
  table_->setUnavailable("it is away");
  sees(0, 1);
  loop_.advance(30s);
  EXPECT_TRUE(parties_[0].epochs.empty());
  EXPECT_NE(parties_[0].proposer->describeWait().find("the store does not agree yet"),
            std::string::npos);
  table_->setUnavailable("");
  loop_.advance(10s);
  EXPECT_EQ(parties_[0].epochs, std::vector{Epoch{1}});
}

TEST_F(EpochProposerTest, EndsWhenTheStoreHasLostTheEpoch) {
  start(3);
  table_->restore({});
  sees(0, 2);
  sees(1, 2);
  loop_.advance(1s);
  for (const size_t m : {0, 1}) {
    EXPECT_TRUE(parties_[m].epochs.empty());
    EXPECT_EQ(parties_[m].end.code(), Code::kNotFound);
  }
}

TEST_F(EpochProposerTest, EndsWhenTooFewAreLeft) {
  start(3, {.fewestMembers = 3});
  sees(0, 2);
  sees(1, 2);
  loop_.advance(1s);
  EXPECT_EQ(parties_[0].end.message(),
            "2 of 3 members are left, and the job wants at least 3: host2 is lost, as 2 members "
            "have seen (it is silent)");
}

TEST_F(EpochProposerTest, BelievesNobodyAboutStrangersOrItself) {
  start(3);
  onLoop([&] {
    parties_[0].proposer->sawLoss(members_[0].id, Status(Code::kPeerLost, "no"));
    parties_[0].proposer->sawLoss(MemberId::random(), Status(Code::kPeerLost, "no"));
    parties_[0].proposer->heardOfLoss(members_[1].id, MemberId::random());
    parties_[0].proposer->heardOfLoss(members_[1].id, members_[1].id);
    parties_[0].proposer->heardOfLoss(members_[1].id,
                                      members_[2].id);  // it has not seen that itself
  });
  loop_.advance(10s);
  EXPECT_TRUE(parties_[0].epochs.empty());
}

}  // namespace
}  // namespace sluice::membership
