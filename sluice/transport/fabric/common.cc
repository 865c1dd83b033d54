#include <sluice/transport/fabric/common.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/base/units.h>

namespace sluice::fabric {

Status checkSend(Rank to, size_t worldSize, const Message& message, const ConstBuffer& payload) {
  // Mistakes of the caller come back as kInvalidArgument before anything is queued. Otherwise
  // they would show as dropped messages at the receiver, far from the call that made them.
  if (index(to) >= worldSize) {
    return {Code::kInvalidArgument, fmt::format("there is no rank {}: the job has ranks 0 to {}",
                                                index(to), worldSize - 1)};
  }
  if (payload.bytes > wire::kMaxLength) {
    return {Code::kInvalidArgument,
            fmt::format("a message of {} bytes is too long: send slices of at most {}",
                        payload.bytes, wire::kMaxLength)};
  }
  if (payload.data == nullptr && payload.bytes > 0) {
    return {Code::kInvalidArgument, "the payload has a length but no address"};
  }
  if (wire::has(message.flags, wire::Flags::kGoodbye)) {
    return {Code::kInvalidArgument, "send() cannot send a goodbye; call close()"};
  }
  if (wire::has(message.flags, wire::Flags::kTaken)) {
    return {Code::kInvalidArgument,
            "send() cannot send an acknowledgement; the fabric sends them itself"};
  }
  if (!wire::has(message.flags, wire::Flags::kEncoded) &&
      payload.bytes % sizeOf(message.dtype) != 0) {
    return {Code::kInvalidArgument,
            fmt::format("a payload of {} bytes does not hold a whole number of {} elements",
                        payload.bytes, sluice::name(message.dtype))};
  }
  return {};
}

wire::Header makeHeader(const Message& message, Epoch epoch, Rank from, Rank to, Lane lane,
                        uint64_t sequence, uint64_t length) {
  return {.epoch = epoch,
          .source = from,
          .destination = to,
          .lane = lane,
          .sequence = sequence,
          .step = message.step,
          .tensor = message.tensor,
          .slice = message.slice,
          .stage = message.stage,
          .flags = message.flags,
          .dtype = message.dtype,
          .length = length};
}

wire::Header makeGoodbye(Epoch epoch, Rank from, Rank to, Lane lane, uint64_t sequence) {
  Message message;
  message.flags = wire::Flags::kGoodbye;
  return makeHeader(message, epoch, from, to, lane, sequence, /*length=*/0);
}

Status lostStatus(Rank peer, const Status& why) {
  return {Code::kPeerLost, fmt::format("rank {} is lost: {}", index(peer), why.message())};
}

Status leftStatus(Rank peer) {
  return {Code::kUnavailable,
          fmt::format("rank {} has closed and takes no more messages", index(peer))};
}

Status closedStatus() {
  return {Code::kCancelled, "this rank's fabric is closed"};
}

Status refusedStatus(const wire::Header& header, std::string_view why) {
  return {Code::kRefused, fmt::format("message [{}] does not fit: {}", header.toString(), why)};
}

Status badPayloadStatus(const wire::Header& header, wire::PayloadCheckKind kind) {
  return {Code::kDataLoss,
          fmt::format("the payload of {} does not match its {}: bytes were changed on the way",
                      header.toString(), wire::name(kind))};
}

Status checkLanding(const Landing& landing, const wire::Header& header) {
  const size_t room = landing.buffer.data != nullptr ? landing.buffer.bytes : 0;
  if (room >= header.length) return {};
  return refusedStatus(header, fmt::format("its receiver has room for {} bytes only", room));
}

namespace {

// Runs the task unless the caller gives it up first: exactly one of the two happens.
class Errand final {
 public:
  explicit Errand(Task task) : task_(std::move(task)) {}

  void run() {
    if (!begin(State::kRunning)) return;
    task_();
    task_ = nullptr;
    state_ = State::kRan;
  }
  bool giveUp() { return begin(State::kGivenUp); }
  bool hasRun() const { return state_ == State::kRan; }

 private:
  enum class State { kQueued, kRunning, kRan, kGivenUp };
  bool begin(State next) {
    State expected = State::kQueued;
    return state_.compare_exchange_strong(expected, next);
  }

  std::atomic<State> state_{State::kQueued};
  Task task_;
};

// Measures how long a thread has waited, in rounds. A round that took far longer than it should is
// not counted: this process was stopped in it, and so was the thread that is waited for.
class Patience final {
 public:
  static constexpr auto kRound = std::chrono::milliseconds(100);

  // Returns true when `future` is ready, false after one round.
  bool isOver(const std::future<void>& future) {
    const auto begin = std::chrono::steady_clock::now();
    if (future.wait_for(kRound) == std::future_status::ready) return true;
    if (std::chrono::steady_clock::now() - begin < 5 * kRound) waited_ += kRound;
    return false;
  }
  Duration waited() const { return waited_; }

 private:
  Duration waited_{};
};

}  // namespace

Status runAndWait(Loop& loop, Task task, Duration atMost) {
  constexpr auto kSayEvery = std::chrono::seconds(30);
  if (loop.inLoop()) {
    task();
    return base::ok();
  }
  if (loop.isInherited()) return base::forkedStatus();  // nobody would run it here
  const auto errand = std::make_shared<Errand>(std::move(task));
  // A loop that ends destroys the posted task unrun. That breaks the promise, which ends the wait
  // as well.
  auto over = std::make_shared<std::promise<void>>();
  const auto end = over->get_future();
  // The promise wakes this thread; the errand decides who has won. The task may refer to the
  // caller's locals, so after giving up it must never begin, and once begun it is waited for
  // however long it takes.
  loop.post([over = std::move(over), errand] {
    errand->run();
    over->set_value();
  });
  Patience patience;
  Duration sayAt = kSayEvery;
  while (!patience.isOver(end)) {
    // A task that stops this loop for minutes is a fault somewhere else. Saying so early points
    // at it, long before the limit turns it into a lost rank.
    if (patience.waited() >= sayAt) {
      sayAt += kSayEvery;
      log("fabric").warn("a thread has waited {} for the loop, which is busy with something else",
                         base::formatDuration(patience.waited()));
    }
    if (patience.waited() >= atMost && errand->giveUp()) {
      return {Code::kTimeout,
              fmt::format("the loop of this process was busy with something else for {}",
                          base::formatDuration(patience.waited()))};
    }
  }
  if (errand->hasRun()) return base::ok();
  return {Code::kCancelled, "the loop of this process has ended"};
}

void runBeforeFreeing(Loop& loop, Task task) {
  const Status ran = runAndWait(loop, std::move(task), Duration::max());
  if (!ran.isOk())
    log("fabric").debug("an object is freed without its last task: {}", ran.message());
}

Status closeAndWait(Fabric& fabric) {
  // The loop carries out the close, so waiting for it there would wait for oneself. In a forked
  // child no thread runs the inherited loop, and the wait would never end.
  SLUICE_DCHECK(!fabric.loop().inLoop());
  if (fabric.loop().isInherited()) return base::forkedStatus();
  std::promise<Status> closed;
  fabric.close([&](const Status& status) { closed.set_value(status); });
  return closed.get_future().get();
}

}  // namespace sluice::fabric
