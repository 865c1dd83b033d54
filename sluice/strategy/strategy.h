// A training algorithm: how gradients become parameters across ranks. A strategy strings the rooms
// below it together (gate, queue, shard, fabric) and owns no arithmetic. A new one is one file here
// and one line in algorithms.cc; docs/add-an-algorithm.md shows it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/config.h>
#include <sluice/base/histogram.h>
#include <sluice/base/status.h>
#include <sluice/fabric/fabric.h>
#include <sluice/gate/gates.h>
#include <sluice/observer.h>
#include <sluice/optimizer/optimizer_spec.h>
#include <sluice/plan/plan.h>

namespace sluice::collective {
class Collective;
}  // namespace sluice::collective

namespace sluice::strategy {

// What a strategy stands on. All of it is used on the fabric's loop, and outlives the strategy;
// only the fabric goes first, so that its last completions find the strategy alive.
struct Rooms {
  const plan::Plan& plan;
  fabric::Fabric& fabric;
  gate::Gates& gates;
  std::span<const TensorMemory> memory;  // by TensorId; empty at a rank that only serves
  optimizer::OptimizerSpec update;
  // By TensorId: what servers start from. Only looked at while the strategy is made, and only if
  // the update publishes parameters.
  std::span<const std::span<const std::byte>> parameters;
  const base::Config& config;  // for what may differ between ranks: credit
  StageObserver* observer;     // may be null
  // True iff no update is made before the training thread has said so, by Strategy::decide().
  bool updatesWaitForWord = false;
  // Who reduces, for algorithms that all-reduce. Null: the strategy itself, on the fabric.
  collective::Collective* collective = nullptr;
  // Told when the bytes of a message that was taken in turn out to be none that `peer` may send.
  // Without it the gates fail.
  std::function<void(Rank peer, const Status& why)> onRefused{};

  void refuse(Rank peer, const Status& why) const {
    if (onRefused) return onRefused(peer, why);
    gates.fail(why.withContext(fmt::format("rank {} has sent", index(peer))));
  }
};

// What is to become of a step whose gradients have all been handed over.
enum class Decision : uint8_t { kUpdate, kDrop };

struct Statistics {
  uint64_t bytesWaiting = 0;    // slices that wait for their turn
  uint64_t bytesInFlight = 0;   // credit in use
  base::Histogram inversion{};  // priority inversion time of every slice sent
};

// One rank's part in the algorithm. It is made, saved and restored on the training thread, since
// all three take as long as copying the model; every other method runs on the fabric's loop.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Backward has made the gradient of `tensor`; its gate is closed for `step`. The gradient must
  // not change until the strategy opens the gate.
  virtual void gradientReady(TensorId tensor, Step step) = 0;

  // The same for a step in which this worker has no gradient for the tensor: its part counts as
  // zeros. If no worker has one the gate opens empty, and nothing is updated.
  virtual void gradientAbsent(TensorId tensor, Step step) = 0;

  // As fabric::Receiver::onMessage.
  virtual Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                            const wire::Header& header) = 0;

  // New hyperparameters for the update on servers, from step `from` on, of which no gradient has
  // been handed over yet. Every worker says the same; at a rank that only serves this does nothing.
  virtual Status setHyperparameters(const std::vector<double>& values, Step from) = 0;

  // With Rooms::updatesWaitForWord: all gradients of the last step have been handed over, and every
  // worker decides the same. Dropped, every gate opens empty.
  virtual Status decide(Decision /*decision*/) {
    return {Code::kInvalidArgument,
            "this algorithm has no servers that could update; use algorithm=sluice"};
  }

  // How many means of earlier steps have not been handed out: only where results are delayed.
  virtual size_t delayed() const { return 0; }

  // There is no gradient in this step, on no rank: the oldest of them is its result. The gate of
  // `tensor` is closed for `step`. Called for all tensors. An error of an algorithm that delays
  // nothing.
  virtual Status handOutDelayed(TensorId /*tensor*/, Step /*step*/) {
    return {Code::kInvalidArgument, "this algorithm delays no results; only pipe does"};
  }

  // `done` runs when nothing of this rank is on its way any more, or with why it never will arrive.
  // Open gates do not say so: a delayed result is not waited for.
  using Done = std::function<void(const Status&)>;
  virtual void whenIdle(const Done& done) { done(base::ok()); }

  // `done` runs when all that takeState() takes from other ranks is here, or with why it never will
  // be. REQUIRES: every gate is open, and it is idle.
  virtual void prepareState(const Done& done) { done(base::ok()); }

  // What this rank remembers from step to step, for a checkpoint; empty: nothing. Put back on a
  // rank of the same model, training goes on as if it had not stopped; empty, as if it began.
  // REQUIRES: every gate is open, and it is idle; of takeState(): prepared, once for each call.
  //
  // takeState() is not a mere look: where workers have copies of the servers' parameters, this
  // worker's become those that are saved.
  //
  // Training thread. The loop goes on meanwhile: other ranks may be in the next step already. What
  // is read and written here must be what only steps of this rank change, and there is none now;
  // what others' messages change as well is touched on the loop, in pieces (pieces.h).
  virtual Result<std::vector<std::byte>> takeState() { return std::vector<std::byte>(); }
  virtual Status restore(std::span<const std::byte> state) {
    return state.empty()
               ? base::ok()
               : Status(Code::kInvalidArgument, "this algorithm has no state to put back");
  }

  // Between two steps of this rank: which workers are seen to be in the next one already.
  virtual std::set<Rank> ahead() const { return {}; }

  // A rank is lost, or somebody has to stop: nothing under way will end well.
  virtual void fail(const Status& /*why*/) {}
  // The same for what belongs to the step of this number and later ones: another rank takes part no
  // longer.
  virtual void endAfter(uint64_t /*steps*/, const Status& /*why*/) {}

  // Another worker takes part in no step from this number on: the first step that can have no
  // result without it; none, if this rank can go on alone.
  virtual std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const {
    return stepsOfOther;
  }

  // True iff this rank would go on without the other one, or, of this rank itself, the others
  // without it; else every wait ends with the name of who is lost.
  virtual bool goesOnWithout(Rank /*lost*/) const { return false; }
  // This rank is gone: lost, or it has left before the others. REQUIRES: goesOnWithout() it.
  virtual void forget(Rank /*lost*/) {}

  // What `tensor` waits for, in words that name ranks: "2 of 5 slices missing: 2 from server rank
  // 3".
  virtual std::string describeWait(TensorId tensor) const = 0;

  virtual Statistics statistics() const = 0;
};

// One line in the list of algorithms.
struct Algorithm {
  std::string_view name;
  std::string_view help;
  // Fills in how it slices, and what all ranks must agree on besides.
  Status (*choose)(const base::Config& config, plan::PlanSpec& spec);
  Result<std::unique_ptr<Strategy>> (*make)(const Rooms& rooms);
  std::string_view alias{};                // what else it is known by
  const base::Option* argument = nullptr;  // the option that "NAME:VALUE" sets
  // True iff after every step all ranks have the same parameters, bit for bit.
  bool keepsRanksEqual = true;
};

}  // namespace sluice::strategy
