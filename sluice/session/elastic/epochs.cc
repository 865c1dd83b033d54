#include <sluice/session/elastic/epochs.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/await.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::session {

using membership::EpochView;

Epochs::Epochs(EpochsJob job, std::string name, plan::Plan first)
    : job_(std::move(job)),
      members_(job_.members),
      name_(std::move(name)),
      first_(std::move(first)),
      pulse_(job_.pulse) {}

Epochs::~Epochs() {
  // Tasks on the loop look at alive_ first, so it goes there: none of them is in the middle then.
  if (receiver_ == nullptr) return;  // nothing has begun
  fabric::runBeforeFreeing(job_.loop, [this] {
    stop();
    alive_.reset();
  });
}

void Epochs::post(std::function<void()> task) {
  job_.loop.post([task = std::move(task), alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) task();
  });
}

Result<std::unique_ptr<EpochFabric>> Epochs::connect(fabric::Receiver& receiver, Events events) {
  const Duration atMost = job_.config.duration(option::kRendezvousTimeout);
  const TimePoint deadline = job_.loop.now() + atMost;
  const auto ask = [&]() -> Status {
    if (job_.loop.now() > deadline) {
      return {Code::kTimeout, fmt::format("the members of session '{}' have not met within {}",
                                          name_, base::formatDuration(atMost))};
    }
    return job_.interruption ? job_.interruption() : base::ok();
  };
  SLUICE_RETURN_IF_ERROR(ask());
  auto fabric = base::await<std::unique_ptr<EpochFabric>>(
      job_.loop, [&](auto got) { connectLater(receiver, std::move(events), std::move(got)); }, ask);
  // Nobody waits any more, and the receiver goes: what is under way must not reach it.
  if (!fabric.isOk()) fabric::runBeforeFreeing(job_.loop, [this] { stop(); });
  return fabric;
}

void Epochs::connectLater(fabric::Receiver& receiver, Events events, Connected connected) {
  receiver_ = &receiver;
  events_ = std::move(events);
  connected_ = std::move(connected);
  meetFirst();
}

void Epochs::meetFirst() {
  if (isStopped_) return;
  // The port is open before its address is told, so that nobody connects in vain.
  auto port = job_.openPort();
  if (!port.isOk()) {
    return post([this, why = port.status()] {
      if (!isStopped_) std::exchange(connected_, nullptr)(why);
    });
  }
  const EpochView view = members_.view();
  const std::string address = port->address;
  members_.meet("fabric/" + name_, address,
                [this, view, port = *std::move(port), alive = std::weak_ptr(alive_)](
                    const Result<membership::GatherRounds::Values>& addresses) {
                  if (!alive.expired() && !isStopped_) enterFirst(view, port, addresses);
                });
}

void Epochs::enterFirst(const EpochView& view, const EpochPort& port,
                        const Result<membership::GatherRounds::Values>& addresses) {
  // A loss during the first meeting breaks it off, and those who are left meet again. An epoch may
  // also have begun since the meeting, and the addresses are those of the one before.
  const bool isBrokenOff = addresses.status().code() == Code::kCancelled;
  if (isBrokenOff || (addresses.isOk() && members_.view().epoch != view.epoch))
    return post([this] { meetFirst(); });
  const Connected connected = std::exchange(connected_, nullptr);
  if (!addresses.isOk()) return connected(addresses.status());
  auto made = makeFabric(view, port, *addresses);
  if (!made.isOk()) return connected(made.status());
  here_ = view;
  wanted_ = view;
  members_.add(*this);
  isListening_ = true;
  plan_ = std::make_unique<plan::Plan>(plan::Plan::continued(first_, here_.epoch, here_.members));
  auto fabric = std::make_unique<EpochFabric>(*std::move(made));
  fabric_ = fabric.get();
  connected(std::move(fabric));
}

Result<std::unique_ptr<fabric::WatchedFabric>> Epochs::makeFabric(
    const EpochView& view, const EpochPort& port, std::vector<std::string> addresses) {
  pulse_.enter(view.members);
  return port.connect({.rank = view.self, .epoch = view.epoch, .addresses = std::move(addresses)},
                      *receiver_, &pulse_);
}

Result<std::unique_ptr<algorithms::Strategy>> Epochs::makeStrategy(
    const algorithms::Context& context, algorithms::ElasticStrategy::Make make) {
  // A member that was lost while the others opened may have cost some of them the first epoch. It is
  // in the log of all.
  if (here_.epoch != Epoch{0}) {
    EpochView first{.epoch = Epoch{0}, .members = {}, .self = here_.memberAt(here_.self)};
    for (uint32_t rank = 0; rank < first_.roles().world; ++rank)
      first.members.push_back(Rank{rank});
    history_.add(first, std::vector<Step>(first_.slices().size(), Step{0}));
  }
  SLUICE_ASSIGN_OR_RETURN(
      auto strategy, algorithms::ElasticStrategy::begin(
                         context, std::move(make),
                         [this](const std::vector<Step>& steps) { history_.add(here_, steps); }));
  strategy_ = strategy.get();
  return std::unique_ptr<algorithms::Strategy>(std::move(strategy));
}

