#include <sluice/join/membership/testing/contract_suite.h>

#include <set>

namespace sluice::membership::contract {

using testing::HasSubstr;

// ---- Epochs ----

TEST_P(MembershipContract, AJobThatHasNotBegunHasNoEpoch) {
  const auto one = seat();
  EXPECT_EQ(one->latest().status().code(), Code::kNotFound);
  EXPECT_THAT(one->latest().status().message(), HasSubstr(options_.job));
  EXPECT_TRUE(one->history(10)->empty());
}

TEST_P(MembershipContract, OneOfManyBeginsTheJob) {
  const auto all = seats(4);
  std::vector<EpochRecord> firsts;
  std::vector<Awaited<Result<StoredEpoch>>> answers;
  for (const auto& one : all) {
    firsts.push_back(epochOf(0, {one->self()}, "the job begins"));
    answers.push_back(one->startBegin(firsts.back()));
  }
  std::set<Nonce> winners;
  for (size_t i = 0; i < all.size(); ++i) {
    const auto stored = all[i]->wait(answers[i]);
    ASSERT_TRUE(stored.isOk()) << stored.status().toString();
    winners.insert(stored->record.nonce);
  }
  EXPECT_EQ(winners.size(), 1U);
  EXPECT_EQ(all[0]->latest()->record.nonce, *winners.begin());
  const auto late = seat();
  EXPECT_EQ(begun(*late).record.nonce, *winners.begin());
}

TEST_P(MembershipContract, OfManyProposersOneWinsAndAllAreToldWho) {
  const auto all = seats(4);
  StoredEpoch before = begun(*all[0]);
  for (uint32_t round = 1; round <= 8; ++round) {
    std::vector<Awaited<Result<StoredEpoch>>> answers;
    for (const auto& one : all)
      answers.push_back(one->startReplace(before, following(before, *one)));
    std::set<Nonce> winners;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto stored = all[i]->wait(answers[i]);
      ASSERT_TRUE(stored.isOk()) << stored.status().toString();
      EXPECT_EQ(stored->record.number, Epoch{round});
      winners.insert(stored->record.nonce);
      before = *stored;
    }
    EXPECT_EQ(winners.size(), 1U);
  }
}

TEST_P(MembershipContract, ARecordComesOutAsItWentIn) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  EpochRecord next = following(first, *one);
  next.members.push_back(memberNamed("another host"));
  next.lost.push_back(memberNamed("a lost host"));
  next.why = "rank 1 is lost: nothing heard for 2.1 s";
  const auto stored = one->replace(first, next);
  ASSERT_TRUE(stored.isOk());
  EXPECT_EQ(stored->record, next);
  EXPECT_EQ(seat()->latest()->record, next);
}

TEST_P(MembershipContract, AProposalThatFollowsAnOldEpochLoses) {
  const auto one = seat();
  const auto two = seat();
  const StoredEpoch first = begun(*one);
  const auto second = one->replace(first, following(first, *one));
  ASSERT_TRUE(second.isOk());
  // Also with a number that is free.
  for (const uint32_t by : {1U, 2U, 7U}) {
    const auto stored = two->replace(first, following(first, *two, by));
    ASSERT_TRUE(stored.isOk());
    EXPECT_EQ(stored->record, second->record) << by;
  }
  EXPECT_EQ(one->latest()->record, second->record);
}

