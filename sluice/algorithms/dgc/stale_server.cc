#include <sluice/algorithms/dgc/stale_server.h>

#include <sluice/algorithms/dgc/sparse_format.h>
#include <sluice/algorithms/slices.h>
#include <sluice/data/codec/sparse.h>
#include <sluice/data/shard/sparse_centre.h>

namespace sluice::algorithms {
namespace {

class SparseStale final : public StaleForm {
 public:
  SparseStale(const Context& context, const DgcSettings& settings)
      : atStart_(context.update),
        format_(context, settings),
        centre_(context.plan, context.fabric.rank()) {
    setServed(centre_, context.plan, context.fabric.rank(),
              [&](TensorId id) { return context.parameters[index(id)]; });
  }

  PayloadFormat& format() override { return format_; }
  Status checkValues(std::span<const double> values) const override {
    return checkDgcValues(values, atStart_);
  }

  Status step(const ServerSlice& part) override {
    return centre_.step(part.slice.id, format_.desk(part.slice.id, part.from),
                        sgdValue(part.values, "lr"));
  }
  void prepareAnswer(SliceId slice, Rank worker) override {
    // From here on the worker counts as told, so this is done once and only for an answer that
    // will be sent.
    format_.desk(slice, worker) = centre_.newsFor(slice, worker);
  }

  Status takeAnswer(const WorkerSlice& worker) override {
    SLUICE_ASSIGN_OR_RETURN(const auto news, codec::decodeSparse(format_.received(worker.slice.id),
                                                                 worker.slice.count));
    codec::setSparse(news, worker.parameters);
    return base::ok();
  }

  // Does what the server does with this part, so that the server's next answer has the same
  // elements.
  Result<bool> ownStep(const WorkerSlice& worker) override {
    SLUICE_ASSIGN_OR_RETURN(const auto part,
                            codec::decodeSparse(format_.sent(worker.slice.id), worker.slice.count));
    codec::addScaledSparse(part, static_cast<float>(-sgdValue(worker.values, "lr")),
                           worker.parameters);
    return true;
  }

  Held held(SliceId slice) const override { return {centre_.parameters(slice), nullptr}; }
  void hold(SliceId slice, const Held& held) override {
    centre_.replaceParameters(slice, held.parameters);
  }
  OwnState* own() override { return &format_.compressor(); }

 private:
  const optimizer::OptimizerSpec atStart_;
  SparseFormat format_;
  shard::SparseCentre centre_;
};

}  // namespace

Result<std::unique_ptr<StaleForm>> makeSparseStale(const Context& context) {
  // Every part is a step of its own here, so a worker clips as if it were alone.
  SLUICE_ASSIGN_OR_RETURN(const auto settings, settingsOfDgc(context, /*workersPerStep=*/1));
  return std::unique_ptr<StaleForm>(std::make_unique<SparseStale>(context, settings));
}

}  // namespace sluice::algorithms
