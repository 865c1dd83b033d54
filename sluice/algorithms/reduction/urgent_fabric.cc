#include <sluice/algorithms/reduction/urgent_fabric.h>

#include <utility>

#include <sluice/base/check.h>

namespace sluice::algorithms {

UrgentFabric::UrgentFabric(fabric::Fabric& under, uint64_t window)
    : under_(under),
      egress_(under.loop().clock(), {.order = queue::SendOrder::kPriority, .window = window}) {}

void UrgentFabric::send(Rank to, fabric::Lane lane, const fabric::Message& message,
                        fabric::ConstBuffer payload, fabric::Done done) {
  SLUICE_DCHECK(under_.loop().inLoop());
  // Words are not held up: only bulk messages wait for credit and turn.
  if (lane != fabric::Lane::kBulk) return under_.send(to, lane, message, payload, std::move(done));
  const uint64_t tag = nextTag_++;
  waiting_.emplace(tag, Waiting{message, payload, std::move(done)});
  bytesWaiting_ += payload.bytes;
  egress_.push({.to = to,
                .bytes = payload.bytes,
                .step = message.step,
                .priority = index(message.tensor),
                .stage = message.stage,
                .tag = tag});
  handOver();
}

void UrgentFabric::handOver() {
  while (const auto handed = egress_.next()) {
    auto node = waiting_.extract(handed->send.tag);
    Waiting& one = node.mapped();
    bytesWaiting_ -= one.payload.bytes;
    // Credit comes back when the network is through with a message, well or badly, before
    // anybody else is told: what `done` sends next may need it. After an error nothing more
    // goes to this rank, and what waits for it ends here.
    under_.send(handed->send.to, fabric::Lane::kBulk, one.message, one.payload,
                [this, handed = *handed, done = std::move(one.done)](const Status& status) {
                  egress_.done(handed);
                  done(status);
                  if (status.isOk()) {
                    handOver();
                  } else {
                    drop(handed.send.to, status);
                  }
                });
  }
}

// Messages that still wait for a rank that is gone will not be sent either.
void UrgentFabric::drop(Rank to, const Status& why) {
  for (const queue::Send& send : egress_.drop(to)) {
    auto node = waiting_.extract(send.tag);
    bytesWaiting_ -= node.mapped().payload.bytes;
    node.mapped().done(why);
  }
}

}  // namespace sluice::algorithms
