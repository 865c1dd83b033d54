// EASGD (Zhang et al. 2015): every worker trains its own model, and every tau-th step the worker's
// and the centre's are drawn together by alpha, both ways: with x the parameters that this step's
// gradient is of,
//   if tau divides the step:  d = alpha * (x - centre);  x -= d;  centre += d
//   then the worker's own optimizer makes its step.
// The server calculates both sides and returns the worker's.
#include <fmt/format.h>

#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/strategy/algorithms/algorithms.h>
#include <sluice/strategy/server/answering.h>
#include <sluice/strategy/server/local_optimizer.h>
#include <sluice/strategy/server/plain_format.h>
#include <sluice/strategy/slices.h>

namespace sluice::strategy {
namespace {

constexpr const char* kTauSetting = "tau";
constexpr const char* kAlphaSetting = "alpha";
constexpr double kMovingRate = 0.9;  // beta = N * alpha, of the original

class Elastic final : public Method {
 public:
  Elastic(const Rooms& rooms, uint64_t tau, double alpha)
      : freight_(rooms, PlainFreight::Part::kParameters),
        optimizer_(rooms.plan, rooms.update),
        tau_(tau),
        alpha_(alpha),
        survivesLoss_(survivesLoss(rooms.plan.spec())) {}

  Freight& freight() override { return freight_; }
  bool serversStep() const override { return false; }
  Status checkValues(std::span<const double> /*values*/) const override { return base::ok(); }
  uint64_t period() const override { return tau_; }
  Travel travel(SliceId /*slice*/, Step step) const override {
    return index(step) % tau_ == 0 ? Travel::kAsk : Travel::kNothing;
  }
  bool mayCome(bool hasPart, bool asks) const override { return hasPart && asks; }

  Result<bool> finish(const WorkerSlice& worker, Travel travel, uint64_t /*lag*/) override {
    if (!worker.gradient.empty())
      optimizer_.step(worker.slice, worker.parameters, worker.gradient, worker.values);
    return !worker.gradient.empty() || travel == Travel::kAsk;
  }

  Result<std::vector<Rank>> take(const ServerSlice& part) override {
    freight_.centre().drawTogether(part.slice.id, part.from, alpha_);
    return std::vector<Rank>{part.from};
  }
  uint64_t prepareAnswer(SliceId /*slice*/, Rank /*to*/) override {
    return 0;
  }  // it lies there already

  std::optional<uint64_t> firstStepWithout(uint64_t /*stepsOfOther*/) const override {
    return std::nullopt;
  }
  bool goesOnWithoutLost() const override { return survivesLoss_; }
  // Nobody has waited for it.
  std::vector<Rank> forget(SliceId /*slice*/, Rank /*lost*/) override { return {}; }
  std::string describeWait(SliceId /*slice*/) const override { return {}; }

  Centre centre() const override { return Centre::kOfItsOwn; }
  Held held(SliceId slice) const override { return {freight_.centre().parameters(slice), nullptr}; }
  void hold(SliceId slice, const Held& held) override {
    freight_.centre().setParameters(slice, held.parameters);
  }
  OwnState* own() override { return &optimizer_; }

 private:
  PlainFreight freight_;
  LocalOptimizer optimizer_;
  const uint64_t tau_;
  const double alpha_;
  const bool survivesLoss_;
};

Status chooseEasgd(const base::Config& config, plan::PlanSpec& spec) {
  const int64_t tau = config.integer(option::kTau);
  double alpha = config.number(option::kAlpha);
  if (tau < 1) return {Code::kInvalidArgument, fmt::format("--tau is {}; give 1 or more", tau)};
  if (alpha < 0 || alpha > 1)
    return {Code::kInvalidArgument, fmt::format("--alpha is {}; give 0 to 1, 0 for 0.9/N", alpha)};
  if (alpha == 0) alpha = kMovingRate / static_cast<double>(spec.roles.workers.size());
  spec.settings[kTauSetting] = std::to_string(tau);
  spec.settings[kAlphaSetting] = fmt::format("{}", alpha);
  SLUICE_RETURN_IF_ERROR(chooseSurvival(config, spec));
  return chooseAsynchronous(config, spec);
}

Result<std::unique_ptr<Strategy>> makeEasgd(const Rooms& rooms) {
  SLUICE_RETURN_IF_ERROR(checkUpdate(rooms));
  const auto& settings = rooms.plan.spec().settings;
  SLUICE_ASSIGN_OR_RETURN(const int64_t tau, base::parseInteger(settings.at(kTauSetting)));
  SLUICE_ASSIGN_OR_RETURN(const double alpha, base::parseNumber(settings.at(kAlphaSetting)));
  return makeAsynchronous(rooms,
                          std::make_unique<Elastic>(rooms, static_cast<uint64_t>(tau), alpha));
}

}  // namespace

const Algorithm kEasgd{.name = "easgd",
                       .help = "elastic averaging: own models, drawn to a centre every 'tau' steps",
                       .choose = chooseEasgd,
                       .make = makeEasgd,
                       .argument = &option::kTau,
                       .keepsRanksEqual = false};

}  // namespace sluice::strategy
