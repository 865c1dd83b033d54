// A training algorithm: how gradients become parameters across ranks. A strategy strings the rooms below it
// together (gate, queue, shard, codec, fabric) and owns no arithmetic. A new one is one file here and one line
// in algorithms.cc; docs/add-an-algorithm.md shows it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/status.h>
#include <sluice/fabric/fabric.h>
#include <sluice/gate/gates.h>
#include <sluice/plan/plan.h>
#include <sluice/plan/stage_observer.h>
#include <sluice/shard/optimizer_spec.h>

namespace sluice::strategy {

// Where a tensor lies at a worker. The result of a step (new parameters or mean gradient) lands in `result`,
// which may be the gradient itself.
struct TensorMemory {
  std::span<const std::byte> gradient;
  std::span<std::byte> result;
};

// What a strategy stands on. Everything outlives it and belongs to, or may be called from, the fabric's loop.
struct Rooms {
  const plan::Plan& plan;
  fabric::Fabric& fabric;
  gate::Gates& gates;
  std::span<const TensorMemory> memory;  // by TensorId; empty at a rank that only serves
  shard::OptimizerSpec update;
  const Config& config;                  // for what need not be the same on all ranks: credit
  plan::StageObserver* observer = nullptr;
};

// One rank's part in the algorithm. Every method runs on the fabric's loop.
class Strategy {
 public:
  virtual ~Strategy() = default;

  // Backward has made the gradient of `tensor`; its gate is closed for `step`. The gradient must not change
  // until the strategy opens the gate.
  virtual void gradientReady(TensorId tensor, Step step) = 0;

  // As fabric::Receiver::onMessage.
  virtual Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane, const wire::Header& header) = 0;

  // New hyperparameters for the update on servers, from the next step on.
  virtual Status setHyperparameters(const std::vector<double>& values) = 0;

  // What `tensor` waits for, in words that name ranks: "slices 3-5 from server rank 2".
  virtual std::string describeWait(TensorId tensor) const = 0;
};

// One line in the list of algorithms.
struct Algorithm {
  std::string_view name;
  std::string_view help;
  // Fills in how it slices and what all ranks must agree on besides.
  Status (*choose)(const Config& config, plan::PlanSpec& spec);
  Result<std::unique_ptr<Strategy>> (*make)(const Rooms& rooms);
};

}  // namespace sluice::strategy