TEST_P(MembershipContract, NumbersMayBeLeftOut) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  const auto later = one->replace(first, following(first, *one, 1'000'000'000));
  ASSERT_TRUE(later.isOk());
  EXPECT_EQ(later->record.number, Epoch{1'000'000'000});
  const auto stale = seat()->replace(first, following(first, *one, 5));
  ASSERT_TRUE(stale.isOk());
  EXPECT_EQ(stale->record, later->record);
}

TEST_P(MembershipContract, TheSameProposalMadeTwiceIsMadeOnce) {
  const auto one = seat();
  const auto two = seat();
  const StoredEpoch first = begun(*one);
  const EpochRecord next = following(first, *one);
  EXPECT_EQ(one->replace(first, next)->record, next);
  EXPECT_EQ(two->replace(first, next)->record, next);  // as after a lost answer
  EXPECT_EQ(one->history(10)->size(), 2U);
}

TEST_P(MembershipContract, HistoryHasTheLastEpochsOldestFirst) {
  const auto one = seat();
  StoredEpoch before = begun(*one);
  for (int i = 0; i < 16; ++i) before = *one->replace(before, following(before, *one));
  for (const uint32_t most : {2, 8, 9, 16, 17, 100}) {  // a store is asked for eight at a time
    const auto last = one->history(most);
    ASSERT_TRUE(last.isOk());
    const uint32_t count = std::min(most, 17U);
    ASSERT_EQ(last->size(), count);
    for (uint32_t i = 0; i < count; ++i) EXPECT_EQ((*last)[i].number, Epoch{17 - count + i});
  }
}

TEST_P(MembershipContract, WrongRecordsAreRefused) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  EpochRecord next = following(first, *one);
  next.number = first.record.number;
  EXPECT_EQ(one->replace(first, next).status().code(), Code::kInvalidArgument);
  next = following(first, *one);
  next.members.push_back(next.members.front());
  EXPECT_EQ(one->replace(first, next).status().code(), Code::kInvalidArgument);
  next.members.clear();
  EXPECT_EQ(one->replace(first, next).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(one->latest()->record, first.record);
}

// ---- Watches ----

TEST_P(MembershipContract, AWatchReportsEachNewerEpochOnceInRisingOrder) {
  const auto proposer = seat();
  StoredEpoch before = begun(*proposer);
  const auto all = seats(3);
  for (const auto& one : all) one->watch();
  proposer->watch();
  for (int i = 0; i < 12; ++i) before = *proposer->replace(before, following(before, *proposer));
  for (const auto& one : all) {
    ASSERT_TRUE(one->waitReported(Epoch{12}));
    const auto reported = one->reported();
    for (size_t i = 1; i < reported.size(); ++i)
      EXPECT_LT(reported[i - 1].record.number, reported[i].record.number);
    EXPECT_EQ(reported.back().record, before.record);
  }
  EXPECT_EQ(proposer->reported().size(), 12U);  // its own ones, but not that before the watch
}

TEST_P(MembershipContract, AWatchReportsAnEpochFromBeforeIt) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  const auto late = seat();
  late->watch();
  ASSERT_TRUE(late->waitReported(Epoch{0}));
  EXPECT_EQ(late->reported().front().record, first.record);
}

// ---- Announcements ----

TEST_P(MembershipContract, AMemberIsSeenFromItsAnnouncementToItsWithdrawal) {
  const auto all = seats(3);
  for (const auto& one : all) ASSERT_TRUE(one->announce().isOk());
  auto seen = all[0]->announced();
  ASSERT_TRUE(seen.isOk());
  EXPECT_EQ(seen->size(), 3U);
  for (const auto& one : all) {
    EXPECT_THAT(*seen, testing::Contains(one->self()));
    EXPECT_TRUE(one->waitAnnounced(true));
  }
  EXPECT_TRUE(all[1]->withdraw().isOk());
  EXPECT_EQ(all[0]->announced()->size(), 2U);
}

TEST_P(MembershipContract, ALostLeaseIsGrantedAnewAndEndsNobody) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  ASSERT_TRUE(one->announce().isOk());
  store().endLeases();
  const std::string key = space().seal(one->self()).key;
  for (const TimePoint end = store().now() + 20s; !store().get(key) && store().now() < end;)
    (void)store().runUntil([] { return false; }, 50ms);
  EXPECT_TRUE(store().get(key));
  EXPECT_TRUE(one->waitAnnounced(true));
  EXPECT_EQ(one->latest()->record, first.record);
}

// ---- A store that cannot be reached ----

TEST_P(MembershipContract, WithoutTheStoreMembershipIsFrozenUntilItIsBack) {
  const auto one = seat();
  const auto two = seat();
  const StoredEpoch first = begun(*one);
  one->watch();
  two->watch();
  ASSERT_TRUE(two->waitReported(Epoch{0}));
  store().setAvailable(false);
  const auto late = one->startReplace(first, following(first, *one), 700ms);
  EXPECT_EQ(one->wait(late).status().code(), Code::kTimeout);
  EXPECT_TRUE(one->waitHealth(false));
  ASSERT_FALSE(one->healths().empty());
  EXPECT_EQ(one->healths().front().code(), Code::kUnavailable);
  EXPECT_FALSE(one->healths().front().message().empty());
  const auto patient = one->startReplace(first, following(first, *one, 2));
  store().setAvailable(true);
  const auto stored = one->wait(patient);
  ASSERT_TRUE(stored.isOk()) << stored.status().toString();
  EXPECT_TRUE(one->waitHealth(true));
  EXPECT_TRUE(two->waitReported(stored->record.number));
  EXPECT_TRUE(two->waitHealth(true));
}

TEST_P(MembershipContract, AnObjectThatGoesEndsItsRequests) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  std::vector<Awaited<Result<StoredEpoch>>> answers(5);
  Awaited<Status> announced;
  store().onLoop([&] {
    Membership& membership = one->membership();
    membership.latest(kTestPatience, answers[0].callback());
    membership.replace(first, following(first, *one), kTestPatience, answers[1].callback());
    membership.begin(first.record, kTestPatience, answers[2].callback());
    membership.replace(first, first.record, kTestPatience, answers[3].callback());
    membership.replace(first, following(first, *one), kTestPatience, answers[4].callback());
    membership.announce(one->self(), kTestPatience, announced.callback());
    membership.watch([](const StoredEpoch&) {});
  });
  // Some are answered by now, in a store with a thread of its own.
  one->leave();
  store().onLoop([&] {
    for (const auto& answer : answers) EXPECT_EQ(answer.times(), 1);
    EXPECT_EQ(announced.times(), 1);
  });
}

