#include <sluice/algorithms/dgc/dgc_options.h>
#include <sluice/algorithms/reduction/reduction_options.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/testing/mad_world.h>

#include <array>
#include <utility>

namespace sluice::algorithms {
namespace {

constexpr size_t kMostTurns =
    200'000;  // of all loops, after the last message; more is taken for a hang

const std::array kSettings{
    MadSetting{.algorithm = "sluice"},
    MadSetting{.algorithm = "sluice", .update = "mean-gradient"},
    MadSetting{.algorithm = "sluice", .update = "adam:lr=0.5", .waitsForWord = true},
    MadSetting{.algorithm = "sluice", .servers = "dedicated:1"},
    MadSetting{.algorithm = "sluice", .dgc = true},
    MadSetting{.algorithm = "p3"},
    MadSetting{.algorithm = "p3", .servers = "dedicated:1", .update = "mean-gradient"},
    MadSetting{.algorithm = "slicing"},
    MadSetting{.algorithm = "kvstore", .servers = "dedicated:1"},
    MadSetting{.algorithm = "kvstore-parts", .servers = "dedicated:1"},
    MadSetting{.algorithm = "kvstore", .update = "mean-gradient", .world = 2},
    MadSetting{.algorithm = "mgp3"},
    MadSetting{.algorithm = "mgwfbp", .replanSteps = 2},
    MadSetting{.algorithm = "wfbp", .codec = "int8"},
    MadSetting{.algorithm = "allreduce"},
    MadSetting{.algorithm = "allreduce", .codec = "fp16", .world = 4},
    MadSetting{.algorithm = "allreduce", .dgc = true},
    MadSetting{.algorithm = "pipe"},
    MadSetting{.algorithm = "asp"},
    MadSetting{.algorithm = "asp", .servers = "dedicated:1"},
    MadSetting{.algorithm = "asp", .servers = "dedicated:1", .dgc = true},
    MadSetting{.algorithm = "ssp:1"},
    MadSetting{.algorithm = "ssp:2", .servers = "dedicated:1"},
    MadSetting{.algorithm = "ssp:1", .dgc = true},
    MadSetting{.algorithm = "easgd:2"},
    MadSetting{.algorithm = "easgd:1", .servers = "dedicated:1", .waitsForWord = true},
    MadSetting{.algorithm = "gosgd:1"},
    MadSetting{.algorithm = "adpsgd"},
};

// Small whole numbers, so that any order of adding gives the same bits. Fills `count` bytes from
// `begin` on.
void fillGradient(std::span<std::byte> bytes, Rank rank, uint64_t step, uint64_t tensor,
                  size_t begin, size_t count) {
  for (size_t i = begin; i < begin + count; i += sizeof(float)) {
    const auto value = static_cast<float>((index(rank) + 3 * step + 5 * tensor + i) % 8);
    std::memcpy(bytes.data() + i, &value, sizeof(value));
  }
}

}  // namespace

std::span<const MadSetting> madSettings() {
  return kSettings;
}

bool isOrdered(const MadSetting& setting) {
  const std::string_view name = setting.algorithm;
  return !name.starts_with("easgd") && !name.starts_with("gosgd") && name != "adpsgd" &&
         (!setting.dgc || name == "sluice" || name == "allreduce");
}

MadRank::MadRank(MadWorld& world, Rank rank, bool isMad)
    : world_(world),
      late_(*this, world.choices(), loop_),
      isWorker_(world.plan().roles().isWorker(rank)) {
  std::vector<std::string> names;
  std::vector<std::span<const std::byte>> first;
  const bool inPlace = world.update().optimizer->publishes() == optimizer::Publishes::kMeanGradient;
  const auto& tensors = world.plan().model().tensors;
  for (const auto& tensor : tensors) {
    names.push_back(tensor.name);
    gradients_.emplace_back(tensor.bytes());
    parameters_.emplace_back(tensor.bytes());
  }
  for (size_t t = 0; t < tensors.size(); ++t) {
    first.emplace_back(parameters_[t]);
    if (isWorker_) memory_.push_back({gradients_[t], inPlace ? gradients_[t] : parameters_[t]});
  }
  gates_ = std::make_unique<gate::Gates>(std::move(names), gate::WaitOptions{}, [](auto...) {});
  come_.resize(tensors.size());
  const auto watched = isWorker_ ? world.setting().watched : MadSetting::Watched::kNot;
  const bool isSink = watched == MadSetting::Watched::kBySink;
  if (watched != MadSetting::Watched::kNot)
    witness_ = std::make_unique<TestWitness>(world.plan(), *gates_, memory_, isSink);
  fabric_ = std::make_unique<MadFabric>(world.hub().join(rank, loop_, late_),
                                        isMad ? &world.choices() : nullptr, world.inputs());
  strategy_ = world.algorithm()
                  .make({.plan = world.plan(),
                         .fabric = *fabric_,
                         .gates = *gates_,
                         .memory = memory_,
                         .update = world.update(),
                         .parameters = first,
                         .config = world.config(),
                         .observer = witness_.get(),
                         .updatesWaitForWord = world.setting().waitsForWord,
                         .onRefused =
                             [this](Rank from, const Status& why) {
                               if (gates_->error().isOk()) fabric_->giveUp(from, why);
                             },
                         .results = isSink ? witness_.get() : nullptr})
                  .value();
}

MadRank::~MadRank() {
  loop_.post([this] {
    late_.end(std::nullopt, fabric::closedStatus());
    fabric_->releasePutOff();
    fabric_.reset();
  });
  loop_.runReady();
}

std::vector<std::byte> MadRank::results() const {
  std::vector<std::byte> all;
  for (const TensorMemory& memory : memory_)
    all.insert(all.end(), memory.result.begin(), memory.result.end());
  return all;
}

Result<fabric::Landing> MadRank::onMessage(Rank from, fabric::Lane lane,
                                           const wire::Header& header) {
  auto landing = strategy_->onMessage(from, lane, header);
  if (landing.status().code() == Code::kRefused && gates_->error().isOk()) {
    SLUICE_CHECK(world_.inputs() > 0,
                 landing.status().toString());  // nothing of a legal run is refused
    if (world_.isStrict()) fabric_->giveUp(from, landing.status());
  }
  return landing;
}

void MadRank::onPeerLost(Rank from, const Status& why) {
  if (strategy_->losses().goesOnWithout(from)) return strategy_->losses().forget(from);
  gates_->fail(why);
  strategy_->fail(why);
}

void MadRank::onPeerLeft(Rank from) {
  if (strategy_->losses().goesOnWithout(from)) return strategy_->losses().forget(from);
  const Status why(Code::kPeerLost, "it has left");
  gates_->fail(why);
  strategy_->fail(why);
}

void MadRank::expectAllReported() {
  for (uint32_t t = 0; witness_ != nullptr && t < memory_.size(); ++t)
    witness_->expectAll(TensorId{t});
}

bool MadRank::train(uint64_t steps) {
  if (!isWorker_ || step_ >= steps || isSaving_ || !gates_->error().isOk()) return false;
  const bool areAllHandedOver = handedOver_ == memory_.size();
  if (!toCome_.empty() && (areAllHandedOver || world_.choices().below(2) == 0)) {
    sliceComes();
  } else if (!handOverNext()) {
    if (toCome_.empty()) return false;
    sliceComes();
  }
  if (handedOver_ == memory_.size() && toCome_.empty()) endStep();
  return true;
}

bool MadRank::handOverNext() {
  const auto tensors = static_cast<uint32_t>(memory_.size());
  const TensorId tensor{tensors - 1 - handedOver_};
  if (!gates_->isOpen(tensor)) return false;
  if (witness_ != nullptr && step_ > 0) witness_->expectAll(tensor);
  if (handedOver_ == 0 && step_ % 2 == 1) {
    std::vector<double> values = world_.update().values;
    if (!values.empty() &&
        world_.update().optimizer->publishes() == optimizer::Publishes::kParameters) {
      loop_.post([this, values, from = Step{step_}] {
        if (!gates_->error().isOk()) return;
        if (const Status set = strategy_->setHyperparameters(values, from); !set.isOk())
          gates_->fail(set);
      });
    }
  }
  ++handedOver_;
  auto& gradient = gradients_[index(tensor)];
  const Step step = gates_->close(tensor).value();
  const bool isAbsent = (step_ + index(tensor)) % 5 == 4;
  if (world_.setting().inParts && !isAbsent) {
    std::ranges::fill(gradient, std::byte{0xff});  // not a number, until it comes
    const auto slices = world_.plan().slicesOf(tensor);
    come_[index(tensor)] = 0;
    for (const plan::Slice& slice : slices)
      toCome_.push_back(
          {.tensor = tensor, .slice = slice.id, .step = step, .slices = slices.size()});
    return true;
  }
  fillGradient(gradient, fabric_->rank(), step_, index(tensor), 0, gradient.size());
  loop_.post([this, tensor, step, isAbsent] {
    if (!gates_->error().isOk()) return;
    isAbsent ? strategy_->contribute({tensor, step, /*hasGradient=*/false})
             : strategy_->contribute({tensor, step, /*hasGradient=*/true});
  });
  return true;
}

// One slice of a gradient that comes slice by slice, as a stager would copy it.
void MadRank::sliceComes() {
  std::swap(toCome_[world_.choices().below(toCome_.size())], toCome_.back());
  SliceContribution slice = toCome_.back();
  toCome_.pop_back();
  slice.come = ++come_[index(slice.tensor)];
  const plan::Slice& its = world_.plan().slice(slice.slice);
  fillGradient(gradients_[index(slice.tensor)], fabric_->rank(), step_, index(slice.tensor),
               its.offset * sizeof(float), world_.plan().bytesOf(its));
  loop_.post([this, slice] {
    if (gates_->error().isOk()) strategy_->contributeSlice(slice);
  });
}

void MadRank::endStep() {
  handedOver_ = 0;
  if (world_.setting().waitsForWord) {
    const auto decision = step_ % 3 == 2 ? Decision::kDrop : Decision::kUpdate;
    loop_.post([this, decision] {
      if (!gates_->error().isOk()) return;
      if (const Status decided = strategy_->decide(decision); !decided.isOk())
        gates_->fail(decided);
    });
  }
  ++step_;
}

void MadRank::save() {
  for (uint32_t t = 0; t < memory_.size(); ++t) {
    if (!gates_->isOpen(TensorId{t})) return;
  }
  if (!isWorker_ || isSaving_ || handedOver_ > 0 || !gates_->error().isOk()) return;
  isSaving_ = true;
  loop_.post([this] {
    strategy_->whenIdle([this](const Status& idle) {
      if (!idle.isOk()) return;
      strategy_->checkpoint().prepare([this](const Status& prepared) {
        isSaving_ = false;
        if (prepared.isOk()) (void)strategy_->checkpoint().take();
      });
    });
  });
}

MadWorld::MadWorld(const MadSetting& setting, std::optional<Rank> mad, bool isStrict,
                   Choices& choices)
    : setting_(setting),
      choices_(choices),
      mad_(mad),
      isStrict_(isStrict),
      update_(optimizer::parseOptimizerSpec(setting.update).value()),
      hub_(setting.world) {
  SLUICE_CHECK(config_.set(option::kSliceElements, "3").isOk());
  if (setting.dgc) SLUICE_CHECK(config_.set(option::kDgc, "on").isOk());
  SLUICE_CHECK(config_.set(option::kDgcClip, setting.clip).isOk());
  SLUICE_CHECK(config_.set(option::kNoOverlap, setting.overlaps ? "off" : "on").isOk());
  SLUICE_CHECK(config_.set(option::kCodec, setting.codec).isOk());
  if (setting.replanSteps > 0)
    SLUICE_CHECK(config_.set(option::kReplanSteps, std::to_string(setting.replanSteps)).isOk());
  algorithm_ = readAlgorithm(setting.algorithm, config_).value();
  plan::PlanSpec spec;
  spec.model.tensors = {{"a", 7, DType::kF32}, {"b", 2, DType::kF32}, {"c", 4, DType::kF32}};
  spec.roles = plan::parseRoles(setting.servers, setting.world).value();
  spec.strategy = algorithm_->name;
  const Status chosen = algorithm_->choose(config_, spec);
  SLUICE_CHECK(chosen.isOk(), chosen.toString());
  plan_ = std::make_unique<plan::Plan>(plan::Plan::make(std::move(spec)).value());
  for (uint32_t r = 0; r < setting.world; ++r)
    ranks_.push_back(std::make_unique<MadRank>(*this, Rank{r}, mad_ == Rank{r}));
}

void MadWorld::inject() {
  MadRank& mad = *ranks_[index(*mad_)];
  Rank to{static_cast<uint32_t>(choices_.below(ranks_.size()))};
  if (to == *mad_) to = Rank{(index(to) + 1) % setting_.world};
  const auto slices = plan_->slices();
  fabric::Message message;
  const uint64_t kind = choices_.below(16);
  const auto slice = static_cast<uint32_t>(choices_.below(slices.size()));
  message.slice = kind == 0 ? SliceId{static_cast<uint32_t>(choices_.number())} : SliceId{slice};
  message.tensor = kind == 1   ? TensorId{static_cast<uint32_t>(choices_.number())}
                   : kind == 2 ? TensorId{static_cast<uint32_t>(choices_.below(8))}
                               : slices[slice].tensor;
  message.step = kind == 3 ? Step{choices_.number()} : Step{mad.steps() + choices_.below(4) - 1};
  message.stage = choices_.below(4) != 0
                      ? std::array{Stage::kPush, Stage::kPublish}[choices_.below(2)]
                      : kPath[choices_.below(kPath.size())];
  const uint64_t bits = choices_.below(8);  // mostly one of those that algorithms use
  if (bits < 5) message.flags = wire::Flags{static_cast<uint16_t>(bits == 0 ? 0 : 0x0080U << bits)};
  if (bits == 5) message.flags = wire::Flags{static_cast<uint16_t>(choices_.below(256) << 8U)};
  if (bits == 6) message.flags = wire::Flags::kEncoded;
  const uint64_t type = choices_.below(4);
  message.dtype = type == 0   ? DType::kBytes
                  : type == 1 ? static_cast<DType>(choices_.below(5))
                              : DType::kF32;
  if (message.stage == Stage::kUpdate) message.dtype = DType::kF64;
  uint64_t bytes = plan_->bytesOf(slices[slice]);
  switch (choices_.below(8)) {
    case 0: bytes = 0; break;
    case 1: bytes += 4; break;
    case 2: bytes = update_.values.size() * sizeof(double); break;
    case 3: bytes += sizeof(double); break;
    case 4: bytes = choices_.below(200); break;
    case 5: bytes = choices_.isOneIn(16) ? 100'000 : 4; break;
    default: break;
  }
  const auto lane =
      static_cast<fabric::Lane>(choices_.isOneIn(4) ? choices_.below(wire::kLanes) : 2);
  mad.fabric().sendCopy(to, lane, message, fabric::madBytes(choices_, bytes), nullptr);
}

void MadWorld::settle() {
  size_t turns = 0;
  bool ran = true;
  while (ran) {
    ran = false;
    for (const auto& rank : ranks_) rank->late().landAll();
    for (const auto& rank : ranks_) {
      const size_t count = rank->loop().runReady();
      turns += count;
      ran = ran || count > 0;
    }
    SLUICE_CHECK(turns < kMostTurns, setting_.algorithm);  // it runs for ever
  }
}

bool MadWorld::trainAll(uint64_t steps) {
  size_t idle = 0;
  while (idle < 8) {
    bool didSomething = false;
    for (size_t i = 0; i < 8 * ranks_.size(); ++i) {
      MadRank& rank = any();
      switch (choices_.below(4)) {
        case 0: didSomething = rank.train(steps) || didSomething; break;
        case 1: didSomething = rank.late().landOne() || didSomething; break;
        default: didSomething = rank.loop().runOne() || didSomething; break;
      }
    }
    if (didSomething) {
      idle = 0;
      continue;
    }
    ++idle;
    settle();
  }
  return std::ranges::all_of(
      ranks_, [&](const auto& rank) { return !rank->isWorker() || rank->steps() == steps; });
}

void MadWorld::play(size_t inputs) {
  constexpr uint64_t kSteps = 1000;
  for (size_t i = 0; i < 8 * inputs && this->inputs() < inputs && !choices_.areOver(); ++i) {
    switch (choices_.below(8)) {
      case 0:
      case 1:
      case 2: inject(); break;
      case 3: any().loop().runOne(); break;
      case 4: any().train(kSteps); break;
      case 5: (void)any().late().landOne(); break;
      case 6:
        for (const auto& rank : ranks_) rank->loop().runReady();
        for (const auto& rank : ranks_) {
          for (size_t t = 0; t < 3; ++t) (void)rank->train(kSteps);
        }
        break;
      default: {
        MadRank& mad = *ranks_[index(*mad_)];
        const uint64_t deed = choices_.below(32);
        if (deed == 0) mad.fabric().close([](const Status&) {});
        if (deed == 1)
          mad.fabric().giveUp(Rank{(index(*mad_) + 1) % setting_.world}, {Code::kTimeout, "mad"});
        if (deed > 24) any().save();
        if (deed > 16) mad.loop().post([&mad] { mad.fabric().releasePutOff(); });
        break;
      }
    }
    checkMemory();
  }
  settle();
}

// A mad member makes others queue no more than a few times what all of them train.
void MadWorld::checkMemory() {
  for (const auto& rank : ranks_) {
    const uint64_t waiting = rank->strategy().statistics().bytesWaiting;
    SLUICE_CHECK(waiting <= 8 * uint64_t{setting_.world} * (plan_->model().bytes() + 1024),
                 waiting);
  }
}

}  // namespace sluice::algorithms
