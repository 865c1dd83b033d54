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

Keeper::Keeper(Loop& loop, Membership& membership, const MemberId& self, Standing first,
               const KeeperOptions& options, Events events)
    : loop_(loop),
      membership_(membership),
      self_(self),
      options_(options),
      events_(std::move(events)),
      standing_(std::move(first)) {
  membership_.bindTo(standing_.record.run);
  membership_.watch([this, alive = std::weak_ptr(alive_)](const Standing& standing) {
    if (!alive.expired()) follow(standing);
  });
}

Keeper::~Keeper() {
  membership_.watch({});
}

void Keeper::after(Duration delay, const std::function<void()>& task) {
  loop_.after(delay, [task, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) task();
  });
}

void Keeper::sawLoss(const MemberId& lost, const Status& why) {
  if (hasEnded_ || lost == self_ || !standing_.record.rankOf(lost)) return;
  Loss& loss = losses_[lost];
  if (!loss.witnesses.insert(self_).second) return;
  loss.why = why.message();
  events_.tellOthers(lost);
  after(options_.aloneAfter, [this, lost] {
    const auto found = losses_.find(lost);
    if (found == losses_.end()) return;
    found->second.isOverdue = true;
    proposeSoon();
  });
  proposeSoon();
}

void Keeper::heardOfLoss(const MemberId& lost, const MemberId& witness) {
  const EpochRecord& record = standing_.record;
  const bool isAboutOthers = lost != witness && lost != self_;
  if (hasEnded_ || !isAboutOthers || !record.rankOf(lost) || !record.rankOf(witness)) return;
  losses_[lost].witnesses.insert(witness);
  proposeSoon();
}

// Nobody is removed on the word of others alone: this member must have seen the loss, too.
bool Keeper::isEnough(const Loss& loss) const {
  if (!loss.witnesses.contains(self_)) return false;
  return loss.witnesses.size() >= 2 || loss.isOverdue || standing_.record.members.size() == 2;
}

std::vector<MemberId> Keeper::toBeRemoved() const {
  std::vector<MemberId> removed;
  for (const auto& [member, loss] : losses_) {
    if (isEnough(loss)) removed.push_back(member);
  }
  return removed;
}

// How many members with lower ranks this one takes to be alive.
size_t Keeper::placeAmongTheLiving() const {
  size_t place = 0;
  for (const Member& member : standing_.record.members) {
    if (member.id == self_) break;
    if (!losses_.contains(member.id)) ++place;
  }
  return place;
}

void Keeper::proposeSoon() {
  if (isProposing_ || hasEnded_ || toBeRemoved().empty()) return;
  isProposing_ = true;
  after(options_.betweenProposers * static_cast<int64_t>(placeAmongTheLiving()),
        [this] { propose(); });
}

void Keeper::propose() {
  const auto removed = toBeRemoved();
  isProposing_ = !removed.empty() && !hasEnded_;
  if (!isProposing_) return;
  const EpochRecord next = nextRecord(removed);
  if (next.members.size() < options_.fewestMembers) {
    return end({Code::kPeerLost,
                fmt::format("{} of {} members are left, and the job wants at least {}: {}",
                            next.members.size(), standing_.record.members.size(),
                            options_.fewestMembers, next.why)});
  }
  membership_.replace(standing_, next, options_.patience,
                      [this, alive = std::weak_ptr(alive_)](const Result<Standing>& answer) {
                        if (!alive.expired()) answered(answer);
                      });
}

EpochRecord Keeper::nextRecord(const std::vector<MemberId>& removed) const {
  EpochRecord next;
  next.number = Epoch{index(standing_.record.number) + 1};
  next.firstStep = events_.nextStep();
  for (const Member& member : standing_.record.members) {
    const bool isLost = std::ranges::find(removed, member.id) != removed.end();
    (isLost ? next.lost : next.members).push_back(member);
    if (!isLost) continue;
    const Loss& loss = losses_.at(member.id);
    next.why += fmt::format("{}{} ({})", next.why.empty() ? "" : "; ",
                            lossText(member, loss.witnesses.size()), loss.why);
  }
  next.why.resize(std::min(next.why.size(), kLongestReasonBytes));
  next.proposer = self_;
  next.run = standing_.record.run;
  next.nonce = Nonce::random();
  next.proposed = wallTimeNow();
  return next;
}

void Keeper::answered(const Result<Standing>& answer) {
  isProposing_ = false;
  if (hasEnded_) return;
  trouble_ = answer.status();
  if (answer.isOk()) {
    follow(*answer);
    return proposeSoon();  // for losses that the epoch does not know of
  }
  if (answer.status().code() == Code::kNotFound) return end(answer.status());
  after(options_.retryAfter, [this] { proposeSoon(); });
}

void Keeper::follow(const Standing& standing) {
  if (hasEnded_ || standing.record.number <= standing_.record.number) return;
  standing_ = standing;
  // A member that enters an epoch leaves the connections of the one before. That looks like a loss.
  // A member that is lost indeed is missed in this epoch, too.
  losses_.clear();
  if (!standing.record.rankOf(self_)) {
    return end({Code::kPeerLost,
                fmt::format("this process is not in epoch {} of the job: {}; start it again to let "
                            "it come back",
                            index(standing.record.number), standing.record.why)});
  }
  events_.onEpoch(standing_);
}

void Keeper::end(const Status& why) {
  hasEnded_ = true;
  losses_.clear();
  events_.onEnd(why);
}

std::string Keeper::describeWait() const {
  if (losses_.empty()) return "";
  std::string text;
  for (const auto& [member, loss] : losses_) {
    const auto rank = standing_.record.rankOf(member);
    text += text.empty() ? "" : "; ";
    text += lossText(standing_.record.members[index(*rank)], loss.witnesses.size());
  }
  if (!trouble_.isOk())
    text += fmt::format("; the store does not agree yet: {}", trouble_.message());
  return text;
}

}  // namespace sluice::membership
