#include <sluice/join/membership/talk/member_channel.h>

#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/units.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::members {
namespace {

using fabric::Landing;
using fabric::Lane;
using membership::Standing;

// A member that says more than this ahead of others waits until they have come so far.
constexpr size_t kMostBytesAhead = size_t{8} << 20;
constexpr size_t kMostMeetings = 1024;
constexpr size_t kLongestMeetingBytes = 4096;
constexpr size_t kMostNotes = 4096;
// A member that has left in good order is missed by then, if training goes on.
constexpr auto kAfterLeaving = std::chrono::seconds(3);
constexpr auto kBetweenLooks = std::chrono::milliseconds(5);
constexpr auto kToWithdraw = std::chrono::milliseconds(500);

}  // namespace

Result<std::unique_ptr<Members>> Members::start(Loop& loop,
                                                std::unique_ptr<membership::Membership> membership,
                                                const Standing& first, Rank self,
                                                const membership::KeeperOptions& options,
                                                const MakeFabric& makeFabric) {
  std::unique_ptr<Members> members(new Members(loop, std::move(membership), first, self, options));
  SLUICE_ASSIGN_OR_RETURN(members->fabric_, makeFabric(*members));
  members->send(members->now_.others(), {.kind = WordKind::kHello, .epoch = Epoch{0}});
  return members;
}

