#include <tools/planner/sweep.h>

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace sluice::planner {
namespace {

constexpr std::array kTimes{0.25, 0.5, 1.0, 2.0, 4.0, 10.0};
constexpr std::array kHosts{2U, 4U, 8U, 16U};

Status addPoints(const Question& question, const PlanChoice& decision,
                 const std::function<void(std::string_view)>& onPoint,
                 std::vector<SweepPoint>& points) {
  const sim::NetworkOptions& network = question.cluster.network;
  for (int i = 0; i < kExactnesses; ++i) {
    const Prediction* best = bestOf(decision, static_cast<Exactness>(i));
    if (best == nullptr) continue;
    onPoint(fmt::format("{} with {} hosts at {}", best->candidate.name(), network.hosts,
                        base::formatRate(network.rate)));
    SLUICE_ASSIGN_OR_RETURN(auto prediction, predict(question, best->candidate));
    if (prediction) points.push_back({network.rate, network.hosts, *std::move(prediction)});
  }
  return base::ok();
}

}  // namespace

Question withRatesTimes(Question question, double times) {
  const auto scale = [times](Rate& rate) {
    rate.bitsPerSecond =
        static_cast<uint64_t>(std::llround(static_cast<double>(rate.bitsPerSecond) * times));
  };
  sim::NetworkOptions& network = question.cluster.network;
  scale(network.rate);
  for (auto* links : {&network.topology.hosts, &network.topology.racks}) {
    for (auto& [number, link] : *links) {
      scale(link.out);
      scale(link.in);
    }
  }
  if (network.topology.uplink) scale(*network.topology.uplink);
  return question;
}

Result<std::vector<SweepPoint>> sweepRates(const Question& question, const PlanChoice& decision,
                                           const std::function<void(std::string_view)>& onPoint) {
  std::vector<SweepPoint> points;
  for (const double times : kTimes) {
    SLUICE_RETURN_IF_ERROR(addPoints(withRatesTimes(question, times), decision, onPoint, points));
  }
  return points;
}

Result<std::vector<SweepPoint>> sweepHosts(const Question& question, const PlanChoice& decision,
                                           const std::function<void(std::string_view)>& onPoint) {
  std::vector<SweepPoint> points;
  for (const uint32_t hosts : kHosts) {
    Question other = question;
    other.cluster.network.hosts = hosts;
    other.cluster.network.topology = {};
    other.cluster.slowerHosts.clear();
    SLUICE_RETURN_IF_ERROR(addPoints(other, decision, onPoint, points));
  }
  return points;
}

nlohmann::ordered_json toJson(const std::vector<SweepPoint>& points) {
  auto list = nlohmann::ordered_json::array();
  for (const SweepPoint& point : points) {
    list.push_back({{"rate_bits_per_s", point.rate.bitsPerSecond},
                    {"hosts", point.hosts},
                    {"name", point.prediction.candidate.name()},
                    {"class", name(point.prediction.candidate.exactness)},
                    {"iteration_s", point.prediction.iterationSeconds}});
  }
  return list;
}

}  // namespace sluice::planner
