#include <sluice/join/membership/epoch_proposer.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace sluice::membership {
namespace {

std::string lossText(const Member& member, size_t witnesses) {
  return fmt::format("{} is lost, as {} seen", member.host,
                     witnesses == 1 ? "one member has" : fmt::format("{} members have", witnesses));
}

}  // namespace

EpochProposer::EpochProposer(Loop& loop, Membership& membership, const MemberId& self,
                             StoredEpoch first, const EpochProposerOptions& options, Events events)
    : loop_(loop),
      membership_(membership),
      self_(self),
      options_(options),
      events_(std::move(events)),
      epoch_(std::move(first)) {
  // From here on records of an earlier job with this name are not taken for this job's.
  membership_.bindTo(epoch_.record.run);
  membership_.watch([this, alive = std::weak_ptr(alive_)](const StoredEpoch& stored) {
    if (!alive.expired()) follow(stored);
  });
}

EpochProposer::~EpochProposer() {
  membership_.watch({});
}

void EpochProposer::after(Duration delay, const std::function<void()>& task) {
  loop_.after(delay, [task, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) task();
  });
}

void EpochProposer::sawLoss(const MemberId& lost, const Status& why) {
  if (hasEnded_ || lost == self_ || !epoch_.record.rankOf(lost)) return;
  Loss& loss = losses_[lost];
  if (!loss.witnesses.insert(self_).second) return;
  loss.why = why.message();
  events_.tellOthers(lost);
  // With a second witness a member is removed at once. Alone this member waits, because its own
  // connection may be what is broken.
  after(options_.aloneAfter, [this, lost] {
    const auto found = losses_.find(lost);
    if (found == losses_.end()) return;
    found->second.isOverdue = true;
    proposeSoon();
  });
  proposeSoon();
}

void EpochProposer::heardOfLoss(const MemberId& lost, const MemberId& witness) {
  const EpochRecord& record = epoch_.record;
  const bool isAboutOthers = lost != witness && lost != self_;
  if (hasEnded_ || !isAboutOthers || !record.rankOf(lost) || !record.rankOf(witness)) return;
  losses_[lost].witnesses.insert(witness);
  proposeSoon();
}

// Nobody is removed on the word of others alone: this member must have seen the loss, too.
bool EpochProposer::isEnough(const Loss& loss) const {
  if (!loss.witnesses.contains(self_)) return false;
  // Of two members only one is left to have seen it.
  return loss.witnesses.size() >= 2 || loss.isOverdue || epoch_.record.members.size() == 2;
}

std::vector<MemberId> EpochProposer::toBeRemoved() const {
  std::vector<MemberId> removed;
  for (const auto& [member, loss] : losses_) {
    if (isEnough(loss)) removed.push_back(member);
  }
  return removed;
}

// How many members with lower ranks this one takes to be alive.
size_t EpochProposer::placeAmongTheLiving() const {
  size_t place = 0;
  for (const Member& member : epoch_.record.members) {
    if (member.id == self_) break;
    if (!losses_.contains(member.id)) ++place;
  }
  return place;
}

void EpochProposer::proposeSoon() {
  if (isProposing_ || hasEnded_ || toBeRemoved().empty()) return;
  isProposing_ = true;
  // The member with the lowest rank proposes first, and the others wait longer the higher
  // theirs is. So mostly one member writes; should it be dead as well, the next one does.
  after(options_.betweenProposers * static_cast<int64_t>(placeAmongTheLiving()),
        [this] { propose(); });
}

void EpochProposer::propose() {
  // The losses are looked at again: another's epoch may have come meanwhile and settled them.
  const auto removed = toBeRemoved();
  isProposing_ = !removed.empty() && !hasEnded_;
  if (!isProposing_) return;
  const EpochRecord next = nextRecord(removed);
  if (next.members.size() < options_.fewestMembers) {
    return end({Code::kPeerLost,
                fmt::format("{} of {} members are left, and the job wants at least {}: {}",
                            next.members.size(), epoch_.record.members.size(),
                            options_.fewestMembers, next.why)});
  }
  membership_.replace(epoch_, next, options_.patience,
                      [this, alive = std::weak_ptr(alive_)](const Result<StoredEpoch>& answer) {
                        if (!alive.expired()) answered(answer);
                      });
}

EpochRecord EpochProposer::nextRecord(const std::vector<MemberId>& removed) const {
  EpochRecord next;
  next.number = Epoch{index(epoch_.record.number) + 1};
  next.firstStep = events_.nextStep();
  for (const Member& member : epoch_.record.members) {
    const bool isLost = std::ranges::find(removed, member.id) != removed.end();
    (isLost ? next.lost : next.members).push_back(member);
    if (!isLost) continue;
    const Loss& loss = losses_.at(member.id);
    next.why += fmt::format("{}{} ({})", next.why.empty() ? "" : "; ",
                            lossText(member, loss.witnesses.size()), loss.why);
  }
  next.why.resize(std::min(next.why.size(), kLongestReasonBytes));
  next.proposer = self_;
  next.run = epoch_.record.run;
  next.nonce = Nonce::random();
  next.proposed = wallTimeNow();
  return next;
}

void EpochProposer::answered(const Result<StoredEpoch>& answer) {
  isProposing_ = false;
  if (hasEnded_) return;
  trouble_ = answer.status();
  if (answer.isOk()) {
    follow(*answer);
    return proposeSoon();  // for losses that the epoch does not know of
  }
  // The store has lost epochs (StoreMembership::judge), so no proposal can be agreed any more.
  if (answer.status().code() == Code::kNotFound) return end(answer.status());
  after(options_.retryAfter, [this] { proposeSoon(); });
}

void EpochProposer::follow(const StoredEpoch& stored) {
  if (hasEnded_ || stored.record.number <= epoch_.record.number) return;
  epoch_ = stored;
  // A member that enters an epoch leaves the connections of the one before. That looks like a loss.
  // A member that is lost indeed is missed in this epoch, too.
  losses_.clear();
  if (!stored.record.rankOf(self_)) {
    return end(
        {Code::kPeerLost,
         fmt::format("this process is not in epoch {} of the job: {}; the members in it go on, "
                     "and this one cannot come back",
                     index(stored.record.number), stored.record.why)});
  }
  events_.onEpoch(epoch_);
}

void EpochProposer::end(const Status& why) {
  hasEnded_ = true;
  losses_.clear();
  events_.onEnd(why);
}

std::string EpochProposer::describeWait() const {
  if (losses_.empty()) return "";
  std::string text;
  for (const auto& [member, loss] : losses_) {
    const auto rank = epoch_.record.rankOf(member);
    text += text.empty() ? "" : "; ";
    text += lossText(epoch_.record.members[index(*rank)], loss.witnesses.size());
  }
  if (!trouble_.isOk())
    text += fmt::format("; the store does not agree yet: {}", trouble_.message());
  return text;
}

}  // namespace sluice::membership
