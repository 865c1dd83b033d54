#include <sluice/algorithms/outbox.h>

#include <algorithm>
#include <utility>

#include <sluice/algorithms/slices.h>
#include <sluice/base/check.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {

uint64_t creditOf(const base::Config& config) {
  return shrunk(config, config.bytes(option::kCredit));
}

queue::EgressOptions byUrgency(const base::Config& config) {
  return {.order = queue::SendOrder::kPriority, .window = creditOf(config)};
}

queue::EgressOptions byUrgencyOverAll(const base::Config& config, size_t destinations) {
  // BBR learns the rate of a connection only while it has enough to send, which a shared credit
  // prevents.
  if (config.text(option::kCongestionControl) == "bbr") return byUrgency(config);
  // Among few destinations each may use all of the credit; among many, each gets a share.
  constexpr size_t kFew = 3;
  const uint64_t credit = creditOf(config);
  const uint64_t ofOne =
      destinations <= kFew ? credit : std::max(credit / destinations * kFew, credit / 4);
  return {.order = queue::SendOrder::kPriority, .window = ofOne, .totalWindow = credit};
}

Outbox::Outbox(const Context& context, const queue::EgressOptions& options)
    : fabric_(context.fabric),
      gates_(context.gates),
      stages_(context.stages()),
      egress_(context.fabric.loop().clock(), options) {}

void Outbox::post(const Parcel& parcel) {
  SLUICE_DCHECK(fabric_.loop().inLoop());
  const fabric::Message message{.step = parcel.step,
                                .tensor = parcel.slice.tensor,
                                .slice = parcel.slice.id,
                                .stage = parcel.stage,
                                .flags = parcel.flags,
                                .dtype = parcel.dtype};
  const uint64_t tag = nextTag_++;
  // The queue knows a message by its tag alone, so that queue/ needs no type of this folder.
  // The content waits here, and is extracted when its tag comes up.
  waiting_.emplace(tag, Packed{message, parcel.payload, parcel.done, parcel.atLast, parcel.owner});
  bytesWaiting_ += parcel.payload.bytes;
  stages_.enter(Stage::kQueued, parcel.step, parcel.slice, parcel.to);
  egress_.push({.to = parcel.to,
                .bytes = parcel.payload.bytes,
                .step = parcel.step,
                .priority = parcel.slice.priority,
                .stage = parcel.stage,
                .turn = parcel.turn,
                .tag = tag});
  handOver();
}

void Outbox::handOver() {
  while (const auto handed = egress_.next()) {
    auto node = waiting_.extract(handed->send.tag);
    Packed& packed = node.mapped();
    bytesWaiting_ -= packed.payload.bytes;
    if (packed.atLast) packed.atLast(packed.payload, packed.message.flags);
    const fabric::Message& sent = packed.message;
    stages_.enter(sent.stage, sent.step, sent.tensor, sent.slice, handed->send.to);
    fabric_.send(handed->send.to, fabric::Lane::kBulk, packed.message, packed.payload,
                 [this, handed = *handed, done = std::move(packed.done),
                  owner = std::move(packed.owner)](const Status& status) {
                   egress_.done(handed);
                   if (done) {
                     done(status);
                   } else if (!status.isOk() && status.code() != Code::kUnavailable) {
                     // A rank that has closed may have ended because another one is lost.
                     // Trainer::onPeerLeft() waits a moment for that one's name.
                     gates_.fail(status);
                   }
                   // After an error nothing more is sent: the step is lost, or the fabric is
                   // closing. Only a parcel with its own `done` can be missed, since its sender has
                   // seen to that.
                   const bool isTheEnd = !done || status.code() == Code::kCancelled;
                   if (status.isOk() || !isTheEnd) handOver();
                 });
  }
}

}  // namespace sluice::algorithms
