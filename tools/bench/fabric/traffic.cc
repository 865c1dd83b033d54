#include <tools/bench/fabric/traffic.h>

#include <chrono>
#include <utility>

#include <sluice/data/kernel/reduce.h>

namespace sluice::bench {
namespace {

using namespace std::chrono_literals;

// Messages in flight to each rank: enough that the fabric never waits for the next.
constexpr int kMessagesInFlight = 8;
constexpr size_t kTotals = 16;
constexpr auto kUrgentAfter = 20ms;  // the backlog is under way by then, and far from its end
constexpr size_t kBacklogMessages = kBacklogBytes / kMessageBytes;

fabric::ConstBuffer view(const std::vector<float>& payload) {
  const auto bytes = std::as_bytes(std::span(payload));
  return {bytes.data(), bytes.size()};
}

std::vector<float> makePayload() {
  return std::vector<float>(kMessageBytes / sizeof(float), 1e-3F);
}

}  // namespace

Sink::Sink(bool sums) : sums_(sums), totals_(sums ? kTotals : 0, Memory(kMessageBytes)) {}

fabric::Landing Sink::land(const wire::Header& header, const Loop& loop) {
  std::shared_ptr<Memory> memory;
  if (free_.empty()) {
    memory = std::make_shared<Memory>(kMessageBytes);
  } else {
    memory = std::move(free_.back());
    free_.pop_back();
  }
  return {.buffer = {memory->data(), memory->size()},
          .done = [this, header, memory, &loop](const Status& status) {
            if (status.isOk()) landed(header, *memory, loop.now());
            free_.push_back(memory);
          }};
}

void Sink::landed(const wire::Header& header, const Memory& memory, TimePoint now) {
  if (sums_ && header.length == kMessageBytes) {
    Memory& total = totals_[nextTotal_++ % kTotals];
    kernel::addScaled(DType::kF32, total, memory, /*scale=*/1);
  }
  if (now >= from_ && now < to_) counted_ += header.length;
  if (wire::has(header.flags, kUrgentSlice)) {
    const TimePoint ready(Duration(static_cast<Duration::rep>(index(header.step))));
    urgentMs.push_back(base::seconds(now - ready) * 1e3);
  }
  if (wire::has(header.flags, wire::Flags::kFree) && onMarked) onMarked(header);
}

Flood::Flood(fabric::Fabric& fabric, const std::vector<Rank>& to)
    : fabric_(fabric), to_(to), payload_(makePayload()) {}

void Flood::start() {
  for (int i = 0; i < kMessagesInFlight; ++i) {
    for (const Rank to : to_) sendNext(to);
  }
}

void Flood::sendNext(Rank to) {
  if (isStopped_) return;
  fabric::Message message;
  message.dtype = DType::kF32;
  message.stage = Stage::kPush;
  fabric_.send(to, fabric::Lane::kBulk, message, view(payload_), [this, to](const Status& status) {
    if (status.isOk()) sendNext(to);
  });
}

Overtaking::Overtaking(fabric::Fabric& fabric, Rank to, const queue::EgressOptions& options)
    : fabric_(fabric), to_(to), egress_(fabric.loop().clock(), options), payload_(makePayload()) {}

void Overtaking::startRound() {
  messages_.clear();
  for (size_t i = 0; i < kBacklogMessages; ++i) {
    push(/*priority=*/1, i + 1 == kBacklogMessages ? kLastOfBacklog : wire::Flags::kNone);
  }
  pump();
  urgentTimer_ = fabric_.loop().after(kUrgentAfter, [this] {
    urgentTimer_.reset();
    push(/*priority=*/0, kUrgentSlice);
    pump();
  });
}

void Overtaking::stop() {
  if (urgentTimer_) fabric_.loop().cancel(*std::exchange(urgentTimer_, std::nullopt));
}

void Overtaking::push(uint32_t priority, wire::Flags flags) {
  fabric::Message message;
  message.dtype = DType::kF32;
  message.stage = Stage::kPush;
  message.flags = flags;
  message.step = Step{static_cast<uint64_t>(fabric_.loop().now().time_since_epoch().count())};
  egress_.push({.to = to_, .bytes = kMessageBytes, .priority = priority, .tag = messages_.size()});
  messages_.push_back(message);
}

void Overtaking::pump() {
  while (const auto handed = egress_.next()) {
    fabric_.send(to_, fabric::Lane::kBulk, messages_[handed->send.tag], view(payload_),
                 [this, handed = *handed](const Status&) {
                   egress_.done(handed);
                   pump();
                 });
  }
}

}  // namespace sluice::bench