Members::Members(Loop& loop, std::unique_ptr<membership::Membership> membership,
                 const Standing& first, Rank self, const membership::KeeperOptions& options)
    : loop_(loop),
      first_(first.record),
      self_(self),
      patience_(options.aloneAfter),
      rounds_([this](const std::vector<Rank>& to, const Word& word) { send(to, word); },
              [this] { post([this] { rounds_.runDue(); }); }),
      membership_(std::move(membership)) {
  View view{.epoch = Epoch{0}, .members = {}, .self = self};
  for (uint32_t rank = 0; rank < first_.members.size(); ++rank) view.members.push_back(Rank{rank});
  enter(view);
  keeper_ = std::make_unique<membership::Keeper>(
      loop_, *membership_, idOf(self_), first, options,
      membership::Keeper::Events{
          .onEpoch = [this](const Standing& standing) { follow(standing); },
          .onEnd = [this](const Status& why) { endWith(why); },
          .tellOthers =
              [this](const membership::MemberId& lost) {
                const auto rank = first_.rankOf(lost);
                if (rank)
                  send(now_.others(),
                       {.kind = WordKind::kLost, .epoch = now_.epoch, .number = index(*rank)});
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

Members::~Members() {
  const Status gone(Code::kCancelled, "this member's job has ended");
  rounds_.giveUpAll(gone);
  rounds_.runDue();
  for (const auto& got : takeMeetings()) got(gone);
  fabric_.reset();
  keeper_.reset();
  membership_.reset();
}

void Members::post(std::function<void()> task) {
  loop_.post([task = std::move(task), alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) task();
  });
}

TimerId Members::after(Duration delay, const std::function<void()>& task) {
  return loop_.after(delay, [task, alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) task();
  });
}

void Members::send(const std::vector<Rank>& ranks, const Word& word) {
  if (fabric_ == nullptr) return;  // an epoch begins before anybody has spoken
  const bool isUrgent = word.kind == WordKind::kLost || word.kind == WordKind::kHello;
  const auto payload = std::make_shared<const std::vector<std::byte>>(encode(word));
  for (const Rank rank : ranks) {
    const Rank member = now_.memberAt(rank);
    if (lost_.contains(member)) continue;
    fabric_->send(member, isUrgent ? Lane::kControl : Lane::kBulk, {.stage = Stage::kReady},
                  {payload->data(), payload->size()},
                  [payload](const Status&) { /* stays alive until now */ });
  }
}

Result<Landing> Members::onMessage(Rank from, Lane lane, const wire::Header& header) {
  if (header.length > kLongestWordBytes)
    return fabric::refusedStatus(header, "longer than any word of a member");
  const auto rank = now_.rankOf(from);
  const bool isAhead =
      earlyBytes_ > kMostBytesAhead || (rank && rounds_.bytesAheadOf(*rank) > kMostBytesAhead);
  if (lane != Lane::kControl && isAhead) return deferred_.defer(from, lane);
  const auto bytes = std::make_shared<std::vector<std::byte>>(header.length);
  return Landing{{bytes->data(), bytes->size()}, [this, from, bytes](const Status& status) {
                   if (status.isOk()) takeWord(from, *bytes);
                 }};
}

void Members::takeWord(Rank member, const std::vector<std::byte>& bytes) {
  auto word = decodeWord(bytes);
  if (!word.isOk()) return refuse(member, word.status());
  if (word->kind == WordKind::kHello) return;
  if (word->kind == WordKind::kLost) {
    if (word->number >= first_.members.size())
      return refuse(member, {Code::kRefused, "it takes a member for lost that does not exist"});
    return hearOfLoss(Rank{static_cast<uint32_t>(word->number)}, member);
  }
  if (word->epoch > now_.epoch) {
    return keepEarly(member, *std::move(word));
  }
  hear(member, *word);
}

void Members::keepEarly(Rank member, Word word) {
  earlyBytes_ += word.bytes.size() + word.key.size() + sizeof(Word);
  early_.emplace_back(member, std::move(word));
}

void Members::hear(Rank member, const Word& word) {
  if (word.kind == WordKind::kNote) {
    if (word.bytes.size() > kLongestNoteBytes)
      return refuse(member, {Code::kRefused, "its note is longer than any note of a member"});
    if (notes_.size() >= kMostNotes || !notes_.try_emplace(word.key, word.bytes).second) return;
    const auto [first, last] = awaitedNotes_.equal_range(word.key);
    std::vector<std::function<void(const std::string&)>> waiting;
    for (auto it = first; it != last; ++it) waiting.push_back(it->second);
    awaitedNotes_.erase(first, last);
    for (const auto& then : waiting) then(word.bytes);
    return;
  }
  const auto from = now_.rankOf(member);
  if (!from || word.epoch != now_.epoch) return;  // of an epoch that is over
  if (word.kind == WordKind::kMeet) return hearMeeting(*from, word);
  if (const Status taken = rounds_.onWord(*from, word); !taken.isOk()) refuse(member, taken);
}

void Members::refuse(Rank member, const Status& why) {
  log("members").warn("member {} is given up: {}", member, why.message());
  fabric_->giveUp(member, {Code::kRefused, why.message()});
}

void Members::gather(const std::string& key, size_t most, Rounds::Bring bring, Duration atMost,
                     Rounds::Got got) {
  if (!ended_.isOk()) return post([got = std::move(got), why = ended_] { got(why); });
  if (key.empty() || key.size() > kLongestKeyBytes) {
    return post([got = std::move(got)] {
      got(Status(Code::kInvalidArgument, fmt::format("a key has 1 to {} bytes", kLongestKeyBytes)));
    });
  }
  // Models with buffers have a round in every pass: its timer goes with it.
  const auto timer = std::make_shared<TimerId>();
  const auto ended = [this, timer, got = std::move(got)](const Result<Rounds::Values>& values) {
    loop_.cancel(*timer);
    got(values);
  };
  const uint64_t number =
      rounds_.begin(key, std::max(most, kLongestValueBytes), std::move(bring), ended);
  deferred_.resume(*fabric_);
  *timer = after(atMost, [this, key, number, atMost] {
    const auto missing = rounds_.missing(key, number);
    rounds_.giveUp(
        key, number,
        {Code::kTimeout, fmt::format("'{}' has waited {} for rank {}", key,
                                     base::formatDuration(atMost), fmt::join(missing, ", "))});
  });
}

void Members::meet(const std::string& name, const std::string& value, Rounds::Got got) {
  if (!ended_.isOk()) return post([got = std::move(got), why = ended_] { got(why); });
  const std::pair<std::string, uint64_t> id{name, met_[name]++};
  Meeting& meeting = meetings_[id];
  meeting.got = std::move(got);
  meeting.values[now_.self] = value;
  send(now_.others(), {.kind = WordKind::kMeet,
                       .epoch = now_.epoch,
                       .key = name,
                       .number = id.second,
                       .bytes = value});
  meetIfComplete(id);
}

void Members::hearMeeting(Rank from, const Word& word) {
  if (word.bytes.size() > kLongestMeetingBytes || meetings_.size() > kMostMeetings)
    return refuse(now_.memberAt(from), {Code::kRefused, "it says too much at a meeting"});
  const std::pair<std::string, uint64_t> id{word.key, word.number};
  meetings_[id].values[from] = word.bytes;
  meetIfComplete(id);
}

void Members::meetIfComplete(const std::pair<std::string, uint64_t>& id) {
  const auto found = meetings_.find(id);
  if (!found->second.got || found->second.values.size() < now_.size()) return;
  Rounds::Values values;
  for (auto& [rank, value] : found->second.values) values.push_back(std::move(value));
  post([got = std::move(found->second.got), values = std::move(values)] { got(values); });
  meetings_.erase(found);
}

std::vector<Rounds::Got> Members::takeMeetings() {
  std::vector<Rounds::Got> waiting;
  for (auto& [id, meeting] : std::exchange(meetings_, {})) {
    if (meeting.got) waiting.push_back(std::move(meeting.got));
  }
  return waiting;
}

void Members::leaveNote(const std::string& key, const std::string& value) {
  send(now_.others(), {.kind = WordKind::kNote, .epoch = now_.epoch, .key = key, .bytes = value});
}

void Members::whenNoted(const std::string& key, std::function<void(const std::string&)> then) {
  const auto found = notes_.find(key);
  if (found == notes_.end()) {
    awaitedNotes_.emplace(key, std::move(then));
    return;
  }
  post([then = std::move(then), note = found->second] { then(note); });
}

void Members::suspect(Epoch epoch, Rank rank, const Status& why) {
  if (epoch != now_.epoch) return;
  after(patience_, [this, epoch, rank, why] {
    if (epoch == now_.epoch) fabric_->giveUp(now_.memberAt(rank), why);
  });
}

void Members::onPeerLost(Rank from, const Status& why) {
  noteLoss(from, why);
}

void Members::onPeerLeft(Rank from) {
  after(kAfterLeaving, [this, from] {
    // At the end of a job nobody is missed.
    if (listeners_.empty() && rounds_.isIdle()) return onPeerLeft(from);
    noteLoss(from, {Code::kPeerLost, fmt::format("member {} has left the job", from)});
  });
}

void Members::noteLoss(Rank member, const Status& why) {
  if (!lost_.emplace(member, why).second) return;
  keeper_->sawLoss(idOf(member), why);
}

void Members::hearOfLoss(Rank lost, Rank witness) {
  witnessed_.emplace(lost, witness);
  keeper_->heardOfLoss(idOf(lost), idOf(witness));
}

void Members::follow(const Standing& standing) {
  View view{.epoch = Epoch{index(standing.record.number) - index(first_.number)},
            .members = {},
            .self = {}};
  for (const auto& member : standing.record.members) {
    const auto rank = first_.rankOf(member.id);
    if (rank) view.members.push_back(*rank);
  }
  view.self = view.rankOf(self_).value_or(Rank{0});
  log("members").warn("epoch {}: {}; this is rank {} of {}", view.epoch, standing.record.why,
                      view.self, view.size());
  enter(view);
  post([this] { judgeKnownLosses(); });
}

void Members::enter(const View& view) {
  now_ = view;
  view_.with([&](View& shared) { shared = view; });
  met_.clear();
  for (auto& got : takeMeetings()) {
    post([got = std::move(got)] {
      got(Status(Code::kCancelled, "the epoch has ended before all members were there"));
    });
  }
  rounds_.enter(view);
  earlyBytes_ = 0;
  for (auto& [member, word] : std::exchange(early_, {})) {
    if (word.epoch > view.epoch) {
      keepEarly(member, std::move(word));
    } else {
      hear(member, word);
    }
  }
  for (Listener* listener : std::set<Listener*>(listeners_)) listener->onEpoch(view);
  if (fabric_ != nullptr) deferred_.resume(*fabric_);
}

// The keeper forgets losses with their epoch, and this fabric reports each only once.
void Members::judgeKnownLosses() {
  for (const auto& [member, why] : lost_) keeper_->sawLoss(idOf(member), why);
  for (const auto& [lost, witness] : witnessed_) keeper_->heardOfLoss(idOf(lost), idOf(witness));
}

void Members::endWith(const Status& why) {
  ended_ = why;
  rounds_.giveUpAll(why);
  for (auto& got : takeMeetings()) post([got = std::move(got), why] { got(why); });
  for (Listener* listener : std::set<Listener*>(listeners_)) listener->onEnd(why);
}

void Members::leave(Duration atMost, const std::function<void()>& done) {
  leaveWhenIdle(loop_.now() + atMost, done);
}

void Members::leaveWhenIdle(TimePoint deadline, const std::function<void()>& done) {
  if (!rounds_.isIdle() && loop_.now() < deadline && ended_.isOk()) {
    after(kBetweenLooks, [this, deadline, done] { leaveWhenIdle(deadline, done); });
    return;
  }
  membership_->withdraw(kToWithdraw, [this, done, alive = std::weak_ptr(alive_)](const Status&) {
    if (alive.expired()) return done();
    fabric_->close([done](const Status&) { done(); });
  });
}

}  // namespace sluice::members
