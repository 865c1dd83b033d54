#include <sluice/algorithms/testing/elastic_world.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/base/check.h>
#include <sluice/base/options.h>
#include <sluice/data/gate/gates.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/optimizer/optimizer_spec.h>
#include <sluice/data/plan/roles.h>

namespace sluice::algorithms {
namespace {

constexpr uint64_t kMostActions = 1'000'000;
constexpr Duration kPatience = std::chrono::seconds(60);
constexpr Duration kLongest = std::chrono::minutes(5);  // in the members' own time

Model smallModel() {
  Model model;
  for (const uint64_t elements : {9U, 7U, 1U, 5U})
    model.tensors.push_back({fmt::format("t{}", model.tensors.size()), elements, DType::kF32});
  return model;
}

// A number that depends on all of its arguments, and whose sums are not exact.
float numberFor(Rank member, uint64_t step, TensorId tensor, uint64_t element) {
  uint64_t x = (index(member) + 1) * 0x9e3779b97f4a7c15ULL + step * 0xbf58476d1ce4e5b9ULL +
               (index(tensor) + 1) * 0x94d049bb133111ebULL + element;
  x ^= x >> 31U;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 29U;
  return static_cast<float>(static_cast<double>(x % 2'000'003) / 1000.0 - 1000.0);
}

}  // namespace

// Absent now and then: for one member, for all but one, and for all.
std::vector<float> gradientOf(Rank member, uint64_t step, const Tensor& tensor, TensorId id) {
  const uint64_t kind = (step * 7 + uint64_t{index(id)} * 3) % 9;
  const bool isAbsent =
      (kind == 1 && index(member) == 1) || (kind == 4 && index(member) != 0) || kind == 7;
  if (isAbsent) return {};
  std::vector<float> values;
  for (uint64_t e = 0; e < tensor.elements; ++e) values.push_back(numberFor(member, step, id, e));
  return values;
}

// One member: a training program, gates, and a strategy on the fabric of its epoch.
class ElasticMember final : private ResultSink {
 public:
  ElasticMember(ElasticWorld& world, uint32_t number)
      : world_(world), number_(number), model_(world.epochs_.front()->plan.model()) {
    gates_ = std::make_unique<gate::Gates>(gate::tensorNames(model_), gate::WaitOptions{},
                                           [](auto...) {});
    for (const Tensor& tensor : model_.tensors) memories_.emplace_back(tensor.elements);
    if (world.job_.isOnDevice) mirrors_ = memories_;
    memory_.resize(model_.tensors.size());
  }
  ~ElasticMember() override {
    loop_.post([this] {
      rooms_.clear();
      proposer_.reset();
      membership_.reset();
    });
    loop_.runReady();
    strategy_.reset();
  }

  // A fabric of an epoch, which holds messages back until the member has entered it. Half of a
  // payload lands at once, the rest later or never.
  struct Room final : fabric::Receiver {
    Room(ElasticMember& its, TestEpoch& of, Rank at) : member(its), epoch(of) {
      fabric = of.hub.join(at, its.loop_, *this);
    }
    ~Room() override { leave(); }

    Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                      const wire::Header& header) override {
      if (!isOpen) return deferred.defer(from, lane);
      auto landing = member.strategy_->onMessage(from, lane, header);
      if (!landing.isOk() || landing->isLater || header.length == 0) return landing;
      return landSlowly(*std::move(landing), header.length);
    }
    void onPeerLost(Rank from, const Status& why) override {
      if (isOpen) {
        member.sawLoss(epoch, from, why);
      } else {
        early.emplace(from, why);
      }
    }

    void open() {
      isOpen = true;
      deferred.resume(*fabric);
      for (const auto& [from, why] : std::exchange(early, {})) member.sawLoss(epoch, from, why);
    }
    void onPeerLeft(Rank) override {}

    fabric::Landing landSlowly(fabric::Landing landing, size_t bytes) {
      const auto slow = std::make_shared<SlowLanding>();
      slow->landing = std::move(landing);
      slow->payload.resize(bytes);
      return {{slow->payload.data(), bytes}, [this, slow](const Status& status) {
                if (!status.isOk()) return slow->landing.done(status);
                std::memcpy(slow->landing.buffer.data, slow->payload.data(),
                            slow->payload.size() / 2);
                std::erase_if(landings, [](const auto& each) { return each->hasEnded; });
                landings.push_back(slow);
                member.loop_.post([slow] {
                  if (slow->hasEnded) return;
                  std::ranges::copy(slow->payload, slow->landing.buffer.data);
                  slow->end(base::ok());
                });
              }};
    }

