#include <sluice/join/membership/talk/member_channel.h>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/units.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::membership {
namespace {

using fabric::Landing;
using fabric::Lane;

// A member that says more than this ahead of others waits until they have come so far.
constexpr size_t kMostBytesAhead = size_t{8} << 20;
constexpr size_t kMostMeetings = 1024;
constexpr size_t kLongestMeetingBytes = 4096;
constexpr size_t kMostNotes = 4096;
// A member that has left in good order is missed by then, if training goes on.
constexpr auto kAfterLeaving = std::chrono::seconds(3);
constexpr int kLooks = 8;  // while a member is suspected
constexpr auto kBetweenLooks = std::chrono::milliseconds(5);
constexpr auto kToWithdraw = std::chrono::milliseconds(500);

}  // namespace

Result<std::unique_ptr<MemberChannel>> MemberChannel::start(Loop& loop,
                                                            std::unique_ptr<Membership> membership,
                                                            const StoredEpoch& first, Rank self,
                                                            const EpochProposerOptions& options,
                                                            const MakeFabric& makeFabric) {
  std::unique_ptr<MemberChannel> channel(
      new MemberChannel(loop, std::move(membership), first, self, options));
  SLUICE_ASSIGN_OR_RETURN(channel->fabric_, makeFabric(*channel));
  // This first word makes the fabric watch all members, also those to which this one would have
  // nothing to say.
  channel->send(channel->now_.others(), {.kind = MemberMessageKind::kHello, .epoch = Epoch{0}});
  return channel;
}

MemberChannel::MemberChannel(Loop& loop, std::unique_ptr<Membership> membership,
                             const StoredEpoch& first, Rank self,
                             const EpochProposerOptions& options)
    : loop_(loop),
      first_(first.record),
      self_(self),
      patience_(options.aloneAfter),
      rounds_(
          [this](const std::vector<Rank>& to, const MemberMessage& message) { send(to, message); },
          [this] { post([this] { rounds_.runDue(); }); }),
      membership_(std::move(membership)) {
  EpochView view{.epoch = Epoch{0}, .members = {}, .self = self};
  for (uint32_t rank = 0; rank < first_.members.size(); ++rank) view.members.push_back(Rank{rank});
  enter(view);
  proposer_ = std::make_unique<EpochProposer>(
      loop_, *membership_, idOf(self_), first, options,
      EpochProposer::Events{.onEpoch = [this](const StoredEpoch& stored) { follow(stored); },
                            .onEnd = [this](const Status& why) { endWith(why); },
                            .tellOthers =
                                [this](const MemberId& lost) {
                                  const auto rank = first_.rankOf(lost);
                                  if (rank)
                                    send(now_.others(), {.kind = MemberMessageKind::kLost,
                                                         .epoch = now_.epoch,
                                                         .number = index(*rank)});
                                },
                            .nextStep =
                                [this] {
                                  Step next{};
                                  for (const Listener* listener : listeners_)
                                    next = std::max(next, listener->nextStep());
                                  return next;
                                }});
  membership_->onHealth([alive = std::weak_ptr(alive_)](const Status& health) {
    if (alive.expired()) return;
    if (health.isOk()) {
      log("members").info("the store of members answers again");
    } else {
      log("members").warn("members are frozen, and training goes on as long as none is lost: {}",
                          health.message());
    }
  });
}

MemberChannel::~MemberChannel() {
  // Waiting calls end first, while all that they may touch is there. The rest goes in the order
  // of use: the fabric calls the proposer, which uses the membership.
  const Status gone(Code::kCancelled, "this member's job has ended");
  rounds_.giveUpAll(gone);
  rounds_.runDue();
  for (const auto& got : takeMeetings()) got(gone);
  fabric_.reset();
  proposer_.reset();
  membership_.reset();
}

void MemberChannel::post(std::function<void()> task) {
  loop_.post([task = std::move(task), alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) task();
  });
}

TimerId MemberChannel::after(Duration delay, const std::function<void()>& task) {
  return loop_.after(delay, [task, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) task();
  });
}

