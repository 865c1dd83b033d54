#include <tools/bench/collective_rank.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include <sluice/base/await.h>
#include <sluice/data/collective/fabric_collective.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/session/job_parts.h>
#include <sluice/session/make_fabric.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::bench {
namespace {

constexpr int kWarmUp = 3;
constexpr int kLeast = 5;  // all-reduces that count
constexpr int kMost = 2000;

class CollectiveMember final : public fabric::Receiver {
 public:
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override {
    if (collective_ != nullptr) return collective_->onMessage(from, lane, header);
    return Status(Code::kRefused, "this rank has not begun");
  }
  void onPeerLost(Rank, const Status& why) override {
    if (collective_ != nullptr) collective_->fail(why);
  }
  void onPeerLeft(Rank) override {}

  // Loop thread only.
  void begin(fabric::Fabric& fabric) {
    collective_ = std::make_unique<collective::FabricCollective>(fabric);
  }
  collective::Collective& collective() { return *collective_; }

 private:
  std::unique_ptr<collective::FabricCollective> collective_;
};

class Measurement final {
 public:
  Measurement(const CollectiveTask& task, session::JobParts& job, CollectiveMember& member)
      : task_(task), job_(job), member_(member) {}

  Status measure(const std::string& methodName, uint64_t bytes,
                 std::vector<CollectiveFigure>& figures) {
    SLUICE_ASSIGN_OR_RETURN(const auto method, collective::parseMethod(methodName));
    SLUICE_ASSIGN_OR_RETURN(const auto* codec, codec::findCodec(task_.codec));
    std::vector<float> data(std::max<uint64_t>(1, bytes / sizeof(float)), 1.0F);
    const auto once = [&]() -> Result<double> {
      const collective::Call call{.ticket = {Step{step_++}, TensorId{0}},
                                  .method = method,
                                  .data = std::as_writable_bytes(std::span(data)),
                                  .strips = task_.strips};
      const TimePoint begin = job_.loop().now();
      SLUICE_RETURN_IF_ERROR(base::awaitStatus(job_.loop(), [&](auto done) {
        member_.collective().allReduce(
            call, {.scale = kernel::meanScale(job_.worldSize()), .codec = codec}, std::move(done));
      }));
      return base::seconds(job_.loop().now() - begin);
    };
    double slowest = 0;
    for (int i = 0; i < kWarmUp; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const double seconds, once());
      slowest = std::max(slowest, seconds);
    }
    SLUICE_ASSIGN_OR_RETURN(const int rounds, agreedRounds(slowest));
    std::vector<double> times;
    for (int i = 0; i < rounds; ++i) {
      SLUICE_ASSIGN_OR_RETURN(const double seconds, once());
      times.push_back(seconds);
    }
    // The mean of ones is one, up to the rounding of 1/N.
    const bool isRight =
        std::ranges::all_of(data, [](float value) { return std::abs(value - 1) < 1e-3; });
    if (!isRight)
      return {Code::kDataLoss,
              fmt::format("{} of {} bytes gave a wrong sum: this is a defect of sluice", methodName,
                          bytes)};
    std::ranges::sort(times);
    figures.push_back({methodName, bytes, times[times.size() / 2],
                       times[std::min(times.size() - 1, times.size() * 99 / 100)]});
    return base::ok();
  }

 private:
  // Returns the same number on every rank: that of the first.
  Result<int> agreedRounds(double seconds) {
    const int own = static_cast<int>(
        std::clamp(task_.seconds / std::max(seconds, 1e-6), double{kLeast}, double{kMost}));
    SLUICE_ASSIGN_OR_RETURN(
        const auto all, job_.gather(fmt::format("bench/rounds/{}", step_), std::to_string(own)));
    return std::stoi(all[0]);
  }

  const CollectiveTask& task_;
  session::JobParts& job_;
  CollectiveMember& member_;
  uint64_t step_ = 0;
};

}  // namespace

Result<std::vector<CollectiveFigure>> runCollectiveRank(const CollectiveTask& task,
                                                        const base::Config& config,
                                                        const base::Config::Values& environment) {
  SLUICE_ASSIGN_OR_RETURN(const auto job, session::JobParts::join(config, environment));
  CollectiveMember member;
  SLUICE_ASSIGN_OR_RETURN(const auto fabric, session::makeFabric(*job, "bench", member));
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(job->loop(), [&] { member.begin(*fabric); }));
  SLUICE_RETURN_IF_ERROR(job->gather("bench/ready", "").status());
  Measurement measurement(task, *job, member);
  std::vector<CollectiveFigure> figures;
  for (const uint64_t bytes : task.sizes) {
    for (const std::string& method : task.methods)
      SLUICE_RETURN_IF_ERROR(measurement.measure(method, bytes, figures));
  }
  SLUICE_RETURN_IF_ERROR(job->gather("bench/done", "").status());
  SLUICE_RETURN_IF_ERROR(fabric::closeAndWait(*fabric));
  return figures;
}

}  // namespace sluice::bench