    void leave() {
      fabric.reset();
      for (const auto& slow : std::exchange(landings, {})) {
        if (!slow->hasEnded) slow->end(Status(Code::kCancelled, "the epoch has ended"));
      }
    }

    struct SlowLanding {
      void end(const Status& status) {
        hasEnded = true;
        landing.done(status);
      }
      fabric::Landing landing;
      std::vector<std::byte> payload;
      bool hasEnded = false;
    };

    ElasticMember& member;
    TestEpoch& epoch;
    bool isOpen = false;
    std::map<Rank, Status> early;  // losses before it was open
    std::set<uint32_t> givenUp;
    fabric::DeferredLanes deferred;
    std::vector<std::shared_ptr<SlowLanding>> landings;
    std::unique_ptr<fabric::Fabric> fabric;
  };

  Status begin() {
    makeRoom(*world_.epochs_.front());
    Status status;
    loop_.post([this, &status] { status = openFirst(); });
    loop_.runReady();
    return status;
  }

  void makeRoom(TestEpoch& epoch) {
    const auto found = std::ranges::find(epoch.members, Rank{number_});
    const Rank rank{static_cast<uint32_t>(found - epoch.members.begin())};
    rooms_.push_back(std::make_unique<Room>(*this, epoch, rank));
  }

  // Of a member that it has not given up in its epoch yet.
  bool mayGiveUp(uint32_t other) const {
    const Room& room = *rooms_.front();
    return !hasEnded_ && room.isOpen && room.fabric != nullptr && other != number_ &&
           !room.givenUp.contains(other) &&
           std::ranges::find(room.epoch.members, Rank{other}) != room.epoch.members.end();
  }
  void giveUp(uint32_t other) {
    Room& room = *rooms_.front();
    room.givenUp.insert(other);
    const auto place =
        std::ranges::find(room.epoch.members, Rank{other}) - room.epoch.members.begin();
    room.fabric->giveUp(Rank{static_cast<uint32_t>(place)},
                        Status(Code::kPeerLost, "it is silent"));
  }

  // Another member says so.
  void heardOfLoss(const membership::MemberId& lost, const membership::MemberId& witness) {
    loop_.post([this, lost, witness] {
      if (proposer_) proposer_->heardOfLoss(lost, witness);
    });
  }
  void setStoreAway(const std::string& why) {
    loop_.post([this, why] { way_->setUnavailable(why); });
  }
  bool isExcluded() const { return hasEnded_; }

  // The training program does its next thing; false if it has to wait.
  bool train() {
    if (step_ == world_.job_.steps || hasEnded_) return false;
    if (!coming_.empty() && world_.random_() % 2 == 0) {
      copyNext();
      return true;
    }
    if (handedOver_ < model_.tensors.size()) {
      handOver(TensorId{static_cast<uint32_t>(model_.tensors.size() - 1 - handedOver_++)});
      return true;
    }
    if (!coming_.empty()) {
      copyNext();
      return true;
    }
    const TensorId tensor{static_cast<uint32_t>(taken_)};
    if (!gates_->error().isOk()) {
      world_.error_ = gates_->error();
      return false;
    }
    if (!gates_->isOpen(tensor)) return false;
    take(tensor);
    if (++taken_ < model_.tensors.size()) return true;
    handedOver_ = 0;
    taken_ = 0;
    ++step_;
    return true;
  }

  bool hasFinished() const { return step_ == world_.job_.steps; }
  base::ManualLoop& loop() { return loop_; }
  uint64_t step() const { return step_; }
  std::string describeWait() {
    std::string text;
    loop_.post([&] {
      text = strategy_->describeWait(TensorId{static_cast<uint32_t>(taken_)});
      if (proposer_)
        text += fmt::format(", in epoch {} ({})", index(proposer_->epoch().record.number),
                            proposer_->describeWait());
    });
    loop_.runReady();
    return text;
  }

