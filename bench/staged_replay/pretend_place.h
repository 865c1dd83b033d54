// A rank of a replay whose tensors lie on a pretend device. Kernels that sleep take the place of
// computing; they are queued by the host, which runs ahead of the device as with a real one.
// Copies sleep for their bandwidth.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <bench/staged_replay/watched_device.h>
#include <sluice/observe/trace/rank_trace.h>
#include <tools/bench/replay_place.h>

namespace sluice::bench {

class PretendPlace final : public ReplayPlace {
 public:
  // Copies have this bandwidth in each direction.
  explicit PretendPlace(double bytesPerSecond) : bytesPerSecond_(bytesPerSecond) {}

  void makeTensors(const Model& model, Rank rank, SessionOptions& options) override;
  void start(Session& session) override { session_ = &session; }
  Status forward(TensorId tensor, Duration work) override;
  Status backward(TensorId tensor, Duration work) override;
  TimePoint finish() override;
  std::string parametersHash() override;

  Rank rank() const { return rank_; }

  // Replaces the host's times in the trace of this rank by the device's. The host only queues work,
  // so the session does not know when a gradient was made, when its copy began, and how long the
  // device waited. A device waits in a forward pass from the end of one kernel to the beginning of
  // the next. REQUIRES: the session has ended.
  void putDeviceTimes(trace::RankTrace& trace);

 private:
  // A part of a pass, on the device.
  struct Kernel {
    TensorId tensor{};
    Step step{};
    bool isForward = false;
    TimePoint from{};  // by the timeline
    TimePoint to{};
    TimePoint done{};  // when it has really ended
  };
  void compute(TensorId tensor, bool isForward, Duration work);

  const double bytesPerSecond_;
  Rank rank_{};
  Session* session_ = nullptr;
  std::optional<ReplayMemory> memory_;  // the numbers, before and after
  std::optional<WatchedDevice> device_;
  std::vector<std::shared_ptr<staging::testing::PretendBytes>> gradients_;  // by TensorId
  std::vector<std::shared_ptr<staging::testing::PretendBytes>> results_;    // by TensorId
  std::vector<uint64_t> steps_;                                             // begun, by TensorId

  // The device's stream writes these; others read them when it is done.
  Timeline timeline_{TimePoint{}};
  std::vector<Kernel> kernels_;  // in order
};

}  // namespace sluice::bench
