#include <sluice/algorithms/reduction/replanner.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include <fmt/format.h>

#include <sluice/algorithms/reduction/regrouping.h>
#include <sluice/base/check.h>
#include <sluice/base/log.h>

namespace sluice::algorithms {
namespace {

// The two messages in which ranks tell their times.
constexpr uint32_t kTimes = 0;
constexpr uint32_t kHash = 1;

constexpr uint64_t kMostStepsMeasured = 50;  // the last ones before a boundary

constexpr double kMostSeconds = 1e6;  // of anything that is measured

constexpr double kMs = 1e3;  // in a second
constexpr double kMB = 1e6;  // bytes

std::vector<double> asNumbers(const timing::StepTimes& times) {
  std::vector<double> numbers = times.ready;
  numbers.insert(numbers.end(), times.reduced.begin(), times.reduced.end());
  return numbers;
}

timing::StepTimes timesFrom(std::span<const double> numbers, size_t tensors) {
  const auto ready = numbers.first(tensors);
  const auto reduced = numbers.subspan(tensors);
  return {{ready.begin(), ready.end()}, {reduced.begin(), reduced.end()}};
}

// Splits a hash into 32 bits at a time, which a double holds exactly.
std::vector<double> asNumbers(const plan::Hash& hash) {
  std::vector<double> numbers;
  for (size_t at = 0; at < hash.size(); at += sizeof(uint32_t)) {
    uint32_t part = 0;
    std::memcpy(&part, hash.data() + at, sizeof(part));
    numbers.push_back(part);
  }
  return numbers;
}

std::string describe(const timing::Costs& costs) {
  return fmt::format("backward {:.2f} ms, an all-reduce {:.3f} ms and {:.3f} ms a MB",
                     timing::backwardSeconds(costs.layers) * kMs, costs.wire.start * kMs,
                     costs.wire.perByte * kMB * kMs);
}

}  // namespace

Replanner::Replanner(const Context& context, collective::Collective& collective,
                     timing::Costs costs)
    : context_(context),
      collective_(collective),
      plan_(context.plan),
      settings_(settingsOf(context.plan.spec()).value()),  // read before, by who makes this
      planned_(costs),
      costs_(std::move(costs)),
      timer_(context.plan.model().tensors.size(), settings_.groups.size()),
      boundary_(Step{settings_.replanSteps - 1}) {}

bool Replanner::isMeasured(Step step) const {
  return index(step) + kMostStepsMeasured > index(boundary_);
}

void Replanner::ready(TensorId tensor, Step step) {
  if (isMeasured(step)) timer_.ready(tensor, step, context_.fabric.loop().now());
}

void Replanner::reduced(size_t group, Step step, TimePoint begun) {
  if (isMeasured(step)) timer_.reduced(group, context_.fabric.loop().now() - begun);
}

void Replanner::startAt(Step first) {
  const uint64_t steps = settings_.replanSteps;
  boundary_ = Step{(index(first) / steps + 1) * steps - 1};
}

collective::Ticket Replanner::ticket(uint32_t round) const {
  // The tickets of groups come first, and there are never more groups than tensors.
  return {boundary_, TensorId{static_cast<uint32_t>(context_.plan.model().tensors.size()) + round}};
}

// Tells all ranks this rank's numbers by a sum, which every engine has: in a rank's own place all
// others have zeros.
void Replanner::tell(uint32_t round, const Numbers& own, Told told) {
  const size_t each = own.size();
  board_.assign(each * context_.fabric.worldSize(), 0);
  std::ranges::copy(own,
                    board_.begin() + static_cast<ptrdiff_t>(each * index(context_.fabric.rank())));
  collective_.allReduce(
      {.ticket = ticket(round),
       .method = collective::Method::kDirect,
       .dtype = DType::kF64,
       .data = std::as_writable_bytes(std::span(board_))},
      {}, [this, each, told = std::move(told)](const Status& status) {
        if (!status.isOk()) return told(status);
        std::vector<Numbers> ofRanks;
        for (auto left = std::span<const double>(board_); !left.empty(); left = left.subspan(each))
          ofRanks.emplace_back(left.begin(), left.begin() + static_cast<ptrdiff_t>(each));
        told(ofRanks);
      });
}

void Replanner::agree(collective::Done done) {
  // Two rounds: first the times, from which every rank makes a plan; then the hash of that
  // plan. Only if all hashes agree does anybody change groups, because ranks with different
  // groups would wait for each other for ever.
  tell(kTimes, asNumbers(timer_.takeMedians()),
       [this, done = std::move(done)](const Result<std::vector<Numbers>>& measured) {
         if (!measured.isOk()) return done(measured.status());
         const Choice choice = choose(*measured);
         tell(kHash, asNumbers(choice.plan.hash()),
              [this, choice, done](const Result<std::vector<Numbers>>& hashes) {
                if (!hashes.isOk()) return done(hashes.status());
                conclude(choice, *hashes);
                done(base::ok());
              });
       });
}

// Makes this rank's choice. All ranks make it from the same numbers, but machines may round
// differently, and ranks may have been configured differently: the hash finds that.
Replanner::Choice Replanner::choose(const std::vector<Numbers>& measured) {
  const Model& model = context_.plan.model();
  // The numbers come from other ranks: if any of them cannot be a time, the plan stays.
  for (const Numbers& numbers : measured) {
    const auto isTime = [](double seconds) { return seconds >= 0 && seconds <= kMostSeconds; };
    if (!std::ranges::all_of(numbers, isTime)) return {.plan = plan_, .reason = {}};
  }
  std::vector<timing::StepTimes> times;
  for (const Numbers& numbers : measured) times.push_back(timesFrom(numbers, model.tensors.size()));
  // Costs are corrected and kept even if the groups stay, so that the next boundary starts from
  // what is known by now.
  costs_ = correct(costs_, combine(times), settings_.groups);
  const auto next = regroup(context_.config, costs_, model, settings_.groups);
  if (!next) return {.plan = plan_, .reason = {}};
  plan::PlanSpec spec = plan_.spec();
  const Status set = setGroups(context_.config, next->groups, spec);
  SLUICE_CHECK(set.isOk(),
               set.toString());  // the first groups were set with the same configuration
  return {.plan = plan::Plan::make(std::move(spec)).value(),
          .reason =
              fmt::format("{} groups of tensors instead of {}, with which an iteration should take "
                          "{:.2f} ms instead of {:.2f} ms; now {}; before {}",
                          next->groups.size(), settings_.groups.size(), next->seconds * kMs,
                          next->secondsBefore * kMs, describe(costs_), describe(planned_))};
}

void Replanner::conclude(const Choice& choice, const std::vector<Numbers>& hashes) {
  // The boundary moves on whether or not the groups change, and on all ranks alike: the tickets
  // of the next comparison carry it.
  const Step last = std::exchange(boundary_, Step{index(boundary_) + settings_.replanSteps});
  const bool isFirst = context_.fabric.rank() == Rank{0};  // speaks for all
  if (std::ranges::any_of(hashes, [&](const Numbers& hash) { return hash != hashes.front(); })) {
    log("strategy")
        .log(isFirst ? spdlog::level::warn : spdlog::level::debug,
             "after step {} the ranks made different plans of the same times; they keep plan {}",
             last, plan::toHex(plan_.hash()).substr(0, 8));
    return;
  }
  if (choice.reason.empty()) return;
  plan_ = choice.plan;
  settings_ = settingsOf(plan_.spec()).value();
  planned_ = costs_;
  timer_.setGroups(settings_.groups.size());
  log("strategy")
      .log(isFirst ? spdlog::level::info : spdlog::level::debug, "plan {} after step {}: {}",
           plan::toHex(plan_.hash()).substr(0, 8), last, choice.reason);
}

std::string Replanner::describeWait() const {
  for (const uint32_t round : {kTimes, kHash}) {
    if (const std::string text = collective_.describeWait(ticket(round)); !text.empty())
      return fmt::format("the ranks compare their times after step {}: {}", boundary_, text);
  }
  return {};
}

}  // namespace sluice::algorithms