 private:
  Status openFirst() {
    Room& room = *rooms_.front();
    auto made =
        ElasticStrategy::begin({.plan = room.epoch.plan,
                                .fabric = *room.fabric,
                                .gates = *gates_,
                                .memory = memory_,
                                .update = optimizer::parseOptimizerSpec("mean-gradient").value(),
                                .parameters = {},
                                .config = world_.config_,
                                .observer = nullptr,
                                .results = world_.job_.isOnDevice ? this : nullptr},
                               world_.algorithm_->make);
    SLUICE_RETURN_IF_ERROR(made.status());
    strategy_ = *std::move(made);
    room.open();
    auto store =
        membership::makeMemoryMembership(loop_, world_.table_, {.job = "test", .key = world_.key_});
    membership_ = std::move(store.membership);
    way_ = store.way;
    membership_->announce(world_.entries_[number_], kPatience, [](const Status&) {});
    membership_->begin(world_.firstRecord(), kPatience,
                       [this](Result<membership::StoredEpoch> got) {
                         if (!got.isOk()) {
                           if (got.status().code() != Code::kCancelled)
                             world_.error_ = got.status();
                           return;
                         }
                         startProposer(*std::move(got));
                       });
    return base::ok();
  }

  void startProposer(membership::StoredEpoch stored) {
    proposer_ = std::make_unique<membership::EpochProposer>(
        loop_, *membership_, world_.entries_[number_].id, std::move(stored),
        membership::EpochProposerOptions{},
        membership::EpochProposer::Events{
            .onEpoch = [this](const membership::StoredEpoch& next) { follow(next); },
            .onEnd = [this](const Status&) { hasEnded_ = true; },
            .tellOthers = [this](const membership::MemberId& lost) { tellOthers(lost); },
            .nextStep = [this] { return Step{step_}; }});
  }

  void tellOthers(const membership::MemberId& lost) {
    if (world_.isLost(number_)) return;
    for (uint32_t m = 0; m < world_.members_.size(); ++m) {
      if (m != number_ && !world_.isLost(m))
        world_.members_[m]->heardOfLoss(lost, world_.entries_[number_].id);
    }
  }

  void sawLoss(const TestEpoch& epoch, Rank lost, const Status& why) {
    if (world_.isEnding_) return;
    strategy_->suspend();
    // Not if a newer epoch is known: members leave this one.
    if (!proposer_ || proposer_->epoch().record.number != epoch.number) return;
    proposer_->sawLoss(world_.entries_[index(epoch.members[index(lost)])].id, why);
  }

  void follow(const membership::StoredEpoch& next) {
    if (world_.isEnding_) return;
    wanted_ = world_.epochOf(next.record).number;
    if (std::exchange(isLeaving_, true)) return;
    strategy_->suspend();
    rooms_.front()->leave();
    loop_.post([this] { enterWanted(); });  // after what the fabric has posted
  }

  void enterWanted() {
    isLeaving_ = false;
    while (!rooms_.empty() && rooms_.front()->epoch.number != wanted_) rooms_.erase(rooms_.begin());
    if (rooms_.empty()) return;  // the test is over
    Room& room = *rooms_.front();
    const Status entered = strategy_->enter(room.epoch.plan, *room.fabric);
    if (!entered.isOk()) world_.error_ = entered;
    room.open();
  }

  void handOver(TensorId tensor) {
    std::vector<float>& place = memories_[index(tensor)];
    const auto gradient = gradientOf(Rank{number_}, step_, model_[tensor], tensor);
    const bool hasGradient = !gradient.empty();
    if (hasGradient) place = gradient;
    const bool isOnDevice = world_.job_.isOnDevice;
    const auto bytes =
        std::as_writable_bytes(std::span(isOnDevice ? mirrors_[index(tensor)] : place));
    const Step step = gates_->close(tensor).value();
    loop_.post([this, tensor, step, bytes, hasGradient, isOnDevice] {
      memory_[index(tensor)] = {.gradient = hasGradient ? bytes : std::span<std::byte>(),
                                .result = bytes};
      if (!isOnDevice || !hasGradient) strategy_->contribute({tensor, step, hasGradient});
    });
    if (!isOnDevice || !hasGradient) return;
    const auto slices = world_.epochs_.front()->plan.slicesOf(tensor);
    for (size_t s = 0; s < slices.size(); ++s)
      coming_.push_back({tensor, slices[s].id, step, 0, slices.size()});
  }

  // Copies one slice from the device, whichever.
  void copyNext() {
    std::swap(coming_[world_.random_() % coming_.size()], coming_.back());
    SliceContribution next = coming_.back();
    coming_.pop_back();
    next.come = next.slices - static_cast<size_t>(std::ranges::count(coming_, next.tensor,
                                                                     &SliceContribution::tensor));
    const plan::Slice& slice = world_.epochs_.front()->plan.slice(next.slice);
    copySlice(slice, memories_[index(slice.tensor)], mirrors_[index(slice.tensor)]);
    loop_.post([this, next] { strategy_->contributeSlice(next); });
  }

