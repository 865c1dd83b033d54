// EASGD (Zhang et al. 2015): every worker trains its own model, and every tau-th step the worker's
// and the centre's are drawn together by alpha, both ways: with x the parameters that this step's
// gradient is of,
//   if tau divides the step:  d = alpha * (x - centre);  x -= d;  centre += d
//   then the worker's own optimizer makes its step.
// The server calculates both sides and returns the worker's.
#include <array>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/algorithm.h>
#include <sluice/algorithms/server/answering.h>
#include <sluice/algorithms/server/local_optimizer.h>
#include <sluice/algorithms/server/plain_format.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/slices.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>

namespace sluice::algorithms {
namespace {

constexpr base::Option kAlpha = base::sameOnAllRanks(
    {"alpha", base::Kind::kNumber, "0",
     "easgd: how far worker and centre are drawn together, 0 to 1; 0: 0.9 / workers"});
constexpr base::Option kTau =
    base::sameOnAllRanks({"tau", base::Kind::kInteger, "4",
                          "easgd: workers and centre are drawn together every so many steps"});

constexpr const char* kTauSetting = "tau";
constexpr const char* kAlphaSetting = "alpha";
constexpr double kMovingRate = 0.9;  // beta = N * alpha, of the original

class Elastic final : public AnswerPolicy, private HeldCentre {
 public:
  Elastic(const Context& context, uint64_t tau, double alpha)
      : format_(context, PlainFormat::Part::kParameters),
        optimizer_(context.plan, context.update),
        tau_(tau),
        alpha_(alpha),
        survivesLoss_(survivesLoss(context.plan.spec())) {}

  PayloadFormat& format() override { return format_; }
  Traits traits() const override { return {.survivesLoss = survivesLoss_, .period = tau_}; }
  Travel travel(SliceId /*slice*/, Step step) const override {
    return index(step) % tau_ == 0 ? Travel::kAsk : Travel::kNothing;
  }

  // The answer, if there was one, lies in the parameters already: the worker's own step is made
  // from where the centre has drawn it, as published.
  Result<bool> finish(const WorkerSlice& worker, Travel travel, uint64_t /*lag*/) override {
    if (!worker.gradient.empty())
      optimizer_.step(worker.slice, worker.parameters, worker.gradient, worker.values);
    return !worker.gradient.empty() || travel == Travel::kAsk;
  }

  Result<std::vector<Rank>> take(const ServerSlice& part) override {
    format_.centre().drawTogether(part.slice.id, part.from, alpha_);
    return std::vector<Rank>{part.from};
  }
  std::optional<uint64_t> firstStepWithout(uint64_t /*stepsOfOther*/) const override {
    return std::nullopt;
  }

  HeldCentre* centre() override { return this; }
  OwnState* own() override { return &optimizer_; }

 private:
  Held held(SliceId slice) const override { return {format_.centre().parameters(slice), nullptr}; }
  void hold(SliceId slice, const Held& held) override {
    format_.centre().setParameters(slice, held.parameters);
  }

  PlainFormat format_;
  LocalOptimizer optimizer_;
  const uint64_t tau_;
  const double alpha_;
  const bool survivesLoss_;
};

Status chooseEasgd(const base::Config& config, plan::PlanSpec& spec) {
  const int64_t tau = config.integer(kTau);
  double alpha = config.number(kAlpha);
  if (tau < 1) return {Code::kInvalidArgument, fmt::format("--tau is {}; give 1 or more", tau)};
  if (alpha < 0 || alpha > 1)
    return {Code::kInvalidArgument, fmt::format("--alpha is {}; give 0 to 1, 0 for 0.9/N", alpha)};
  if (alpha == 0) alpha = kMovingRate / static_cast<double>(spec.roles.workers.size());
  spec.settings[kTauSetting] = std::to_string(tau);
  spec.settings[kAlphaSetting] = fmt::format("{}", alpha);
  SLUICE_RETURN_IF_ERROR(chooseSurvival(config, spec));
  return chooseAnswering(config, spec);
}

Result<std::unique_ptr<Strategy>> makeEasgd(const Context& context) {
  SLUICE_RETURN_IF_ERROR(checkUpdate(context));
  const auto& settings = context.plan.spec().settings;
  SLUICE_ASSIGN_OR_RETURN(const int64_t tau, base::parseInteger(settings.at(kTauSetting)));
  SLUICE_ASSIGN_OR_RETURN(const double alpha, base::parseNumber(settings.at(kAlphaSetting)));
  return makeAnswering(context,
                       std::make_unique<Elastic>(context, static_cast<uint64_t>(tau), alpha));
}

constexpr auto kEasgdOptions =
    joined(std::array{&kAlpha, &kTau, &option::kSurviveLoss}, kShardedOptions);

}  // namespace

extern const Algorithm kEasgd{
    .name = "easgd",
    .help = "elastic averaging: own models, drawn to a centre every 'tau' steps",
    .choose = chooseEasgd,
    .make = makeEasgd,
    .options = kEasgdOptions,
    .argument = &kTau,
    .accuracy = "1 to 3 points less with 8 workers, 2 to 7 with 16",
    .keepsRanksEqual = false,
    .readsParameters = true,
    .checkpointHoldsModel = true};

}  // namespace sluice::algorithms
