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
  if (isListening_) fabric::runBeforeFreeing(job_.loop, [this] { stop(); });
}

void Epochs::post(std::function<void()> task) {
  job_.loop.post([task = std::move(task), alive = std::weak_ptr(alive_)] {
    if (!alive.expired()) task();
  });
}

Result<std::unique_ptr<EpochFabric>> Epochs::connect(fabric::Receiver& receiver, Events events) {
  receiver_ = &receiver;
  events_ = std::move(events);
  const Duration atMost = job_.config.duration(option::kRendezvousTimeout);
  const TimePoint deadline = job_.loop.now() + atMost;
  const auto ask = [&]() -> Status {
    if (job_.loop.now() > deadline) {
      return {Code::kTimeout, fmt::format("the members of session '{}' have not met within {}",
                                          name_, base::formatDuration(atMost))};
    }
    return job_.interruption ? job_.interruption() : base::ok();
  };
  // A loss during the first meeting breaks it off, and those who are left meet again.
  for (;;) {
    SLUICE_RETURN_IF_ERROR(ask());
    SLUICE_ASSIGN_OR_RETURN(auto listener, fabric::TcpListener::open(job_.address));
    EpochView view;
    const auto addresses = base::await<membership::GatherRounds::Values>(
        job_.loop,
        [&](auto got) {
          view = members_.view();
          members_.meet("fabric/" + name_, listener.address().toString(), std::move(got));
        },
        ask);
    if (addresses.status().code() == Code::kCancelled) continue;  // a member was lost
    SLUICE_RETURN_IF_ERROR(addresses.status());
    Result<std::unique_ptr<fabric::WatchedFabric>> made = Status(Code::kCancelled, "");
    SLUICE_RETURN_IF_ERROR(fabric::runAndWait(job_.loop, [&] {
      // An epoch may have begun since, and the addresses are those of the one before.
      if (members_.view().epoch != view.epoch) return;
      made = makeFabric(view, std::move(listener), *addresses);
      if (!made.isOk()) return;
      here_ = view;
      wanted_ = view;
      members_.add(*this);
      isListening_ = true;
    }));
    if (made.status().code() == Code::kCancelled) continue;
    SLUICE_RETURN_IF_ERROR(made.status());
    plan_ = std::make_unique<plan::Plan>(plan::Plan::continued(first_, here_.epoch, here_.members));
    auto fabric = std::make_unique<EpochFabric>(*std::move(made));
    fabric_ = fabric.get();
    return fabric;
  }
}

Result<std::unique_ptr<fabric::WatchedFabric>> Epochs::makeFabric(
    const EpochView& view, fabric::TcpListener listener, std::vector<std::string> addresses) {
  pulse_.enter(view.members);
  return job_.makeFabric(
      {.rank = view.self, .epoch = view.epoch, .addresses = std::move(addresses)},
      std::move(listener), *receiver_, &pulse_);
}

Result<std::unique_ptr<algorithms::Strategy>> Epochs::makeStrategy(
    const algorithms::Context& context, algorithms::ElasticStrategy::Make make) {
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
  if (wanted_.epoch != here_.epoch) changeTo(wanted_);
}

void Epochs::stop() {
  isStopped_ = true;
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
  // The port is open before its address is told, so that nobody connects in vain.
  auto listener = fabric::TcpListener::open(job_.address);
  if (!listener.isOk()) return onEnd(listener.status());
  const std::string address = listener->address().toString();
  const auto kept = std::make_shared<fabric::TcpListener>(*std::move(listener));
  members_.meet("fabric/" + name_, address,
                [this, view, kept, alive = std::weak_ptr(alive_)](
                    const Result<membership::GatherRounds::Values>& addresses) {
                  if (!alive.expired() && !isPast(view)) enter(view, std::move(*kept), addresses);
                });
}

void Epochs::enter(const EpochView& view, fabric::TcpListener listener,
                   const Result<membership::GatherRounds::Values>& addresses) {
  if (addresses.status().code() == Code::kCancelled) return;  // another epoch follows
  if (!addresses.isOk()) return onEnd(addresses.status());
  auto made = makeFabric(view, std::move(listener), *addresses);
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