  static void copySlice(const plan::Slice& slice, const std::vector<float>& from,
                        std::vector<float>& to) {
    std::copy_n(from.begin() + static_cast<ptrdiff_t>(slice.offset), slice.count,
                to.begin() + static_cast<ptrdiff_t>(slice.offset));
  }

  // ResultSink: the device gets each result once.
  void onResult(const SliceResult& result) override {
    if (!told_.emplace(index(result.step), result.slice).second)
      world_.error_ = Status(Code::kDataLoss, "a result came twice");
    copySlice(world_.epochs_.front()->plan.slice(result.slice), mirrors_[index(result.tensor)],
              memories_[index(result.tensor)]);
  }
  void onNoResult(TensorId /*tensor*/, Step /*step*/) override {}

  Status checkTold(TensorId tensor) const {
    for (const plan::Slice& slice : world_.epochs_.front()->plan.slicesOf(tensor)) {
      if (!told_.contains({step_, slice.id}))
        return {Code::kDataLoss, fmt::format("step {} of a slice of t{} is not on the device",
                                             step_, index(tensor))};
    }
    return base::ok();
  }

  void take(TensorId tensor) {
    ElasticWorld::Seen seen;
    for (const plan::Slice& slice : world_.epochs_.front()->plan.slicesOf(tensor))
      seen.made.push_back(strategy_->lastResult(slice.id).made);
    seen.isEmpty = gates_->isEmpty(tensor);
    std::vector<float>& place = memories_[index(tensor)];
    if (!seen.isEmpty) seen.values = place;
    Status fine = world_.check({step_, tensor}, seen);
    if (fine.isOk() && world_.job_.isOnDevice && !seen.isEmpty) fine = checkTold(tensor);
    if (!fine.isOk()) world_.error_ = fine;
    world_.seen_[number_].emplace(std::pair(step_, tensor), std::move(seen));
    std::ranges::fill(place, -7.0F);  // as clipping and zero_grad() do
  }

  ElasticWorld& world_;
  const uint32_t number_;
  const Model& model_;
  std::vector<std::vector<float>> memories_;     // by TensorId: the training program's
  std::vector<std::vector<float>> mirrors_;      // the same in host memory, if that is on a device
  std::vector<SliceContribution> coming_;        // gradients that are not in host memory yet
  std::set<std::pair<uint64_t, SliceId>> told_;  // results on the device, by step
  std::vector<TensorMemory> memory_;
  base::ManualLoop loop_;
  std::unique_ptr<gate::Gates> gates_;
  std::unique_ptr<ElasticStrategy> strategy_;
  std::vector<std::unique_ptr<Room>> rooms_;  // the first is the epoch that it is in
  std::unique_ptr<membership::Membership> membership_;
  membership::MemoryKeyValues* way_ = nullptr;  // its part that can be cut off
  std::unique_ptr<membership::EpochProposer> proposer_;
  Epoch wanted_{};          // the epoch that it enters
  bool isLeaving_ = false;  // its present one, for that
  bool hasEnded_ = false;   // it is not in the newest epoch
  uint64_t step_ = 0;
  size_t handedOver_ = 0;
  size_t taken_ = 0;
};

ElasticWorld::ElasticWorld(const ElasticJob& job) : job_(job), random_(job.seed) {
  SLUICE_CHECK(config_.set(option::kSliceElements, "3").isOk());
  algorithm_ = readAlgorithm(job.algorithm, config_).value();
  plan::PlanSpec spec;
  spec.model = smallModel();
  spec.roles = plan::parseRoles("all", job.members).value();
  spec.strategy = algorithm_->name;
  SLUICE_CHECK(algorithm_->choose(config_, spec).isOk());
  std::vector<Rank> all;
  for (uint32_t r = 0; r < job.members; ++r) all.push_back(Rank{r});
  epochs_.push_back(std::make_unique<TestEpoch>(Epoch{0}, plan::Plan::make(std::move(spec)).value(),
                                                all, fabric::LoopbackHub(job.members, Epoch{0})));
  seen_.resize(job.members);
  for (uint32_t r = 0; r < job.members; ++r)
    entries_.push_back(
        {.id = membership::MemberId::random(), .host = fmt::format("host{}", r), .address = "-"});
  for (uint32_t r = 0; r < job.members; ++r) {
    members_.push_back(std::make_unique<ElasticMember>(*this, r));
    if (const Status begun = members_.back()->begin(); !begun.isOk()) error_ = begun;
  }
  table_->setFaults({.seed = job.seed,
                     .longestDelay = std::chrono::milliseconds(job.seed % 4 * 30),
                     .lostAnswers = 0.1 * static_cast<double>(job.seed % 3),
                     .lostNotices = 0.2 * static_cast<double>(job.seed % 2)});
}

