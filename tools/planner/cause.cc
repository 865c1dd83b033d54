#include <tools/planner/cause.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/data/timing/bounds.h>
#include <tools/planner/sweep.h>
#include <tools/sim/cluster_bound.h>

namespace sluice::planner {
namespace {

constexpr double kNearly = 1.05;   // this close to a limit, the limit is the cause
constexpr double kRoughly = 1.15;  // the same, for the network

std::string timeText(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  return seconds < 1 ? fmt::format("{:.3g} ms", seconds * 1e3) : fmt::format("{:.3g} s", seconds);
}

std::string rateForPeople(Rate rate) {
  const auto bits = static_cast<double>(rate.bitsPerSecond);
  return bits < 1e9 ? fmt::format("{:.3g} Mbit/s", bits / 1e6)
                    : fmt::format("{:.3g} Gbit/s", bits / 1e9);
}

// The layer whose gate decides how long an iteration takes at least, and the bytes before it.
struct Binding {
  size_t layer = 0;
  size_t largest = 0;  // of the layers up to it
  double bytes = 0;    // of the layers up to it
};

Binding bindingOf(const Profile& model, std::span<const timing::Layer> layers,
                  double secondsPerByte) {
  const auto ready = timing::readyTimes(layers);
  const auto tail = timing::tails(layers);
  Binding binding;
  double most = 0;
  double bytes = 0;
  size_t largest = 0;
  for (size_t j = 0; j < layers.size(); ++j) {
    bytes += layers[j].bytes;
    if (model.tensors[j].parameters > model.tensors[largest].parameters) largest = j;
    const double seconds = ready[j] + bytes * secondsPerByte + tail[j];
    if (seconds > most) {
      most = seconds;
      binding = {j, largest, bytes};
    }
  }
  return binding;
}

std::string lineName(const Question& question, const sim::BusiestLine& line) {
  const std::string rate = rateForPeople(line.rate);
  if (line.isUplink) return fmt::format("the {} uplink of rack {}", rate, line.number);
  if (question.cluster.network.topology.hosts.empty())
    return fmt::format("every host's link of {}", rate);
  return fmt::format("{}'s link of {}", question.cluster.nameOf(line.number), rate);
}

// "fc6's 411 MB", or "the 102 MB of the 161 tensors up to fc_b"
std::string bytesName(const Question& question, const Binding& binding) {
  const auto& tensors = question.model.tensors;
  const double largest = 4.0 * static_cast<double>(tensors[binding.largest].parameters);
  if (2 * largest > binding.bytes)
    return fmt::format("{}'s {:.3g} MB", tensors[binding.largest].name, largest / 1e6);
  if (binding.layer + 1 == tensors.size())
    return fmt::format("the {:.3g} MB of all {} tensors", binding.bytes / 1e6, tensors.size());
  return fmt::format("the {:.3g} MB of the first {} of {} tensors, up to {},", binding.bytes / 1e6,
                     binding.layer + 1, tensors.size(), tensors[binding.layer].name);
}

std::string causeInNetwork(const Question& question, const Prediction& chosen,
                           double computeSeconds) {
  const uint32_t hosts = question.cluster.network.hosts;
  const auto line =
      sim::busiestLine(question.cluster.network, plan::parseRoles("all", hosts).value());
  const auto layers = timing::layersOf(question.model, question.computeSeconds);
  const Binding binding = bindingOf(question.model, layers, line.secondsPerModelByte);
  const double largest = layers[binding.largest].bytes;
  const double bytes = 2 * largest > binding.bytes ? largest : binding.bytes;
  const std::string head =
      fmt::format("{} need {} on {}", bytesName(question, binding),
                  timeText(bytes * line.secondsPerModelByte), lineName(question, line));
  if (chosen.iterationSeconds <= kRoughly * chosen.boundSeconds) {
    return fmt::format(
        "{}, and computing is {}: no exact plan with a server on every host takes "
        "less than {}, so only more bandwidth or fewer bytes help",
        head, timeText(computeSeconds), timeText(chosen.boundSeconds));
  }
  const double loss = question.cluster.network.loss;
  const std::string why =
      loss > 0 ? fmt::format("the loss of {:.2g} % slows every connection down", loss * 100)
               : "messages wait for each other and for the round trip";
  return fmt::format("{}, which allows {}, but {}: the best exact plan takes {}", head,
                     timeText(chosen.boundSeconds), why, timeText(chosen.iterationSeconds));
}

}  // namespace

std::string causeOf(const Question& question, const Prediction& chosen, const Gains& gains) {
  const double iteration = chosen.iterationSeconds;
  const double own = question.computeSeconds + question.otherSeconds;
  const auto& slower = question.cluster.slowerHosts;
  const auto slowest = std::ranges::max_element(
      slower, {}, [](const auto& hostAndFactor) { return hostAndFactor.second; });
  const double factor = slowest == slower.end() ? 1 : std::max(slowest->second, 1.0);
  if (factor > kNearly && iteration <= kRoughly * factor * own) {
    return fmt::format(
        "{} computes {:.2g} times longer than the others, {} of each iteration's "
        "{}, and they wait for it: a faster network gains little, so give it less "
        "work or replace it",
        question.cluster.nameOf(slowest->first), factor, timeText(factor * own),
        timeText(iteration));
  }
  if (iteration <= kNearly * own) {
    return fmt::format(
        "computing takes {} of each iteration's {} and hides the network: a faster "
        "network gains nothing, only faster computing does",
        timeText(own), timeText(iteration));
  }
  const double excess = iteration - chosen.boundSeconds;
  const bool isHosts =
      iteration > kNearly * chosen.boundSeconds && iteration - gains.freeHosts > excess / 2;
  if (isHosts) {
    return fmt::format(
        "{} of each iteration's {} are the hosts' own work for {:.0f} messages{}: {}",
        timeText(iteration - gains.freeHosts), timeText(iteration), chosen.messages,
        question.cluster.isEncrypted ? ", with encryption" : "",
        question.cluster.isEncrypted
            ? "faster processors or, on a trusted network, --encrypt off help, more "
              "bandwidth does not"
            : "faster processors help, more bandwidth does not");
  }
  return causeInNetwork(question, chosen, factor * own);
}

Result<Gains> gainsOf(const Question& question, const Prediction& chosen) {
  const auto secondsWith = [&](const Question& better) -> Result<double> {
    SLUICE_ASSIGN_OR_RETURN(const auto prediction, predict(better, chosen.candidate));
    return prediction ? prediction->iterationSeconds : chosen.iterationSeconds;
  };
  Gains gains;
  SLUICE_ASSIGN_OR_RETURN(gains.twiceTheRate, secondsWith(withRatesTimes(question, 2)));
  SLUICE_ASSIGN_OR_RETURN(gains.tenTimesTheRate, secondsWith(withRatesTimes(question, 10)));
  // Half the bytes on a link are as many on one that is twice as fast, and cost hosts half as much.
  Question halved = withRatesTimes(question, 2);
  for (double* cost : {&halved.costs.byteSent, &halved.costs.byteReceived, &halved.costs.byteSummed,
                       &halved.costs.byteUpdated})
    *cost /= 2;
  SLUICE_ASSIGN_OR_RETURN(gains.halfTheBytes, secondsWith(halved));
  Question freeHosts = question;
  freeHosts.costs = {};
  SLUICE_ASSIGN_OR_RETURN(gains.freeHosts, secondsWith(freeHosts));
  return gains;
}

}  // namespace sluice::planner
