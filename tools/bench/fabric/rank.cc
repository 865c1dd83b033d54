#include <tools/bench/fabric/rank.h>

#include <csignal>
#include <cstdio>
#include <future>
#include <thread>

#include <fmt/format.h>

#include <sluice/base/cpu_time.h>
#include <sluice/base/mutex.h>
#include <sluice/base/options.h>
#include <sluice/session/job_parts.h>
#include <sluice/session/make_fabric.h>
#include <sluice/transport/fabric/common.h>
#include <tools/bench/fabric/traffic.h>

namespace sluice::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kWarmUpRounds = 2;   // of overtaking: connections are made and find their speed
constexpr auto kRoundLimit = 20s;  // at the slowest link that anybody measures
constexpr auto kAfterLoss = 1s;    // by then all news of it has come
constexpr Rank kSource{0};
constexpr Rank kTarget{1};

void say(std::string_view what, TimePoint when, std::string_view rest = "") {
  fmt::print("{} {}{}\n", what, when.time_since_epoch().count(), rest);
  std::fflush(stdout);
}

// Keeps the loop busy with one long task.
void keepBusy(Loop& loop, double seconds) {
  loop.post([&loop, seconds] {
    const TimePoint begin = loop.now();
    while (base::seconds(loop.now() - begin) < seconds) {
    }
    say("was-busy", loop.now());
  });
}

// The receiver of a rank; the main thread waits for its end.
class TrafficRank final : public fabric::Receiver {
 public:
  TrafficRank(const FabricTask& task, Loop& loop)
      : task_(task), loop_(loop), sink_(/*sums=*/task.which == FabricCase::kAllToAll) {
    sink_.onMarked = [this](const wire::Header& header) { onMarked(header); };
  }

  // Loop thread only.
  void begin(fabric::Fabric& fabric, TimePoint countFrom, TimePoint countTo) {
    fabric_ = &fabric;
    sink_.count(countFrom, countTo);
    switch (task_.which) {
      case FabricCase::kPair:
        if (fabric.rank() == kSource) flood({kTarget});
        break;
      case FabricCase::kAllToAll: flood(others()); break;
      case FabricCase::kOvertake:
        if (fabric.rank() == kSource) overtake();
        break;
      case FabricCase::kIdle:
        for (const Rank to : others())
          fabric.send(to, fabric::Lane::kBulk, {}, {}, [](const Status&) {});
    }
  }
  void stop() {
    if (flood_) flood_->stop();
    if (overtaking_) overtaking_->stop();
  }
  void setWindow(uint64_t bytes) { window_ = bytes; }
  Sink& sink() { return sink_; }

  // For the main thread.
  std::future<Status>& ended() { return ended_; }
  bool hasLost() const { return hasLost_; }

  Result<fabric::Landing> onMessage(Rank, fabric::Lane, const wire::Header& header) override {
    if (header.length > kMessageBytes)
      return Status(Code::kRefused, "a message is longer than any that is sent here");
    return sink_.land(header, loop_);
  }
  void onPeerLost(Rank from, const Status& why) override {
    say(fmt::format("lost {}", from), loop_.now(), " " + why.message());
    hasLost_ = true;
    end(why);
  }
  void onPeerLeft(Rank) override {}

 private:
  void flood(const std::vector<Rank>& to) {
    flood_.emplace(*fabric_, to);
    flood_->start();
  }
  std::vector<Rank> others() const {
    std::vector<Rank> others;
    for (uint32_t r = 0; r < fabric_->worldSize(); ++r) {
      if (Rank{r} != fabric_->rank()) others.push_back(Rank{r});
    }
    return others;
  }

