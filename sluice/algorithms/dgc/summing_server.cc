#include <sluice/algorithms/dgc/summing_server.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <sluice/algorithms/dgc/sparse_format.h>
#include <sluice/algorithms/server/answering.h>
#include <sluice/algorithms/server/collecting.h>
#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/slices.h>
#include <sluice/data/codec/sparse.h>
#include <sluice/data/kernel/reduce.h>

namespace sluice::algorithms {
namespace {

// Large, since every message has a header; but not so large that a tensor's work cannot be shared.
constexpr uint64_t kSparseSlice = uint64_t{1} << 20U;

// bsp, as a policy of the engine whose servers answer each worker.
class SparseSum final : public AnswerPolicy {
 public:
  SparseSum(const Context& context, const DgcSettings& settings)
      : plan_(context.plan),
        atStart_(context.update),
        scale_(static_cast<float>(kernel::meanScale(context.plan.roles().workers.size()))),
        format_(context, settings) {
    for (const SliceId id : plan_.slicesOn(context.fabric.rank()))
      served_[id].resize(plan_.roles().workers.size());
  }

  PayloadFormat& format() override { return format_; }
  Status checkValues(std::span<const double> values) const override {
    return checkDgcValues(values, atStart_);
  }
  Travel travel(SliceId /*slice*/, Step /*step*/) const override { return Travel::kAsk; }

  // Momentum and decay are inside already.
  Result<bool> finish(const WorkerSlice& worker, Travel /*travel*/, uint64_t /*lag*/) override {
    SLUICE_ASSIGN_OR_RETURN(const auto mean, codec::decodeSparse(format_.received(worker.slice.id),
                                                                 worker.slice.count));
    codec::addScaledSparse(mean, static_cast<float>(-sgdValue(worker.values, "lr")),
                           worker.parameters);
    return true;
  }

  Result<std::vector<Rank>> take(const ServerSlice& part) override {
    // Checked as it comes, since only now its sender can be named.
    SLUICE_RETURN_IF_ERROR(
        codec::decodeSparse(format_.desk(part.slice.id, part.from), part.slice.count).status());
    std::vector<bool>& isHere = served_.at(part.slice.id);
    isHere[plan_.roles().workerPosition(part.from)] = true;
    if (!std::ranges::all_of(isHere, [](bool here) { return here; })) return std::vector<Rank>();
    isHere.assign(isHere.size(), false);
    SLUICE_ASSIGN_OR_RETURN(const auto mean, meanOf(part.slice));
    // The mean replaces the parts on the desks: from here on each desk holds its worker's
    // answer, and the answers leave one by one.
    for (const Rank worker : plan_.roles().workers) format_.desk(part.slice.id, worker) = mean;
    return plan_.roles().workers;
  }

  std::string describeWait(SliceId slice) const override {
    const std::vector<bool>& isHere = served_.at(slice);
    if (std::ranges::none_of(isHere, [](bool here) { return here; })) return {};
    std::string missing;
    for (size_t w = 0; w < isHere.size(); ++w) {
      if (!isHere[w]) missing += fmt::format(" {}", plan_.roles().workers[w]);
    }
    return fmt::format("lacks rank{}", missing);
  }

  OwnState* own() override { return &format_.compressor(); }

 private:
  Result<std::vector<std::byte>> meanOf(const plan::Slice& slice) {
    sum_.assign(slice.count, 0);
    places_.clear();
    // Parts are added in the order of workers, whichever came first: the sum has the same bits
    // in every run.
    for (const Rank worker : plan_.roles().workers)
      SLUICE_RETURN_IF_ERROR(codec::addSparse(format_.desk(slice.id, worker), sum_, places_));
    std::ranges::sort(places_);
    const auto same = std::ranges::unique(places_);
    // Several workers may have sent the same element, and each place must be scaled once.
    places_.erase(same.begin(), same.end());
    for (const uint32_t place : places_) sum_[place] *= scale_;
    return codec::encodeSparse(sum_, places_);
  }

  const plan::Plan& plan_;
  const optimizer::OptimizerSpec atStart_;
  const float scale_;
  SparseFormat format_;
  std::map<SliceId, std::vector<bool>> served_;  // by worker position: whose part is here
  // Scratch.
  std::vector<float> sum_;
  std::vector<uint32_t> places_;
};

}  // namespace

Status chooseSparseServer(const base::Config& config, plan::PlanSpec& spec) {
  SLUICE_RETURN_IF_ERROR(chooseDgc(config, spec));
  SLUICE_RETURN_IF_ERROR(chooseSharded(config, kSparseSlice, spec));
  spec.slicing.minMessageElements =
      spec.slicing.sliceElements;  // no tensor is cut smaller than it has to be
  return base::ok();
}

Result<std::unique_ptr<Strategy>> makeSparseServer(const Context& context) {
  SLUICE_ASSIGN_OR_RETURN(const auto settings,
                          settingsOfDgc(context, context.plan.roles().workers.size()));
  return makeAnswering(context, std::make_unique<SparseSum>(context, settings));
}

}  // namespace sluice::algorithms