ElasticWorld::~ElasticWorld() {
  isEnding_ = true;
}

membership::EpochRecord ElasticWorld::firstRecord() const {
  membership::EpochRecord record;
  record.members = entries_;
  record.why = "the job begins";
  record.proposer = entries_.front().id;
  record.nonce = membership::Nonce::random();
  record.run = record.nonce;
  return record;
}

Result<uint64_t> ElasticWorld::run() {
  while (error_.isOk() && !isOver()) {
    if (++actions_ > kMostActions) error_ = Status(Code::kTimeout, "the job does not end");
    loseMembers();
    if (act() || noticeLoss()) continue;
    if (random_() % 8 == 0) heal();
    if (!passTime()) error_ = Status(Code::kTimeout, "all members wait");
  }
  if (error_.isOk()) error_ = compareMembers();
  if (error_.isOk()) return actions_;
  return error_.withContext(describe());
}

std::string ElasticWorld::describe() const {
  std::string text = fmt::format("{} with {} members{}, seed {}", job_.algorithm, job_.members,
                                 job_.isOnDevice ? " on devices" : "", job_.seed);
  for (const Loss& loss : job_.losses)
    text +=
        fmt::format(", {} {} at {}", loss.member, loss.isCutOff ? "cut off" : "lost", loss.moment);
  for (uint32_t m = 0; m < members_.size(); ++m) {
    if (stopped_.contains(m)) continue;
    text += fmt::format("; {} in step {}", m, members_[m]->step());
    if (error_.code() == Code::kTimeout) text += ": " + members_[m]->describeWait();
  }
  return text;
}

void ElasticWorld::loseMembers() {
  for (const Loss& loss : job_.losses) {
    if (loss.moment != actions_ || lost_.size() + 1 >= members_.size()) continue;
    lost_.insert(loss.member);
    if (!loss.isCutOff) stopped_.insert(loss.member);
    if (loss.isCutOff && !loss.reachesStore) members_[loss.member]->setStoreAway("it is cut off");
    // The store is away for a while, in some jobs.
    if (job_.seed % 5 == 0) table_->setUnavailable("it is away");
  }
}

bool ElasticWorld::isIn(uint32_t member) const {
  const auto& newest = epochs_.back()->members;
  return !stopped_.contains(member) && !members_[member]->isExcluded() &&
         std::ranges::find(newest, Rank{member}) != newest.end();
}

bool ElasticWorld::isOver() const {
  for (uint32_t m = 0; m < members_.size(); ++m) {
    if (isIn(m) && !members_[m]->hasFinished()) return false;
  }
  return true;
}

bool ElasticWorld::act() {
  // Now and then a loss is noticed, or time passes, before all else is done.
  const uint64_t kind = random_() % 32;
  if (kind < 2 && noticeLoss()) return true;
  if (kind == 2 && passTime()) return true;
  // The store forgets who is announced, as etcd does when it has revoked the leases.
  if (kind == 3 && random_() % 16 == 0) table_->endLeases();
  std::vector<uint32_t> order;
  for (uint32_t m = 0; m < members_.size(); ++m) {
    if (!stopped_.contains(m)) order.push_back(m);
  }
  std::ranges::shuffle(order, random_);
  for (const uint32_t m : order) {
    ElasticMember& member = *members_[m];
    if (random_() % 2 == 0 && member.train()) return true;
    if (member.loop().runOne()) return true;
    if (member.train()) return true;
  }
  return false;
}

// One member gives up another: a lost one, or any if it is cut off itself.
bool ElasticWorld::noticeLoss() {
  std::vector<std::pair<uint32_t, uint32_t>> open;
  for (uint32_t m = 0; m < members_.size(); ++m) {
    if (stopped_.contains(m)) continue;
    for (uint32_t other = 0; other < members_.size(); ++other) {
      if ((isLost(m) || isLost(other)) && members_[m]->mayGiveUp(other))
        open.emplace_back(m, other);
    }
  }
  if (open.empty()) return false;
  const auto [member, other] = open[random_() % open.size()];
  members_[member]->giveUp(other);
  return true;
}

