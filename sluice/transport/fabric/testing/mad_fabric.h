// A member of a job that has gone mad, for tests and fuzzing: the source of its choices, a fabric
// that changes its messages, and a receiver whose payloads land late. A broken invariant is a
// failed SLUICE_CHECK; there is no test framework, so that fuzz/ can use it. Everything belongs to
// one thread.
#pragma once

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <sluice/base/check.h>
#include <sluice/base/testing/manual_loop.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::fabric {

// The source of choices: a seed, which never ends, or bytes, after which every choice is 0.
class Choices final {
 public:
  explicit Choices(uint64_t seed) : random_(seed), hasSeed_(true) {}
  explicit Choices(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool areOver() const { return !hasSeed_ && bytes_.empty(); }
  uint64_t number() {
    if (hasSeed_) return random_();
    uint64_t value = 0;
    const size_t size = std::min(sizeof(value), bytes_.size());
    std::memcpy(&value, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
    return value;
  }
  uint64_t below(uint64_t end) {
    if (hasSeed_ || end > 256) return number() % end;
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte % end;
  }
  bool isOneIn(uint64_t count) { return below(count) == count - 1; }

 private:
  std::mt19937_64 random_;
  bool hasSeed_ = false;
  std::span<const uint8_t> bytes_;
};

// Returns zeros, a pattern, or some random bytes: whole random payloads would eat up a fuzzer's
// bytes.
inline std::vector<std::byte> madBytes(Choices& choices, size_t size) {
  std::vector<std::byte> bytes(size);
  const uint64_t kind = choices.below(4);
  for (size_t i = 0; i < size && kind > 0; ++i)
    bytes[i] = static_cast<std::byte>(kind == 3 && i < 64 ? choices.below(256)
                                      : kind == 2         ? 0xff
                                                          : i);
  return bytes;
}

// Passes messages on, with a mind of its own about some of them.
class MadFabric final : public Fabric {
 public:
  // With null `choices` the fabric is not mad. `mad` counts its mad messages.
  MadFabric(std::unique_ptr<Fabric> under, Choices* choices, uint64_t& mad)
      : under_(std::move(under)), choices_(choices), mad_(mad) {}

  void send(Rank to, Lane lane, const Message& message, ConstBuffer payload, Done done) override;
  void close(Done done) override { under_->close(std::move(done)); }
  void resume(Rank from, Lane lane) override { under_->resume(from, lane); }
  void giveUp(Rank peer, Status why) override { under_->giveUp(peer, std::move(why)); }
  std::optional<TimePoint> lastHeard(Rank peer) const override { return under_->lastHeard(peer); }
  Counters counters() const override { return under_->counters(); }
  Rank rank() const override { return under_->rank(); }
  size_t worldSize() const override { return under_->worldSize(); }
  Loop& loop() const override { return under_->loop(); }

  // Sends `bytes`, and keeps them until they are sent.
  void sendCopy(Rank to, Lane lane, const Message& message, std::vector<std::byte> bytes,
                Done done);
  void releasePutOff();

 private:
  struct PutOff {
    Rank to;
    Lane lane;
    Message message;
    ConstBuffer payload;
    Done done;
  };

  const std::unique_ptr<Fabric> under_;
  Choices* const choices_;
  std::list<PutOff> putOff_;
  uint64_t& mad_;
};

inline void MadFabric::sendCopy(Rank to, Lane lane, const Message& message,
                                std::vector<std::byte> bytes, Done done) {
  ++mad_;
  const auto kept = std::make_shared<std::vector<std::byte>>(std::move(bytes));
  under_->send(to, lane, message, {kept->data(), kept->size()},
               [kept, done = std::move(done)](const Status& status) {
                 // A message that the fabric does not take counts as not sent.
                 if (done) done(status.code() == Code::kInvalidArgument ? Status() : status);
               });
}

inline void MadFabric::send(Rank to, Lane lane, const Message& message, ConstBuffer payload,
                            Done done) {
  if (choices_ == nullptr || !choices_->isOneIn(4))
    return under_->send(to, lane, message, payload, std::move(done));
  std::vector<std::byte> bytes(payload.data, payload.data + payload.bytes);
  Message changed = message;
  switch (choices_->below(8)) {
    case 0:  // dropped
      ++mad_;
      return loop().post([done = std::move(done)] { done(Status()); });
    case 1:  // twice
      sendCopy(to, lane, message, bytes, nullptr);
      break;
    case 2: putOff_.push_back({to, lane, message, payload, std::move(done)}); return;
    case 3: changed.step = Step{index(message.step) + choices_->below(3) - 1}; break;
    case 4: changed.flags = wire::Flags{static_cast<uint16_t>(choices_->below(256) << 8U)}; break;
    case 5: bytes.resize(choices_->below(2) == 0 ? bytes.size() / 2 : bytes.size() + 4); break;
    case 6:
      if (!bytes.empty())
        bytes[choices_->below(bytes.size())] = static_cast<std::byte>(choices_->below(256));
      break;
    default: lane = static_cast<Lane>(choices_->below(wire::kLanes)); break;
  }
  sendCopy(to, lane, changed, std::move(bytes), std::move(done));
}

inline void MadFabric::releasePutOff() {
  for (auto& one : std::exchange(putOff_, {}))
    under_->send(one.to, one.lane, one.message, one.payload, std::move(one.done));
}

// Passes on what arrives, and lets about half of the payloads land some time after their headers,
// in any order.
class LateReceiver final : public Receiver {
 public:
  LateReceiver(Receiver& receiver, Choices& choices, base::ManualLoop& loop)
      : receiver_(receiver), choices_(choices), loop_(loop) {}

  // Lets one late payload land; false if no payload is late.
  bool landOne() {
    if (late_.empty()) return false;
    const auto one =
        *std::next(late_.begin(), static_cast<ptrdiff_t>(choices_.below(late_.size())));
    loop_.post([this, one] { finish(one, Status()); });
    return true;
  }
  void landAll() {
    if (late_.empty()) return;
    loop_.post([this] {
      while (!late_.empty()) finish(late_.front(), Status());
    });
  }
  // Ends the late payloads of `from`, or of all ranks, with `why`: they never land. On the loop.
  void end(std::optional<Rank> from, const Status& why) {
    for (const auto& one : std::list(late_)) {
      if (!from || one->from == *from) finish(one, why);
    }
  }

  Result<Landing> onMessage(Rank from, Lane lane, const wire::Header& header) override {
    auto landing = receiver_.onMessage(from, lane, header);
    if (!landing.isOk() || landing->isLater) return landing;
    SLUICE_CHECK(landing->buffer.bytes >= header.length, header.toString(), landing->buffer.bytes);
    if (choices_.isOneIn(2)) return landing;
    const auto one = std::make_shared<Late>(
        Late{from, std::vector<std::byte>(header.length), *std::move(landing)});
    late_.push_back(one);
    return Landing{{one->bytes.data(), one->bytes.size()}, [this, one](const Status& status) {
                     if (!status.isOk()) finish(one, status);
                   }};
  }
  void onPeerLost(Rank from, const Status& why) override {
    end(from, why);
    receiver_.onPeerLost(from, why);
  }
  void onPeerLeft(Rank from) override { receiver_.onPeerLeft(from); }

 private:
  struct Late {
    Rank from;
    std::vector<std::byte> bytes;
    Landing landing;
  };
  // NOLINTNEXTLINE(performance-unnecessary-value-param): it must outlive its place in late_
  void finish(std::shared_ptr<Late> one, const Status& status) {
    if (std::erase(late_, one) == 0) return;
    if (status.isOk() && !one->bytes.empty())
      std::memcpy(one->landing.buffer.data, one->bytes.data(), one->bytes.size());
    one->landing.done(status);
  }

  Receiver& receiver_;
  Choices& choices_;
  base::ManualLoop& loop_;
  std::list<std::shared_ptr<Late>> late_;
};

}  // namespace sluice::fabric
