#include <sluice/strategy/reduction.h>

#include <algorithm>
#include <cstring>
#include <map>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>
#include <sluice/collective/fabric_collective.h>
#include <sluice/kernel/reduce.h>
#include <sluice/strategy/packing.h>

namespace sluice::strategy {
namespace {

using collective::Ticket;
using plan::Stage;

struct Settings {
  std::vector<plan::Group> groups;
  collective::Method method;
  const codec::Codec* codec;
  size_t atOnce;  // reductions under way
};

class Reduction final : public Strategy {
 public:
  Reduction(const Rooms& rooms, Settings settings)
      : rooms_(rooms),
        settings_(std::move(settings)),
        collective_(rooms.fabric),
        groupOf_(rooms.plan.model().tensors.size()) {
    const bool isMean = rooms.update.optimizer->publishes() == shard::Publishes::kMeanGradient;
    values_[Step{0}] = rooms.update.values;
    for (const auto& tensor : rooms.plan.model().tensors)
      states_.emplace_back(rooms.update.optimizer->name(), tensor.dtype, tensor.elements);
    for (const plan::Group& group : settings_.groups) {
      std::fill(groupOf_.begin() + static_cast<ptrdiff_t>(group.first),
                groupOf_.begin() + static_cast<ptrdiff_t>(group.last) + 1, groups_.size());
      const auto tensors =
          std::span(rooms.plan.model().tensors).subspan(group.first, group.last - group.first + 1);
      groups_.push_back({.packing = Packing(tensors, isMean, settings_.codec), .missing = tensors.size()});
    }
    turn_ = groups_.size() - 1;
  }

  void gradientReady(TensorId tensor, Step step) override {
    Group& group = groupOf(tensor);
    group.packing.put(placeOf(tensor), rooms_.memory[index(tensor)].gradient);
    handedOver(group, step);
  }
  void gradientAbsent(TensorId tensor, Step step) override {
    Group& group = groupOf(tensor);
    group.packing.putNothing(placeOf(tensor));
    handedOver(group, step);
  }
  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane, const wire::Header& header) override {
    return collective_.onMessage(from, lane, header);
  }
  Status setHyperparameters(const std::vector<double>& values, Step from) override {
    SLUICE_RETURN_IF_ERROR(checkValues(*rooms_.update.optimizer, values));
    values_.insert_or_assign(from, values);
    return base::ok();
  }
  std::string describeWait(TensorId tensor) const override;
  Statistics statistics() const override {
    Statistics statistics;
    for (const Group& group : groups_) {
      if (group.isUnderWay) statistics.bytesInFlight += group.packing.data().size();
    }
    return statistics;
  }

 private:
  struct Group {
    Packing packing;
    size_t missing;  // gradients of this rank
    Step step{};
    bool isUnderWay = false;
  };

  void handedOver(Group& group, Step step) {
    SLUICE_DCHECK(rooms_.fabric.loop().inLoop());
    group.step = step;
    --group.missing;
    reduceWhatMay();
  }
  void reduceWhatMay() {
    while (underWay_ < settings_.atOnce && groups_[turn_].missing == 0 && !groups_[turn_].isUnderWay) {
      const size_t number = turn_;
      turn_ = turn_ == 0 ? groups_.size() - 1 : turn_ - 1;
      reduce(number);
    }
  }
  void reduce(size_t number);
  void meanIsHere(size_t number);
  void useMean(TensorId tensor, const Group& group);

  Group& groupOf(TensorId tensor) { return groups_[groupOf_[index(tensor)]]; }
  const Group& groupOf(TensorId tensor) const { return groups_[groupOf_[index(tensor)]]; }
  size_t placeOf(TensorId tensor) const {
    return index(tensor) - settings_.groups[groupOf_[index(tensor)]].first;
  }
  void observe(Stage stage, TensorId tensor, Step step) const {
    if (rooms_.observer == nullptr) return;
    for (const auto& slice : rooms_.plan.slicesOf(tensor))
      rooms_.observer->onStage(
          {stage, step, tensor, slice.id, rooms_.fabric.rank(), rooms_.fabric.loop().now()});
  }