void Epochs::begin() {
  hasBegun_ = true;
  // An epoch may have come before the strategy was in its place.
  if (wanted_.epoch != here_.epoch) return changeTo(wanted_);
  if (here_.epoch == Epoch{0}) return;
  // Others may have begun in an earlier epoch. They report what they have, and wait for a report of
  // this member.
  strategy_->suspend();
  if (const Status entered = strategy_->enter(*plan_, *fabric_); !entered.isOk()) onEnd(entered);
}

void Epochs::stop() {
  isStopped_ = true;
  connected_ = nullptr;
  if (std::exchange(isListening_, false)) members_.remove(*this);
}

void Epochs::onPeerLost(Rank rank, const Status& why) {
  if (isStopped_) return;
  log("session").debug("the connection to rank {} of epoch {} is lost: {}", rank, here_.epoch,
                       why.message());
  // Whether the rank is lost is for the members' own fabric to say. Until then gradients are
  // only remembered, and no error of the broken connection counts.
  if (hasBegun_) strategy_->suspend();
  members_.suspect(here_.epoch, rank, why);
}

void Epochs::onEpoch(const EpochView& view) {
  wanted_ = view;
  if (hasBegun_) changeTo(view);
}

void Epochs::onEnd(const Status& why) {
  stop();
  events_.onEnd(why);
}

void Epochs::changeTo(const EpochView& view) {
  strategy_->suspend();
  post([this, view] {
    // Epochs can follow each other faster than tasks run, and only the latest counts.
    if (isPast(view)) return;
    fabric_->drop();
    // The meeting is a later task, so that what the fabric has posted last runs before it.
    post([this, view] { meet(view); });
  });
}

void Epochs::meet(const EpochView& view) {
  if (isPast(view)) return;
  auto port = job_.openPort();
  if (!port.isOk()) return onEnd(port.status());
  const std::string address = port->address;
  members_.meet("fabric/" + name_, address,
                [this, view, port = *std::move(port), alive = std::weak_ptr(alive_)](
                    const Result<membership::GatherRounds::Values>& addresses) {
                  if (!alive.expired() && !isPast(view)) enter(view, port, addresses);
                });
}

void Epochs::enter(const EpochView& view, const EpochPort& port,
                   const Result<membership::GatherRounds::Values>& addresses) {
  if (addresses.status().code() == Code::kCancelled) return;  // another epoch follows
  if (!addresses.isOk()) return onEnd(addresses.status());
  auto made = makeFabric(view, port, *addresses);
  if (!made.isOk()) return onEnd(made.status());
  here_ = view;
  // The strategy uses the plan of the epoch before until it enters this one.
  const auto last = std::exchange(
      plan_, std::make_unique<plan::Plan>(plan::Plan::continued(first_, view.epoch, view.members)));
  fabric_->replace(*std::move(made));
  // The trainer knows the new ranks before the strategy sends its first message under them.
  events_.onEntered();
  if (const Status entered = strategy_->enter(*plan_, *fabric_); !entered.isOk()) onEnd(entered);
}

void Epochs::broadcast(Rank root, const std::shared_ptr<std::vector<std::byte>>& data,
                       fabric::Done done) {
  const EpochView now = members_.view();
  if (index(root) >= now.size()) {
    return post([done = std::move(done), root] {
      done({Code::kInvalidArgument, fmt::format("there is no rank {}", root)});
    });
  }
  // Every member brings a value, of which only the root's has bytes. It is made anew in each
  // epoch, since the root has another rank there.
  const auto bring = [data, member = now.memberAt(root)](const EpochView& view) {
    const Rank from = view.rankOf(member).value_or(Rank{0});
    if (view.self != from) return std::string();
    return std::string(reinterpret_cast<const char*>(data->data()), data->size());
  };
  members_.gather(
      "broadcast/" + name_, data->size(), bring, job_.config.duration(option::kWaitTimeout),
      [data, done = std::move(done)](const Result<membership::GatherRounds::Values>& values) {
        if (!values.isOk()) return done(values.status());
        std::string brought;  // only one of the values is not empty
        for (const auto& value : *values) brought += value;
        if (brought.size() != data->size()) {
          return done({Code::kInvalidArgument,
                       fmt::format("a broadcast has {} bytes, but this rank expects {}",
                                   brought.size(), data->size())});
        }
        std::ranges::copy(std::as_bytes(std::span(brought)), data->begin());
        done(base::ok());
      });
}

std::string Epochs::describeWait() const {
  return members_.describeWait();
}

}  // namespace sluice::session