void MemberChannel::send(const std::vector<Rank>& ranks, const MemberMessage& message) {
  if (fabric_ == nullptr) return;  // an epoch begins before anybody has spoken
  // News of a loss must not stand behind a long value.
  const bool isUrgent =
      message.kind == MemberMessageKind::kLost || message.kind == MemberMessageKind::kHello;
  const auto payload = std::make_shared<const std::vector<std::byte>>(encode(message));
  for (const Rank rank : ranks) {
    const Rank member = now_.memberAt(rank);
    if (lost_.contains(member)) continue;
    fabric_->send(member, isUrgent ? Lane::kControl : Lane::kBulk, {.stage = Stage::kReady},
                  {payload->data(), payload->size()},
                  [payload](const Status&) { /* stays alive until now */ });
  }
}

Result<Landing> MemberChannel::onMessage(Rank from, Lane lane, const wire::Header& header) {
  if (header.length > kLongestMessageBytes)
    return fabric::refusedStatus(header, "longer than any word of a member");
  const auto rank = now_.rankOf(from);
  const bool isAhead =
      earlyBytes_ > kMostBytesAhead || (rank && rounds_.bytesAheadOf(*rank) > kMostBytesAhead);
  // Only bulk messages wait. News of a loss always passes, or the loss that everybody waits for
  // would stay unknown.
  if (lane != Lane::kControl && isAhead) return deferred_.defer(from, lane);
  const auto bytes = std::make_shared<std::vector<std::byte>>(header.length);
  return Landing{{bytes->data(), bytes->size()}, [this, from, bytes](const Status& status) {
                   if (status.isOk()) takeMessage(from, *bytes);
                 }};
}

void MemberChannel::takeMessage(Rank member, const std::vector<std::byte>& bytes) {
  auto message = decodeMessage(bytes);
  if (!message.isOk()) return refuse(member, message.status());
  if (message->kind == MemberMessageKind::kHello) return;
  if (message->kind == MemberMessageKind::kLost) {
    if (message->number >= first_.members.size())
      return refuse(member, {Code::kRefused, "it takes a member for lost that does not exist"});
    return hearOfLoss(Rank{static_cast<uint32_t>(message->number)}, member);
  }
  // The sender has entered an epoch of which this member has not heard yet.
  if (message->epoch > now_.epoch) {
    return keepEarly(member, *std::move(message));
  }
  hear(member, *message);
}

void MemberChannel::keepEarly(Rank member, MemberMessage message) {
  earlyBytes_ += message.bytes.size() + message.key.size() + sizeof(MemberMessage);
  early_.emplace_back(member, std::move(message));
}

void MemberChannel::hear(Rank member, const MemberMessage& message) {
  if (message.kind == MemberMessageKind::kNote) {
    if (message.bytes.size() > kLongestNoteBytes)
      return refuse(member, {Code::kRefused, "its note is longer than any note of a member"});
    if (notes_.size() >= kMostNotes || !notes_.try_emplace(message.key, message.bytes).second)
      return;
    const auto [first, last] = awaitedNotes_.equal_range(message.key);
    // The callbacks leave the list before they run, since they may ask for further notes.
    std::vector<std::function<void(const std::string&)>> waiting;
    for (auto it = first; it != last; ++it) waiting.push_back(it->second);
    awaitedNotes_.erase(first, last);
    for (const auto& then : waiting) then(message.bytes);
    return;
  }
  const auto from = now_.rankOf(member);
  if (!from || message.epoch != now_.epoch) return;  // of an epoch that is over
  if (message.kind == MemberMessageKind::kMeet) return hearMeeting(*from, message);
  if (const Status taken = rounds_.onMessage(*from, message); !taken.isOk()) refuse(member, taken);
}

void MemberChannel::refuse(Rank member, const Status& why) {
  log("members").warn("member {} is given up: {}", member, why.message());
  fabric_->giveUp(member, {Code::kRefused, why.message()});
}

