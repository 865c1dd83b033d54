#include <sluice/strategy/dgc/summing_server.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/codec/sparse.h>
#include <sluice/kernel/reduce.h>
#include <sluice/strategy/dgc/sparse_format.h>
#include <sluice/strategy/server/answering.h>
#include <sluice/strategy/server/collecting.h>
#include <sluice/strategy/slices.h>

namespace sluice::strategy {
namespace {

// Large, since every message has a header; but not so large that a tensor's work cannot be shared.
constexpr uint64_t kSparseSlice = uint64_t{1} << 20U;

// bsp, as a method of the engine whose servers do not have to wait.
class SparseSum final : public Method {
 public:
  SparseSum(const Rooms& rooms, const DgcSettings& settings)
      : plan_(rooms.plan),
        atStart_(rooms.update),
        scale_(static_cast<float>(kernel::meanScale(rooms.plan.roles().workers.size()))),
        freight_(rooms, settings) {
    for (const SliceId id : plan_.slicesOn(rooms.fabric.rank()))
      served_[id].resize(plan_.roles().workers.size());
  }

  Freight& freight() override { return freight_; }
  bool serversStep() const override { return false; }
  Status checkValues(std::span<const double> values) const override {
    return checkDgcValues(values, atStart_);
  }
  uint64_t period() const override { return 1; }
  Travel travel(SliceId /*slice*/, Step /*step*/) const override { return Travel::kAsk; }
  bool mayCome(bool hasPart, bool asks) const override { return hasPart && asks; }

  // Momentum and decay are inside already.
  Result<bool> finish(const WorkerSlice& worker, Travel /*travel*/, uint64_t /*lag*/) override {
    SLUICE_ASSIGN_OR_RETURN(const auto mean, codec::decodeSparse(freight_.received(worker.slice.id),
                                                                 worker.slice.count));
    codec::addScaledSparse(mean, static_cast<float>(-sgdValue(worker.values, "lr")),
                           worker.parameters);
    return true;
  }

  Result<std::vector<Rank>> take(const ServerSlice& part) override {
    // Checked as it comes, since only now its sender can be named.
    SLUICE_RETURN_IF_ERROR(
        codec::decodeSparse(freight_.desk(part.slice.id, part.from), part.slice.count).status());
    std::vector<bool>& isHere = served_.at(part.slice.id);
    isHere[plan_.roles().workerPosition(part.from)] = true;
    if (!std::ranges::all_of(isHere, [](bool here) { return here; })) return std::vector<Rank>();
    isHere.assign(isHere.size(), false);
    SLUICE_ASSIGN_OR_RETURN(const auto mean, meanOf(part.slice));
    for (const Rank worker : plan_.roles().workers) freight_.desk(part.slice.id, worker) = mean;
    return plan_.roles().workers;
  }
  uint64_t prepareAnswer(SliceId /*slice*/, Rank /*to*/) override {
    return 0;
  }  // it lies there already

  std::optional<uint64_t> firstStepWithout(uint64_t stepsOfOther) const override {
    return stepsOfOther;
  }
  bool goesOnWithoutLost() const override { return false; }
  std::vector<Rank> forget(SliceId /*slice*/, Rank /*lost*/) override { return {}; }

  std::string describeWait(SliceId slice) const override {
    const std::vector<bool>& isHere = served_.at(slice);
    if (std::ranges::none_of(isHere, [](bool here) { return here; })) return {};
    std::string missing;
    for (size_t w = 0; w < isHere.size(); ++w) {
      if (!isHere[w]) missing += fmt::format(" {}", plan_.roles().workers[w]);
    }
    return fmt::format("lacks rank{}", missing);
  }

  // All that there is, is at the workers.
  Centre centre() const override { return Centre::kNone; }
  Held held(SliceId /*slice*/) const override { return {}; }
  void hold(SliceId /*slice*/, const Held& /*held*/) override {}
  OwnState* own() override { return &freight_.compressor(); }

 private:
  Result<std::vector<std::byte>> meanOf(const plan::Slice& slice) {
    sum_.assign(slice.count, 0);
    places_.clear();
    for (const Rank worker : plan_.roles().workers)
      SLUICE_RETURN_IF_ERROR(codec::addSparse(freight_.desk(slice.id, worker), sum_, places_));
    std::ranges::sort(places_);
    const auto same = std::ranges::unique(places_);
    places_.erase(same.begin(), same.end());
    for (const uint32_t place : places_) sum_[place] *= scale_;
    return codec::encodeSparse(sum_, places_);
  }

  const plan::Plan& plan_;
  const optimizer::OptimizerSpec atStart_;
  const float scale_;
  SparseFreight freight_;
  std::map<SliceId, std::vector<bool>> served_;  // by worker position: whose part is here
  // Scratch.
  std::vector<float> sum_;
  std::vector<uint32_t> places_;
};

}  // namespace

Status chooseSparseServer(const base::Config& config, plan::PlanSpec& spec) {
  SLUICE_RETURN_IF_ERROR(chooseDgc(config, spec));
  SLUICE_RETURN_IF_ERROR(chooseSlices(config, plan::Placement::kSharded, kSparseSlice, spec));
  spec.slicing.minMessageElements =
      spec.slicing.sliceElements;  // no tensor is cut smaller than it has to be
  return base::ok();
}

Result<std::unique_ptr<Strategy>> makeSparseServer(const Rooms& rooms) {
  SLUICE_ASSIGN_OR_RETURN(const auto settings, settingsOfDgc(rooms));
  return makeAsynchronous(rooms, std::make_unique<SparseSum>(rooms, settings));
}

}  // namespace sluice::strategy
