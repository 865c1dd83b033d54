#include <sluice/session/elastic/testing/simulated_job.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/algorithms/testing/elastic_world.h>
#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/plan/roles.h>
#include <sluice/join/membership/job_space.h>

namespace sluice::session {
namespace {

using namespace std::chrono_literals;
using membership::EpochRecord;
using membership::JobSpace;

constexpr std::array kAlgorithms{"sluice",        "p3",        "slicing", "kvstore",
                                 "kvstore-parts", "allreduce", "wfbp",    "mgwfbp"};
constexpr std::string_view kKey =
    "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

// After the last fault has ended, the members that are left make their steps and leave, or end with
// an error that says why, within this time.
constexpr Duration kGoOnWithin = 60s;
constexpr Duration kToBegin = 60s;

// Less than the silence limit, together with the time until TCP tries again and a heartbeat.
constexpr Duration kLongestBlink = 600ms;
constexpr Duration kCalm = 4s;
constexpr Duration kFastStore = 40ms;
constexpr Duration kShortestOutage = 300ms;
constexpr Duration kLongestOutage = 7s;

constexpr std::array kNames{"blink",     "blinked path", "suspend all", "store away",
                            "store cut", "leases end",   "store wiped", "store restored",
                            "stranger",  "kill",         "lose host",   "stop",
                            "cut pair",  "cut off",      "split",       "break"};
constexpr size_t kGentleKinds = 9;
static_assert(static_cast<size_t>(JobFaultKind::kKill) == kGentleKinds);
static_assert(static_cast<size_t>(JobFaultKind::kBreak) + 1 == kNames.size());

Model smallModel() {
  Model model;
  for (const uint64_t elements : {9U, 7U, 1U})
    model.tensors.push_back({fmt::format("t{}", model.tensors.size()), elements, DType::kF32});
  return model;
}

std::vector<uint32_t> numbersOf(const std::vector<Rank>& ranks) {
  std::vector<uint32_t> numbers;
  for (const Rank rank : ranks) numbers.push_back(index(rank));
  return numbers;
}

std::vector<uint32_t> numbersOf(const std::vector<EpochLog>& epochs) {
  std::vector<uint32_t> numbers;
  for (const EpochLog& epoch : epochs) numbers.push_back(index(epoch.view.epoch));
  return numbers;
}

}  // namespace

SimulatedJob::SimulatedJob(uint64_t seed) : seed_(seed), time_(seed) {
  drawJob();
  putEarlierJob();
  drawFaults();
  network_ = std::make_unique<SimulatedNetwork>(time_, size_);
  for (uint32_t m = 0; m < size_; ++m)
    members_.push_back(std::make_unique<SimulatedMember>(*this, m));
  table_->setFaults(storeFaults_);
}

SimulatedJob::~SimulatedJob() {
  // Members go one by one, so those that are left must not hear of it.
  for (const auto& member : members_) member->kill(/*withItsHost=*/true);
  members_.clear();
  time_.clear();
}

// ---- The job ----

void SimulatedJob::drawJob() {
  size_ = static_cast<uint32_t>(2 + time_.below(4));
  steps_ = 6 + time_.below(7);
  SLUICE_CHECK(config_.set(option::kSliceElements, "5").isOk());
  algorithm_ =
      algorithms::readAlgorithm(kAlgorithms[time_.below(kAlgorithms.size())], config_).value();
  update_ = optimizer::parseOptimizerSpec("mean-gradient").value();
  plan::PlanSpec spec;
  spec.model = smallModel();
  spec.roles = plan::parseRoles("all", size_).value();
  spec.strategy = algorithm_->name;
  SLUICE_CHECK(algorithm_->choose(config_, spec).isOk());
  plan_ = std::make_unique<plan::Plan>(plan::Plan::make(std::move(spec)).value());
  const fabric::LivenessOptions liveness;
  proposerOptions_.aloneAfter = liveness.silenceLimit + 2 * liveness.interval;  // join_members.cc
  if (time_.below(8) == 0) proposerOptions_.fewestMembers = 1 + time_.below(size_);
  storeOptions_ = {.job = "job", .key = secret::JobKey::parse(kKey).value()};
  storeFaults_.seed = seed_;
  if (time_.below(2) == 0) return;
  constexpr std::array kDelays{Duration(0), Duration(3ms), Duration(40ms), Duration(500ms)};
  storeFaults_.longestDelay = kDelays[time_.below(kDelays.size())];
  storeFaults_.lostAnswers = 0.15 * static_cast<double>(time_.below(3));
  storeFaults_.lostNotices = 0.4 * static_cast<double>(time_.below(3));
  storeFaults_.lateRequests = 0.15 * static_cast<double>(time_.below(2));
  storeFaults_.longestLate = 6s;
}

membership::RandomId SimulatedJob::drawId() {
  std::array<std::byte, membership::kIdBytes> bytes{};
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(time_.below(256));
  return membership::RandomId(bytes);
}

EpochRecord SimulatedJob::firstRecord() {
  EpochRecord record;
  for (uint32_t m = 0; m < size_; ++m) {
    record.members.push_back({.id = drawId(),
                              .host = fmt::format("host{}", m),
                              .address = addressOf(m)});  // the first ports
  }
  record.why = "the job begins";
  record.proposer = record.members.front().id;
  record.nonce = drawId();
  record.run = record.nonce;
  return record;
}

// A job of the same name and key has run before, and its last epoch stands.
void SimulatedJob::putEarlierJob() {
  if (time_.below(3) != 0) return;
  EpochRecord record = firstRecord();
  record.number = Epoch{static_cast<uint32_t>(time_.below(6))};
  const JobSpace space(storeOptions_.job, storeOptions_.key);
  earlier_ = space.seal(record);
  table_->append({.key = earlier_->key,
                  .value = earlier_->value,
                  .latch = space.latchKey(record.number),
                  .absent = space.epochs(),
                  .opened = {},
                  .forgotten = {}},
                 time_.now());
}

void SimulatedJob::drawFaults() {
  const bool isGentle = time_.below(4) == 0;
  const bool isSound = time_.below(16) == 0;
  for (uint64_t left = isSound ? 0 : 1 + time_.below(isGentle ? 4 : 6); left > 0; --left) {
    JobFault fault;
    // Losses are what the members are for, so most faults are some.
    const uint64_t first = !isGentle && time_.below(3) != 0 ? kGentleKinds : 0;
    const uint64_t end = isGentle ? kGentleKinds : kNames.size();
    fault.kind = static_cast<JobFaultKind>(first + time_.below(end - first));
    fault.member = static_cast<uint32_t>(time_.below(size_));
    fault.other = static_cast<uint32_t>((fault.member + 1 + time_.below(size_ - 1)) % size_);
    fault.length = time_.between(kShortestOutage, kLongestOutage);
    fault.isOneWay = time_.below(3) == 0;
    fault.isFromStore = time_.below(2) == 0;
    switch (time_.below(8)) {
      case 0: fault.onceIn = LifePhase::kOpening; break;
      case 1: fault.onceIn = LifePhase::kLeaving; break;
      case 2: fault.onceIn = LifePhase::kOver; break;
      case 3:
      case 4: fault.onceInEpoch = true; break;
      default: break;
    }
    const bool isSoon = fault.onceIn || fault.onceInEpoch;
    fault.at = time_.upTo(isSoon ? Duration(10ms) : Duration(time_.below(4) != 0 ? 600ms : 6s));
    faults_.push_back(fault);
  }
  scheduled_.resize(faults_.size());
}

Status SimulatedJob::run() {
  first_ = firstRecord();
  members_.front()->writeFirst(first_);
  while (error_.isOk() && !isOver()) {
    if (time_.runNext(limit())) continue;
    violated(hasBegun_ ? "members neither go on nor end" : "the members do not join");
  }
  if (error_.isOk()) judge();
  return error_.isOk() ? error_ : error_.withContext(describe());
}

TimePoint SimulatedJob::limit() const {
  if (!hasBegun_) return TimePoint(1000s) + kToBegin;
  if (active_ > 0) return TimePoint::max();
  return lastFaultEnd_ + kGoOnWithin;
}

bool SimulatedJob::isOver() const {
  return std::ranges::all_of(members_, [](const auto& member) { return member->isOver(); });
}

void SimulatedJob::violated(const std::string& what) {
  if (error_.isOk()) error_ = Status(Code::kInternal, what);
}

void SimulatedJob::firstEpochIsWritten(Epoch number) {
  first_.number = number;
  for (uint32_t m = 1; m < size_; ++m)
    time_.after(time_.upTo(50ms), [this, m] { members_[m]->readFirst(first_.nonce); });
}

// The ranks tell each other that they have it, by the rendezvous, which is not simulated.
void SimulatedJob::hasRead(uint32_t /*member*/) {
  if (++read_ < size_) return;
  for (const auto& member : members_) time_.after(time_.upTo(50ms), [&member] { member->start(); });
}

void SimulatedJob::reached(uint32_t member, LifePhase phase) {
  time_.note({member, static_cast<uint64_t>(phase)});
  const auto hasJoined = [](const auto& each) { return each->phase() != LifePhase::kJoining; };
  if (!hasBegun_ && std::ranges::all_of(members_, hasJoined)) {
    hasBegun_ = true;
    lastFaultEnd_ = time_.now();
    keepBackup();
    for (size_t f = 0; f < faults_.size(); ++f) {
      const JobFault& fault = faults_[f];
      const bool isDue = !fault.onceIn || *fault.onceIn == LifePhase::kOpening;
      if (isDue && !fault.onceInEpoch) schedule(f, fault.at);
    }
  }
  for (size_t f = 0; f < faults_.size() && hasBegun_; ++f) {
    if (faults_[f].onceIn == phase) schedule(f, faults_[f].at);
  }
}

void SimulatedJob::sawEpoch(uint32_t member, const membership::EpochView& view) {
  time_.note({member, index(view.epoch), view.size()});
  const auto [place, isNew] = epochs_.emplace(view.epoch, view.members);
  // Two epochs of one number would be two sides that both go on.
  if (place->second != view.members) {
    violated(fmt::format("there are two epochs {}: of members {} and of {}", index(view.epoch),
                         numbersOf(place->second), numbersOf(view.members)));
  }
  if (view.size() < proposerOptions_.fewestMembers)
    violated(fmt::format("epoch {} has {} members only", index(view.epoch), view.size()));
  if (!isNew) return;
  for (size_t f = 0; f < faults_.size(); ++f) {
    if (faults_[f].onceInEpoch) schedule(f, faults_[f].at);
  }
}

// ---- Faults ----

void SimulatedJob::schedule(size_t fault, Duration delay) {
  if (scheduled_[fault]) return;
  scheduled_[fault] = true;
  ++active_;
  time_.after(delay, [this, fault] {
    strike(faults_[fault]);
    --active_;
    lastFaultEnd_ = std::max(lastFaultEnd_, time_.now());
  });
}

void SimulatedJob::endLater(Duration length, Task end) {
  ++active_;
  time_.after(length, [this, end = std::move(end)] {
    end();
    --active_;
    lastFaultEnd_ = std::max(lastFaultEnd_, time_.now());
  });
}

bool SimulatedJob::mayBeLost(uint32_t member) const {
  const auto killed = std::ranges::count_if(members_, &SimulatedMember::isKilled,
                                            [](const auto& each) -> const auto& { return *each; });
  return !members_[member]->isOver() && killed + 1 < static_cast<ptrdiff_t>(size_);
}

void SimulatedJob::strike(const JobFault& fault) {
  SimulatedMember& member = *members_[fault.member];
  if (member.isOver() || isOver()) return;
  time_.note({static_cast<uint64_t>(fault.kind), fault.member});
  const auto stopFor = [&](uint32_t which, Duration length) {
    members_[which]->stop();
    endLater(length, [this, which] { members_[which]->goOn(); });
  };
  const Duration blink = std::min(fault.length, kLongestBlink);
  std::vector<uint32_t> rest;
  for (uint32_t m = 0; m < size_; ++m) {
    if (m != fault.member) rest.push_back(m);
  }
  switch (fault.kind) {
    case JobFaultKind::kBlink:
    case JobFaultKind::kBlinkedPath:
    case JobFaultKind::kSuspendAll: {
      // Two short ones in a row are a long one.
      if (time_.now() < calmUntil_) return;
      const bool isShort = fault.kind != JobFaultKind::kSuspendAll;
      calmUntil_ = time_.now() + (isShort ? blink : fault.length) + kCalm;
      if (fault.kind == JobFaultKind::kBlink) {
        stopFor(fault.member, blink);
      } else if (isShort) {
        cutApart({fault.member}, {fault.other}, fault.isOneWay, blink);
      } else {
        for (uint32_t m = 0; m < size_; ++m) stopFor(m, fault.length + time_.upTo(200ms));
      }
      break;
    }
    case JobFaultKind::kKill:
    case JobFaultKind::kLoseHost:
      if (!mayBeLost(fault.member)) return;
      member.kill(fault.kind == JobFaultKind::kLoseHost);
      break;
    case JobFaultKind::kStop: stopFor(fault.member, fault.length); break;
    case JobFaultKind::kCutPair:
      cutApart({fault.member}, {fault.other}, fault.isOneWay, fault.length);
      break;
    case JobFaultKind::kCutOff: cutApart({fault.member}, rest, fault.isOneWay, fault.length); break;
    case JobFaultKind::kSplit: {
      std::vector<uint32_t> one{fault.member};
      std::vector<uint32_t> other;
      for (const uint32_t m : rest) (time_.below(2) == 0 ? one : other).push_back(m);
      cutApart(one, other, /*isOneWay=*/false, fault.length);
      break;
    }
    case JobFaultKind::kBreak:
      if (!network_->breakConnection(fault.member)) return;
      break;
    default: return strikeStore(fault);
  }
  happened_.insert(fault.kind);
  if (!fault.isFromStore || fault.kind < JobFaultKind::kCutPair) return;
  member.setStoreAway("it is cut off");
  endLater(fault.length, [this, m = fault.member] { members_[m]->setStoreAway(""); });
}

void SimulatedJob::cutApart(const std::vector<uint32_t>& one, const std::vector<uint32_t>& other,
                            bool isOneWay, Duration length) {
  for (const uint32_t a : one) {
    for (const uint32_t b : other) {
      network_->cut(a, b);
      if (!isOneWay) network_->cut(b, a);
    }
  }
  endLater(length, [this, one, other] {
    for (const uint32_t a : one) {
      for (const uint32_t b : other) {
        network_->heal(a, b);
        network_->heal(b, a);
      }
    }
  });
}

void SimulatedJob::strikeStore(const JobFault& fault) {
  const JobSpace space(storeOptions_.job, storeOptions_.key);
  switch (fault.kind) {
    case JobFaultKind::kStoreAway:
      table_->setUnavailable("it is away");
      endLater(fault.length, [this] { table_->setUnavailable(""); });
      break;
    case JobFaultKind::kStoreCut:
      members_[fault.member]->setStoreAway("the path to it is cut");
      endLater(fault.length, [this, m = fault.member] { members_[m]->setStoreAway(""); });
      break;
    case JobFaultKind::kLeasesEnd: table_->endLeases(); break;
    case JobFaultKind::kStoreWiped: table_->removeAll(); break;
    case JobFaultKind::kStoreRestored: return restoreBackup();
    case JobFaultKind::kStranger: {
      EpochRecord kept = first_;
      kept.run = drawId();
      kept.nonce = kept.run;
      kept.members.resize(1);
      kept.members[0].id = drawId();
      kept.proposer = kept.members[0].id;
      kept.number = Epoch{index(first_.number) + static_cast<uint32_t>(epochs_.size()) + 1 +
                          static_cast<uint32_t>(time_.below(3))};
      const auto entry = space.seal(kept);
      // An epoch of which nobody has heard yet may lie there, and is lost then.
      if (table_->get(entry.key)) happened_.insert(JobFaultKind::kStoreWiped);
      table_->put(entry.key, fault.isOneWay ? "no record" : entry.value);
      break;
    }
    default: return;
  }
  happened_.insert(fault.kind);
}

void SimulatedJob::keepBackup() {
  backup_ = table_->backup();
  newestInBackup_ = epochs_.empty() ? Epoch{0} : epochs_.rbegin()->first;
}

// A backup that was made after the last epoch that both sides of a split know, and before the split,
// can let both go on. docs/members.md says so; it is not restored here.
void SimulatedJob::restoreBackup() {
  Epoch lowest{UINT32_MAX};
  for (const auto& member : members_) {
    if (!member->isOver()) lowest = std::min(lowest, member->epoch());
  }
  if (newestInBackup_ >= lowest && newestInBackup_ != Epoch{0}) return;
  // Everybody stands in a later epoch than the backup; or nothing was lost with what came since.
  const auto records = stored();
  const bool isNewest = !records.empty() && records.back().number == first_.number;
  if (newestInBackup_ >= lowest && !isNewest) return;
  table_->restore(*backup_);
  happened_.insert(JobFaultKind::kStoreRestored);
}

// ---- Judgement ----

// A member that does not hear of an epoch suspects those that are in it, and they suspect it.
bool SimulatedJob::mayTurnOutTheLiving() const {
  const bool isStoreSilent = hasHappened(JobFaultKind::kStoreAway) ||
                             hasHappened(JobFaultKind::kStoreCut) ||
                             storeFaults_.longestDelay > kFastStore ||
                             storeFaults_.lostAnswers > 0 || storeFaults_.lateRequests > 0;
  return mayLoseAnybody() && (isStoreSilent || *happened_.rbegin() >= JobFaultKind::kStop);
}

bool SimulatedJob::mayLoseAnybody() const {
  return !happened_.empty() && *happened_.rbegin() >= JobFaultKind::kKill;
}

size_t SimulatedJob::finished() const {
  return static_cast<size_t>(
      std::ranges::count_if(members_, [](const auto& member) { return member->hasFinished(); }));
}

std::vector<EpochRecord> SimulatedJob::stored() const {
  const JobSpace space(storeOptions_.job, storeOptions_.key);
  std::vector<EpochRecord> records;
  for (const auto& entry : table_->list(space.epochs(), SIZE_MAX, time_.now()).entries) {
    auto record = space.openEpoch(entry);
    if (record.isOk() && record->run == first_.run) records.push_back(*std::move(record));
  }
  std::ranges::reverse(records);
  return records;
}

// Of all epochs that a member has seen or that are in the store.
std::vector<Rank> SimulatedJob::newestMembers() const {
  std::vector<Rank> members;
  for (uint32_t m = 0; m < size_; ++m) members.push_back(Rank{m});
  Epoch newest{0};
  if (!epochs_.empty()) {
    newest = epochs_.rbegin()->first;
    members = epochs_.rbegin()->second;
  }
  const auto records = stored();
  if (records.empty() || index(records.back().number) - index(first_.number) <= index(newest))
    return members;
  members.clear();
  for (const auto& member : records.back().members) {
    if (const auto rank = first_.rankOf(member.id)) members.push_back(*rank);
  }
  return members;
}

void SimulatedJob::judge() {
  judgeStore();
  judgeEnds();
  compareMembers();
}

void SimulatedJob::judgeStore() {
  const bool isWhole =
      !hasHappened(JobFaultKind::kStoreWiped) && !hasHappened(JobFaultKind::kStoreRestored);
  if (earlier_ && isWhole && table_->get(earlier_->key) != earlier_->value)
    violated("the last epoch of an earlier job is not in the store any more");
  const auto records = stored();
  for (size_t r = 0; r < records.size() && isWhole; ++r) {
    const auto epoch = Epoch{index(records[r].number) - index(first_.number)};
    if (index(epoch) != r)
      violated(fmt::format("the store has epoch {} as number {}", index(epoch), r));
    std::vector<Rank> ranks;
    for (const auto& member : records[r].members)
      ranks.push_back(first_.rankOf(member.id).value_or(Rank{UINT32_MAX}));
    const auto seen = epochs_.find(epoch);
    if (seen != epochs_.end() && seen->second != ranks)
      violated(fmt::format("members have seen another epoch {} than the store has", index(epoch)));
  }
  if (!mayLoseAnybody() && (records.size() > 1 || !epochs_.empty()))
    violated("nobody was lost, but there is a new epoch");

  // Who has left in good order is not announced, if nothing was in the way.
  const bool isStoreSound = storeFaults_.longestDelay == Duration::zero() &&
                            storeFaults_.lostAnswers + storeFaults_.lateRequests == 0;
  const bool mayBeMissed = std::ranges::any_of(happened_, [](JobFaultKind kind) {
    return kind != JobFaultKind::kBlinkedPath && kind != JobFaultKind::kLeasesEnd &&
           kind != JobFaultKind::kStranger && kind != JobFaultKind::kKill &&
           kind != JobFaultKind::kLoseHost;
  });
  const JobSpace space(storeOptions_.job, storeOptions_.key);
  for (uint32_t m = 0; m < size_ && isStoreSound && !mayBeMissed; ++m) {
    const std::string key = space.members().first + first_.members[m].id.toString();
    if (members_[m]->hasFinished() && table_->get(key))
      violated(fmt::format("member {} has left, and is announced", m));
  }
}

void SimulatedJob::judgeEnds() {
  const auto newest = newestMembers();
  for (uint32_t m = 0; m < size_; ++m) {
    if (!members_[m]->isKilled() && !members_[m]->hasFinished()) judgeEnd(m, newest);
  }
}

// A member that was not killed has ended with an error.
void SimulatedJob::judgeEnd(uint32_t member, const std::vector<Rank>& newest) {
  const Status& why = *members_[member]->end();
  const auto isLost = [&](JobFaultKind kind) { return hasHappened(kind); };
  const bool isRecordLost =
      isLost(JobFaultKind::kStoreWiped) || isLost(JobFaultKind::kStoreRestored);
  if (why.code() == Code::kNotFound && isRecordLost && mayLoseAnybody()) return;
  const bool isTooFew = why.message().find("and the job wants at least") != std::string::npos;
  if (isTooFew && proposerOptions_.fewestMembers > 1 && mayLoseAnybody()) return;
  // The epoch in which it is missed may have been lost before others saw it.
  const bool isOut = isRecordLost || std::ranges::find(newest, Rank{member}) == newest.end();
  if (isOut && mayTurnOutTheLiving() && why.code() == Code::kPeerLost) return;
  violated(
      fmt::format("member {} has ended, for no reason that there was: {}", member, why.toString()));
}

// The members that have made all steps have the same bits, results of rounds, and log of epochs. A
// lost member may have had results of its last step that nobody else had. They were made again
// without it.
void SimulatedJob::compareMembers() {
  uint32_t reference = 0;
  while (reference < size_ && !members_[reference]->hasFinished()) ++reference;
  if (reference == size_) return;
  for (uint32_t m = 0; m < size_; ++m) {
    if (m != reference) compare(reference, m);
  }
}

void SimulatedJob::compare(uint32_t reference, uint32_t member) {
  const SimulatedMember& one = *members_[reference];
  const SimulatedMember& other = *members_[member];
  for (const auto& [moment, seen] : other.seen()) {
    if (!other.hasFinished() && moment.first + 1 >= other.step()) continue;
    const auto found = one.seen().find(moment);
    if (found != one.seen().end() && found->second == seen) continue;
    violated(fmt::format("members {} and {} have different bits in step {} of t{}", reference,
                         member, moment.first, index(moment.second)));
  }
  if (!other.hasFinished()) return;
  if (one.rounds() != other.rounds())
    violated(fmt::format("members {} and {} have different rounds", reference, member));
  const bool mayLeaveInHaste = mayTurnOutTheLiving() || hasHappened(JobFaultKind::kStoreAway) ||
                               hasHappened(JobFaultKind::kStoreCut);
  if (!mayLeaveInHaste && one.leaveRound() != other.leaveRound()) {
    violated(fmt::format("members {} and {} have left with different values: {} and {}", reference,
                         member, one.leaveRound(), other.leaveRound()));
  }
  const auto isSame = [](const EpochLog& a, const EpochLog& b) {
    return a.view.epoch == b.view.epoch && a.view.members == b.view.members &&
           a.firstSteps == b.firstSteps;
  };
  if (!std::ranges::equal(one.history(), other.history(), isSame)) {
    violated(fmt::format("members {} and {} have different logs of epochs: {} and {}", reference,
                         member, numbersOf(one.history()), numbersOf(other.history())));
  }
  if (one.agreed() != other.agreed())
    violated(fmt::format("members {} and {} show epochs at different steps", reference, member));
}

// Sums each slice over the members of the epoch in which it was made, in one process.
void SimulatedJob::checkResult(uint32_t member, SimulatedMember::Moment moment,
                               const SimulatedMember::Seen& seen) {
  const auto [step, tensor] = moment;
  const Tensor& its = plan_->model()[tensor];
  std::vector<float> expected(its.elements);
  bool isEmpty = true;
  for (size_t s = 0; s < seen.made.size(); ++s) {
    const plan::Slice& slice = plan_->slicesOf(tensor)[s];
    std::vector<Rank> members;
    if (const auto found = epochs_.find(seen.made[s]); found != epochs_.end()) {
      members = found->second;
    } else {
      for (uint32_t m = 0; m < size_; ++m) members.push_back(Rank{m});
    }
    std::vector<std::vector<float>> parts;
    bool isSliceEmpty = true;
    for (const Rank rank : members) {
      auto gradient = algorithms::gradientOf(rank, step, its, tensor);
      isSliceEmpty = isSliceEmpty && gradient.empty();
      gradient.resize(its.elements);
      parts.push_back(std::move(gradient));
    }
    if (isSliceEmpty) continue;
    isEmpty = false;
    std::vector<std::span<const std::byte>> bytes;
    for (const auto& part : parts)
      bytes.push_back(std::as_bytes(std::span(part).subspan(slice.offset, slice.count)));
    const auto place = std::span(expected).subspan(slice.offset, slice.count);
    kernel::sumInRankOrder(DType::kF32, std::as_writable_bytes(place), bytes,
                           kernel::meanScale(members.size()));
  }
  const bool isRight =
      seen.isEmpty == isEmpty && (isEmpty || std::memcmp(expected.data(), seen.values.data(),
                                                         its.elements * sizeof(float)) == 0);
  if (isRight) return;
  violated(
      fmt::format("member {} has other bits in step {} of t{} than one process: {} instead of "
                  "{}",
                  member, step, index(tensor), seen.values, expected));
}

std::string SimulatedJob::describe() const {
  std::string text = fmt::format("seed {}: {} with {} members and {} steps", seed_,
                                 algorithm_->name, size_, steps_);
  if (proposerOptions_.fewestMembers > 1)
    text += fmt::format(", at least {}", proposerOptions_.fewestMembers);
  text += fmt::format(
      "; the store takes {} ms and loses {} of answers, {} of notices, {} of "
      "requests for a while",
      storeFaults_.longestDelay / 1ms, storeFaults_.lostAnswers, storeFaults_.lostNotices,
      storeFaults_.lateRequests);
  for (size_t f = 0; f < faults_.size(); ++f) {
    const JobFault& fault = faults_[f];
    if (!scheduled_[f]) continue;
    text += fmt::format("; {} {}", kNames[static_cast<size_t>(fault.kind)], fault.member);
    if (fault.kind == JobFaultKind::kCutPair || fault.kind == JobFaultKind::kBlinkedPath)
      text += fmt::format(" from {}", fault.other);
    text += fmt::format(" for {} ms at {} ms", fault.length / 1ms, fault.at / 1ms);
    if (fault.isOneWay) text += " in one direction";
    if (fault.isFromStore) text += ", from the store, too";
  }
  for (const auto& [epoch, members] : epochs_)
    text += fmt::format("; epoch {} has {}", index(epoch), numbersOf(members));
  for (const auto& member : members_) text += "; " + member->describe();
  return text;
}

}  // namespace sluice::session