void MemberChannel::gather(const std::string& key, size_t most, GatherRounds::Bring bring,
                           Duration atMost, GatherRounds::Got got) {
  if (!ended_.isOk()) return post([got = std::move(got), why = ended_] { got(why); });
  if (key.empty() || key.size() > kLongestKeyBytes) {
    return post([got = std::move(got)] {
      got(Status(Code::kInvalidArgument, fmt::format("a key has 1 to {} bytes", kLongestKeyBytes)));
    });
  }
  // Models with buffers have a round in every pass: its timer goes with it.
  const auto timer = std::make_shared<TimerId>();
  const auto ended = [this, timer,
                      got = std::move(got)](const Result<GatherRounds::Values>& values) {
    loop_.cancel(*timer);
    got(values);
  };
  const uint64_t number =
      rounds_.begin(key, std::max(most, kLongestValueBytes), std::move(bring), ended);
  // Messages of this round may have waited at their senders until it began here.
  deferred_.resume(*fabric_);
  *timer = after(atMost, [this, key, number, atMost] {
    const auto missing = rounds_.missing(key, number);
    rounds_.giveUp(
        key, number,
        {Code::kTimeout, fmt::format("'{}' has waited {} for rank {}", key,
                                     base::formatDuration(atMost), fmt::join(missing, ", "))});
  });
}

void MemberChannel::meet(const std::string& name, const std::string& value, GatherRounds::Got got) {
  if (!ended_.isOk()) return post([got = std::move(got), why = ended_] { got(why); });
  const std::pair<std::string, uint64_t> id{name, met_[name]++};
  Meeting& meeting = meetings_[id];
  meeting.got = std::move(got);
  meeting.values[now_.self] = value;
  send(now_.others(), {.kind = MemberMessageKind::kMeet,
                       .epoch = now_.epoch,
                       .key = name,
                       .number = id.second,
                       .bytes = value});
  meetIfComplete(id);
}

void MemberChannel::hearMeeting(Rank from, const MemberMessage& message) {
  if (message.bytes.size() > kLongestMeetingBytes || meetings_.size() > kMostMeetings)
    return refuse(now_.memberAt(from), {Code::kRefused, "it says too much at a meeting"});
  const std::pair<std::string, uint64_t> id{message.key, message.number};
  meetings_[id].values[from] = message.bytes;
  meetIfComplete(id);
}

void MemberChannel::meetIfComplete(const std::pair<std::string, uint64_t>& id) {
  const auto found = meetings_.find(id);
  if (!found->second.got || found->second.values.size() < now_.size()) return;
  GatherRounds::Values values;
  for (auto& [rank, value] : found->second.values) values.push_back(std::move(value));
  post([got = std::move(found->second.got), values = std::move(values)] { got(values); });
  meetings_.erase(found);
}

std::vector<GatherRounds::Got> MemberChannel::takeMeetings() {
  std::vector<GatherRounds::Got> waiting;
  for (auto& [id, meeting] : std::exchange(meetings_, {})) {
    if (meeting.got) waiting.push_back(std::move(meeting.got));
  }
  return waiting;
}

void MemberChannel::leaveNote(const std::string& key, const std::string& value) {
  send(now_.others(),
       {.kind = MemberMessageKind::kNote, .epoch = now_.epoch, .key = key, .bytes = value});
}

void MemberChannel::whenNoted(const std::string& key,
                              std::function<void(const std::string&)> then) {
  const auto found = notes_.find(key);
  if (found == notes_.end()) {
    awaitedNotes_.emplace(key, std::move(then));
    return;
  }
  post([then = std::move(then), note = found->second] { then(note); });
}

void MemberChannel::suspect(Epoch epoch, Rank rank, const Status& why) {
  // A connection also breaks when its other end enters the next epoch. So the member is given
  // up only if this epoch still stands after a while.
  suspectFor(kLooks, epoch, rank, why);
}

void MemberChannel::suspectFor(int looks, Epoch epoch, Rank rank, const Status& why) {
  if (epoch != now_.epoch) return;
  if (looks == 0) return fabric_->giveUp(now_.memberAt(rank), why);
  const TimePoint due = loop_.now() + patience_ / kLooks;
  after(patience_ / kLooks, [this, looks, epoch, rank, why, due] {
    // Time in which this process did not run counts against nobody: the news of an epoch may lie
    // unread.
    const bool isOnTime = loop_.now() - due < patience_ / kLooks;
    suspectFor(isOnTime ? looks - 1 : looks, epoch, rank, why);
  });
}