  const Rooms rooms_;
  const Settings settings_;
  collective::FabricCollective collective_;
  std::vector<Group> groups_;                   // as in the settings
  std::vector<size_t> groupOf_;                 // by TensorId
  std::vector<shard::OptimizerState> states_;   // by TensorId
  std::map<Step, std::vector<double>> values_;  // hyperparameters, by the first step they are for
  size_t turn_ = 0;                             // the group that is reduced next
  size_t underWay_ = 0;
};

void Reduction::reduce(size_t number) {
  Group& group = groups_[number];
  group.isUnderWay = true;
  ++underWay_;
  group.packing.finish();
  const plan::Group& tensors = settings_.groups[number];
  for (size_t t = tensors.first; t <= tensors.last; ++t)
    observe(Stage::kPush, TensorId{static_cast<uint32_t>(t)}, group.step);
  collective_.allReduce({.ticket = Ticket{group.step, TensorId{static_cast<uint32_t>(number)}},
                         .method = settings_.method,
                         .dtype = group.packing.dtype(),
                         .data = group.packing.data()},
                        {.scale = kernel::meanScale(rooms_.fabric.worldSize()), .codec = settings_.codec},
                        [this, number](const Status& status) {
                          if (!status.isOk()) return rooms_.gates.fail(status);
                          meanIsHere(number);
                        });
}

void Reduction::meanIsHere(size_t number) {
  Group& group = groups_[number];
  const plan::Group& tensors = settings_.groups[number];
  group.isUnderWay = false;
  group.missing = tensors.last - tensors.first + 1;
  --underWay_;
  for (size_t t = tensors.first; t <= tensors.last; ++t) useMean(TensorId{static_cast<uint32_t>(t)}, group);
  // Only now may the next gradients come.
  for (size_t t = tensors.first; t <= tensors.last; ++t) {
    const TensorId tensor{static_cast<uint32_t>(t)};
    if (group.packing.isEmpty(placeOf(tensor))) {
      rooms_.gates.openEmpty(tensor, group.step);
    } else {
      rooms_.gates.open(tensor, group.step);
    }
  }
  reduceWhatMay();
}

void Reduction::useMean(TensorId tensor, const Group& group) {
  const size_t place = placeOf(tensor);
  if (!group.packing.isEmpty(place)) {
    const auto mean = group.packing.get(place);
    const auto result = rooms_.memory[index(tensor)].result;
    if (rooms_.update.optimizer->publishes() == shard::Publishes::kMeanGradient) {
      std::memcpy(result.data(), mean.data(), mean.size());
    } else {
      const auto& values = std::prev(values_.upper_bound(group.step))->second;  // there are some for step 0
      const Status applied =
          applyStep(*rooms_.update.optimizer, states_[index(tensor)], result, mean, values);
      SLUICE_CHECK(applied.isOk(), applied.toString());  // the values were checked when they were set
    }
  }
  observe(Stage::kApplied, tensor, group.step);
}

std::string Reduction::describeWait(TensorId tensor) const {
  const size_t number = groupOf_[index(tensor)];
  const Group& group = groups_[number];
  if (group.isUnderWay)
    return collective_.describeWait({group.step, TensorId{static_cast<uint32_t>(number)}});
  if (group.missing > 0) return fmt::format("{} gradients of its group are not here yet", group.missing);
  const Group& before = groups_[turn_];
  if (!before.isUnderWay && before.missing > 0)
    return fmt::format("group {} goes first, and lacks {} gradients of this rank", turn_, before.missing);
  return fmt::format("{} other reductions are under way", underWay_);
}

Result<Settings> settingsOf(const plan::PlanSpec& spec) {
  const auto setting = [&](const char* name) { return spec.settings.at(name); };
  Settings settings{};
  SLUICE_ASSIGN_OR_RETURN(settings.groups, parseGroups(setting("groups"), spec.model.tensors.size()));
  SLUICE_ASSIGN_OR_RETURN(settings.method, collective::parseMethod(setting("collective")));
  SLUICE_ASSIGN_OR_RETURN(settings.codec, codec::findCodec(setting("codec")));
  settings.atOnce = std::stoul(setting("reductions"));
  return settings;
}

}  // namespace

std::string groupsText(std::span<const plan::Group> groups) {
  std::string text;
  for (const plan::Group& group : groups)
    text += fmt::format("{}{}-{}", text.empty() ? "" : ",", group.first, group.last);
  return text;
}

Result<std::vector<plan::Group>> parseGroups(const std::string& text, size_t tensors) {
  std::vector<plan::Group> groups;
  size_t next = 0;
  for (const std::string_view group : base::split(text, ',')) {
    const auto ends = base::split(group, '-');
    if (ends.size() != 2) break;
    SLUICE_ASSIGN_OR_RETURN(const int64_t first, base::parseInteger(ends[0]));
    SLUICE_ASSIGN_OR_RETURN(const int64_t last, base::parseInteger(ends[1]));
    if (first != static_cast<int64_t>(next) || last < first) break;
    groups.push_back({static_cast<size_t>(first), static_cast<size_t>(last)});
    next = static_cast<size_t>(last) + 1;
  }
  if (next != tensors)
    return Status(Code::kInvalidArgument, fmt::format("'{}' does not group {} tensors", text, tensors));
  return groups;
}

Status chooseReduction(const Config& config, std::span<const plan::Group> groups, plan::PlanSpec& spec) {
  if (spec.roles.workers.size() != spec.roles.world)
    return {Code::kInvalidArgument,
            fmt::format("{} has no servers: leave out --servers dedicated", spec.strategy)};
  for (const auto& tensor : spec.model.tensors) {
    if (config.text(option::kCodec) != "none" && tensor.dtype != DType::kF32)
      return {Code::kInvalidArgument,
              fmt::format("tensor {} is not f32, which is all that codecs take", tensor.toString())};
  }
  if (config.integer(option::kReductions) < 1)
    return {Code::kInvalidArgument, "--reductions must be at least 1, or nothing is ever reduced"};
  spec.slicing.placement = plan::Placement::kKvstore;  // whole tensors; slices are only names here
  spec.settings["groups"] = groupsText(splitByType(spec.model, groups));
  spec.settings["collective"] = config.text(option::kCollective);
  spec.settings["codec"] = config.text(option::kCodec);
  spec.settings["reductions"] = std::to_string(config.integer(option::kReductions));
  return settingsOf(spec).status();
}

Result<std::unique_ptr<Strategy>> makeReduction(const Rooms& rooms) {
  if (rooms.updatesWaitForWord) {
    return Status(Code::kInvalidArgument,
                  "this algorithm has no servers whose updates could wait; use algorithm=sluice");
  }
  for (const auto& tensor : rooms.plan.model().tensors)
    SLUICE_RETURN_IF_ERROR(kernel::checkArithmetic(tensor.dtype));
  SLUICE_ASSIGN_OR_RETURN(auto settings, settingsOf(rooms.plan.spec()));
  return std::unique_ptr<Strategy>(std::make_unique<Reduction>(rooms, std::move(settings)));
}

}  // namespace sluice::strategy