// ---- What should not be in the store ----

TEST_P(MembershipContract, ValuesOfStrangersAreIgnored) {
  const auto one = seat();
  const auto watcher = seat();
  const StoredEpoch first = begun(*one);
  const StoredEpoch second = *one->replace(first, following(first, *one));
  watcher->watch();
  ASSERT_TRUE(watcher->waitReported(Epoch{1}));

  const JobSpace otherJob(options_.job + "x", options_.key);
  const JobSpace otherKey(options_.job, secret::JobKey::random());
  const std::string old = *store().get(space().seal(first.record).key);
  using Forge = std::function<std::string(const EpochRecord&)>;
  const std::vector<std::pair<std::string, Forge>> forgeries{
      {"nothing", [](const EpochRecord&) { return ""; }},
      {"garbage", [](const EpochRecord&) { return "garbage"; }},
      {"long garbage", [](const EpochRecord&) { return std::string(100'000, 'x'); }},
      {"an old epoch's value", [&](const EpochRecord&) { return old; }},
      {"another job's value", [&](const EpochRecord& r) { return otherJob.seal(r).value; }},
      {"another key's value", [&](const EpochRecord& r) { return otherKey.seal(r).value; }},
      {"no seal", [](const EpochRecord& r) { return encode(r); }}};
  StoredEpoch before = second;
  for (const auto& [what, forge] : forgeries) {
    // As the next epoch, and far above.
    for (const uint32_t by : {1U, 1000U}) {
      const EpochRecord forged = following(before, *one, by);
      store().put(space().seal(forged).key, forge(forged));
    }
    EXPECT_EQ(one->latest()->record, before.record) << what;
    const auto stored = one->replace(before, following(before, *one));
    ASSERT_TRUE(stored.isOk()) << what << ": " << stored.status().toString();
    EXPECT_EQ(stored->record.number, Epoch{index(before.record.number) + 1}) << what;
    before = *stored;
  }
  ASSERT_TRUE(watcher->waitReported(before.record.number));
  for (const StoredEpoch& reported : watcher->reported())
    EXPECT_LE(reported.record.number, before.record.number);
}

TEST_P(MembershipContract, AStrangersMemberIsNotAnnounced) {
  const auto one = seat();
  ASSERT_TRUE(one->announce().isOk());
  const Member stranger = memberNamed("stranger");
  store().put(space().seal(stranger).key, *store().get(space().seal(one->self()).key));
  store().put(space().members().first + "garbage", "garbage");
  const auto seen = one->announced();
  ASSERT_TRUE(seen.isOk());
  EXPECT_THAT(*seen, testing::ElementsAre(one->self()));
}

TEST_P(MembershipContract, NobodyFollowsAnEpochWhoseSuccessorTheStoreHasLost) {
  const auto one = seat();
  const auto behind = seat();
  one->watch();
  StoredEpoch before = begun(*one);
  before = *one->replace(before, following(before, *one));
  const StoredEpoch old = *behind->latest();
  for (int i = 0; i < 3; ++i) before = *one->replace(before, following(before, *one));
  // Epochs 2 to 4 are gone, as after somebody deleted them.
  for (uint32_t number = 2; number <= 4; ++number)
    store().remove(space().seal(epochOf(number, {one->self()}, "")).key);
  EXPECT_EQ(seat()->latest()->record.number, Epoch{1});
  for (const uint32_t by : {1U, 4U, 7U}) {
    EXPECT_EQ(behind->replace(old, following(old, *behind, by)).status().code(), Code::kNotFound);
  }
  // A member that has seen the last one goes on.
  EXPECT_EQ(one->latest()->record, before.record);
  before = *one->replace(before, following(before, *one));
  EXPECT_EQ(behind->latest()->record, before.record);
  const auto reported = one->reported();
  ASSERT_EQ(reported.size(), 6U);
  for (size_t i = 1; i < reported.size(); ++i)
    EXPECT_LT(reported[i - 1].record.number, reported[i].record.number);
}

TEST_P(MembershipContract, NobodyFollowsAnEpochOfAStoreThatHasLostEverything) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  const std::string epoch = space().seal(first.record).key;
  const std::string value = *store().get(epoch);
  store().remove(epoch);
  store().remove(space().latchKey(Epoch{0}));
  const auto refused = one->replace(first, following(first, *one)).status();
  EXPECT_EQ(refused.code(), Code::kNotFound);
  EXPECT_THAT(refused.message(), HasSubstr(options_.job));
  // Keys that a stranger has made anew are not the old ones.
  store().put(epoch, value);
  store().put(space().latchKey(Epoch{0}), "");
  EXPECT_EQ(one->replace(first, following(first, *one)).status().code(), Code::kNotFound);
  EXPECT_EQ(one->latest()->record, first.record);
}

TEST_P(MembershipContract, AnOverwrittenEpochIsFollowedAllTheSame) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  store().put(space().seal(first.record).key, "garbage");
  store().put(space().latchKey(Epoch{0}), "garbage");
  const auto next = one->replace(first, following(first, *one));
  ASSERT_TRUE(next.isOk()) << next.status().toString();
  EXPECT_EQ(next->record.number, Epoch{1});
}

TEST_P(MembershipContract, EpochsOfAnotherRunAreIgnored) {
  const auto one = seat();
  const StoredEpoch first = begun(*one);
  store().onLoop([&] { one->membership().bindTo(first.record.run); });
  one->watch();
  for (const uint32_t by : {1U, 5U}) {
    EpochRecord kept = following(first, *one, by);
    kept.run = Nonce::random();
    const Entry entry = space().seal(kept);
    store().put(entry.key, entry.value);
  }
  EXPECT_EQ(one->latest()->record, first.record);
  const auto next = one->replace(first, following(first, *one));
  ASSERT_TRUE(next.isOk()) << next.status().toString();
  EXPECT_EQ(next->record.number, Epoch{1});
  (void)store().runUntil([] { return false; }, 100ms);
  ASSERT_EQ(one->reported().size(), 1U);
  EXPECT_EQ(one->reported().front().record, next->record);
}

TEST_P(MembershipContract, JobsOfOneNameWithDifferentKeysDoNotSeeEachOther) {
  const auto one = seat();
  begun(*one);
  ASSERT_TRUE(one->announce().isOk());
  StoreOptions other = options_;
  other.key = secret::JobKey::random();
  MemberSeat stranger(store(), other, "stranger");
  EXPECT_EQ(stranger.latest().status().code(), Code::kNotFound);
  EXPECT_TRUE(stranger.announced()->empty());
}

}  // namespace sluice::membership::contract