void MemberChannel::onPeerLost(Rank from, const Status& why) {
  noteLoss(from, why);
}

void MemberChannel::onPeerLeft(Rank from) {
  after(kAfterLeaving, [this, from] {
    // At the end of a job nobody is missed.
    if (listeners_.empty() && rounds_.isIdle()) return onPeerLeft(from);
    noteLoss(from, {Code::kPeerLost, fmt::format("member {} has left the job", from)});
  });
}

void MemberChannel::noteLoss(Rank member, const Status& why) {
  if (!lost_.emplace(member, why).second) return;
  proposer_->sawLoss(idOf(member), why);
}

void MemberChannel::hearOfLoss(Rank lost, Rank witness) {
  witnessed_.emplace(lost, witness);
  proposer_->heardOfLoss(idOf(lost), idOf(witness));
}

void MemberChannel::follow(const StoredEpoch& stored) {
  // The job counts its epochs from 0. The store's numbers go on from those of earlier jobs with
  // this name.
  EpochView view{.epoch = Epoch{index(stored.record.number) - index(first_.number)},
                 .members = {},
                 .self = {}};
  for (const auto& member : stored.record.members) {
    const auto rank = first_.rankOf(member.id);
    if (rank) view.members.push_back(*rank);
  }
  view.self = view.rankOf(self_).value_or(Rank{0});
  log("members").warn("epoch {}: {}; this is rank {} of {}", view.epoch, stored.record.why,
                      view.self, view.size());
  enter(view);
  // This runs inside the proposer, so the losses are told in a later task.
  post([this] { judgeKnownLosses(); });
}

void MemberChannel::enter(const EpochView& view) {
  now_ = view;
  view_.with([&](EpochView& shared) { shared = view; });
  met_.clear();
  for (auto& got : takeMeetings()) {
    post([got = std::move(got)] {
      got(Status(Code::kCancelled, "the epoch has ended before all members were there"));
    });
  }
  rounds_.enter(view);
  earlyBytes_ = 0;
  for (auto& [member, message] : std::exchange(early_, {})) {
    if (message.epoch > view.epoch) {
      keepEarly(member, std::move(message));
    } else {
      hear(member, message);
    }
  }
  // The set is copied, since a listener may remove itself.
  for (Listener* listener : std::set<Listener*>(listeners_)) listener->onEpoch(view);
  if (fabric_ != nullptr) deferred_.resume(*fabric_);
}

// The proposer forgets losses with their epoch, and this fabric reports each only once.
void MemberChannel::judgeKnownLosses() {
  for (const auto& [member, why] : lost_) proposer_->sawLoss(idOf(member), why);
  for (const auto& [lost, witness] : witnessed_) proposer_->heardOfLoss(idOf(lost), idOf(witness));
}

void MemberChannel::endWith(const Status& why) {
  ended_ = why;
  rounds_.giveUpAll(why);
  for (auto& got : takeMeetings()) post([got = std::move(got), why] { got(why); });
  for (Listener* listener : std::set<Listener*>(listeners_)) listener->onEnd(why);
}

void MemberChannel::leave(Duration atMost, const std::function<void()>& done) {
  leaveWhenIdle(loop_.now() + atMost, done);
}

void MemberChannel::leaveWhenIdle(TimePoint deadline, const std::function<void()>& done) {
  if (!rounds_.isIdle() && loop_.now() < deadline && ended_.isOk()) {
    after(kBetweenLooks, [this, deadline, done] { leaveWhenIdle(deadline, done); });
    return;
  }
  membership_->withdraw(kToWithdraw, [this, done, alive = std::weak_ptr(alive_)](const Status&) {
    // The destructor ends this call, too, after the fabric is gone.
    if (alive.expired() || fabric_ == nullptr) return done();
    fabric_->close([done](const Status&) { done(); });
  });
}

}  // namespace sluice::membership