// Everybody reaches the store again, in the end.
void ElasticWorld::heal() {
  table_->setUnavailable("");
  for (uint32_t m = 0; m < members_.size(); ++m) {
    if (!stopped_.contains(m)) members_[m]->setStoreAway("");
  }
}

// One member's next timer is due.
bool ElasticWorld::passTime() {
  ElasticMember* first = nullptr;
  for (uint32_t m = 0; m < members_.size(); ++m) {
    if (stopped_.contains(m)) continue;
    const auto due = members_[m]->loop().nextDue();
    if (due && (first == nullptr || *due < *first->loop().nextDue())) first = members_[m].get();
  }
  if (first == nullptr || first->loop().now() - TimePoint{} > kLongest) return false;
  return first->loop().advanceToNextTimer();
}

// Two epochs of one number would be two sides that both go on.
TestEpoch& ElasticWorld::epochOf(const membership::EpochRecord& record) {
  std::vector<Rank> left;
  for (const membership::Member& member : record.members) {
    const auto found = std::ranges::find(entries_, member.id, &membership::Member::id);
    left.push_back(Rank{static_cast<uint32_t>(found - entries_.begin())});
  }
  if (index(record.number) == epochs_.size()) {
    epochs_.push_back(std::make_unique<TestEpoch>(
        record.number, plan::Plan::continued(epochs_.front()->plan, record.number, left), left,
        fabric::LoopbackHub(left.size(), record.number)));
    for (const Rank member : left) members_[index(member)]->makeRoom(*epochs_.back());
  }
  TestEpoch& epoch = *epochs_[index(record.number)];
  if (epoch.members != left)
    error_ = Status(Code::kDataLoss, fmt::format("there are two epochs {}", index(record.number)));
  return epoch;
}

// A lost member may have had results of its last step that nobody else had. They were made again
// without it.
Status ElasticWorld::compareMembers() const {
  const bool isSplit = std::ranges::any_of(job_.losses, &Loss::isCutOff);
  uint32_t first = 0;
  while (first < members_.size() && !isIn(first)) ++first;
  if (first == members_.size()) return base::ok();  // nobody is left
  for (uint32_t m = 0; m < members_.size(); ++m) {
    // A member that is cut off may turn others out.
    if (!isSplit && !isLost(m) && members_[m]->isExcluded())
      return {Code::kDataLoss, fmt::format("member {} lives, and was turned out", m)};
    for (const auto& [moment, seen] : seen_[m]) {
      if (!isIn(m) && moment.first + 1 >= members_[m]->step()) continue;
      if (seen_[first].at(moment) == seen) continue;
      return {Code::kDataLoss, fmt::format("member {} has other bits than {} in step {} of t{}", m,
                                           first, moment.first, index(moment.second))};
    }
  }
  return base::ok();
}

// Sums each slice over the members of the epoch in which it was made, in one process.
Status ElasticWorld::check(Moment moment, const Seen& seen) const {
  const auto [step, tensor] = moment;
  const plan::Plan& plan = epochs_.front()->plan;
  const Tensor& its = plan.model()[tensor];
  std::vector<float> expected(its.elements);
  bool isEmpty = true;
  for (size_t s = 0; s < seen.made.size(); ++s) {
    const plan::Slice& slice = plan.slicesOf(tensor)[s];
    const auto& members = epochs_[index(seen.made[s])]->members;
    std::vector<std::vector<float>> parts;
    std::vector<std::span<const std::byte>> bytes;
    bool isSliceEmpty = true;
    for (const Rank member : members) {
      auto gradient = gradientOf(member, step, its, tensor);
      isSliceEmpty = isSliceEmpty && gradient.empty();
      gradient.resize(its.elements);
      parts.push_back(std::move(gradient));
    }
    if (isSliceEmpty) continue;
    isEmpty = false;
    for (const auto& part : parts)
      bytes.push_back(std::as_bytes(std::span(part).subspan(slice.offset, slice.count)));
    const auto place = std::span(expected).subspan(slice.offset, slice.count);
    kernel::sumInRankOrder(DType::kF32, std::as_writable_bytes(place), bytes,
                           kernel::meanScale(members.size()));
  }
  const bool isRight =
      seen.isEmpty == isEmpty && (isEmpty || std::memcmp(expected.data(), seen.values.data(),
                                                         its.elements * sizeof(float)) == 0);
  if (isRight) return base::ok();
  return {Code::kDataLoss,
          fmt::format("the bits of step {} of t{} are not those of one process: {} instead of {}",
                      step, index(tensor), seen.values, expected)};
}

}  // namespace sluice::algorithms