  void overtake() {
    const queue::EgressOptions fifo{.order = queue::Order::kFifo};
    const queue::EgressOptions priority{.order = queue::Order::kPriority, .window = window_};
    overtaking_.emplace(*fabric_, kTarget, task_.isFifo ? fifo : priority);
    overtaking_->startRound();
  }
  void onMarked(const wire::Header& header) {
    if (fabric_ == nullptr) return;
    if (fabric_->rank() == kTarget) {
      if (++marks_ % 2 != 0)
        return;  // the urgent one, or the last of the backlog, is still to come
      fabric::Message answer;
      answer.flags = kRoundIsOver;
      fabric_->send(kSource, fabric::Lane::kControl, answer, {}, [](const Status&) {});
    } else if (wire::has(header.flags, kRoundIsOver) &&
               rounds_ + 1 < task_.rounds + kWarmUpRounds) {
      overtaking_->startRound();
    }
    if (++rounds_ == task_.rounds + kWarmUpRounds) end(base::ok());
  }
  void end(const Status& status) {
    if (!std::exchange(hasEnded_, true)) promise_.set_value(status);
  }

  const FabricTask task_;
  Loop& loop_;
  std::atomic<bool> hasLost_{false};
  std::promise<Status> promise_;
  std::future<Status> ended_ = promise_.get_future();

  // Loop only.
  fabric::Fabric* fabric_ = nullptr;
  Sink sink_;
  uint64_t window_ = queue::kUnlimited;
  std::optional<Flood> flood_;
  std::optional<Overtaking> overtaking_;
  int marks_ = 0;
  int rounds_ = 0;
  bool hasEnded_ = false;
};

}  // namespace

Result<FabricReport> runFabricRank(const FabricTask& task, const base::Config& config,
                                   const base::Config::Values& environment) {
  if (task.outlivesLoss) std::signal(SIGTERM, SIG_IGN);  // the launcher ends all when one dies
  SLUICE_ASSIGN_OR_RETURN(const auto job, session::JobParts::join(config, environment));
  if (job->worldSize() < 2)
    return Status(Code::kInvalidArgument, "a fabric needs at least two ranks");
  TrafficRank rank(task, job->loop());
  rank.setWindow(config.bytes(option::kCredit));
  SLUICE_ASSIGN_OR_RETURN(const auto fabric, session::makeFabric(*job, "bench", rank));
  SLUICE_RETURN_IF_ERROR(job->gather("bench/ready", "").status());

  const auto from = job->loop().now() + base::fromSeconds(task.warmUpSeconds);
  const auto to = from + base::fromSeconds(task.seconds);
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(job->loop(), [&] { rank.begin(*fabric, from, to); }));
  FabricReport report;
  auto& ended = rank.ended();
  if (task.which == FabricCase::kOvertake) {
    const auto limit = kRoundLimit * (task.rounds + kWarmUpRounds);
    if (ended.wait_for(limit) != std::future_status::ready)
      return Status(Code::kTimeout, "the urgent slice never came");
  } else if (ended.wait_until(from) != std::future_status::ready) {
    say("ready", job->loop().now());
    if (task.busySeconds > 0 && job->rank() == kTarget) keepBusy(job->loop(), task.busySeconds);
    const Duration before = base::processCpuTime();
    ended.wait_until(to);
    report.cpuSeconds = base::seconds(base::processCpuTime() - before);
  }
  if (rank.hasLost() && task.outlivesLoss) std::this_thread::sleep_for(kAfterLoss);
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(job->loop(), [&] {
    rank.stop();
    report.urgentMs = rank.sink().urgentMs;
    report.receivedGbit = static_cast<double>(rank.sink().countedBytes()) * 8e-9 / task.seconds;
  }));
  const size_t notCounted = std::min<size_t>(report.urgentMs.size(), kWarmUpRounds);
  report.urgentMs.erase(report.urgentMs.begin(),
                        report.urgentMs.begin() + static_cast<ptrdiff_t>(notCounted));
  report.strangers = fabric->counters().strangers;
  report.connections = fabric->counters().connections;
  if (rank.hasLost()) return task.outlivesLoss ? Result<FabricReport>(report) : ended.get();
  SLUICE_RETURN_IF_ERROR(job->gather("bench/done", "").status());
  SLUICE_RETURN_IF_ERROR(fabric::closeAndWait(*fabric));
  return report;
}

}  // namespace sluice::bench
