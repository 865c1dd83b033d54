#include <sluice/strategy/dgc/stale_server.h>

#include <sluice/codec/sparse.h>
#include <sluice/shard/sparse_centre.h>
#include <sluice/strategy/dgc/sparse_format.h>
#include <sluice/strategy/slices.h>

namespace sluice::strategy {
namespace {

class SparseStale final : public StaleForm {
 public:
  SparseStale(const Rooms& rooms, const DgcSettings& settings)
      : atStart_(rooms.update),
        freight_(rooms, settings),
        centre_(rooms.plan, rooms.fabric.rank()) {
    setServed(centre_, rooms.plan, rooms.fabric.rank(),
              [&](TensorId id) { return rooms.parameters[index(id)]; });
  }

  Freight& freight() override { return freight_; }
  Status checkValues(std::span<const double> values) const override {
    return checkDgcValues(values, atStart_);
  }

  Status step(const ServerSlice& part) override {
    return centre_.step(part.slice.id, freight_.desk(part.slice.id, part.from),
                        sgdValue(part.values, "lr"));
  }
  void prepareAnswer(SliceId slice, Rank worker) override {
    freight_.desk(slice, worker) = centre_.newsFor(slice, worker);
  }

  Status takeAnswer(const WorkerSlice& worker) override {
    SLUICE_ASSIGN_OR_RETURN(const auto news, codec::decodeSparse(freight_.received(worker.slice.id),
                                                                 worker.slice.count));
    codec::setSparse(news, worker.parameters);
    return base::ok();
  }

  // What the server does with this part too, so that its next answer has the same elements.
  Result<bool> ownStep(const WorkerSlice& worker) override {
    SLUICE_ASSIGN_OR_RETURN(
        const auto part, codec::decodeSparse(freight_.sent(worker.slice.id), worker.slice.count));
    codec::addScaledSparse(part, static_cast<float>(-sgdValue(worker.values, "lr")),
                           worker.parameters);
    return true;
  }

  Method::Held held(SliceId slice) const override { return {centre_.parameters(slice), nullptr}; }
  void hold(SliceId slice, const Method::Held& held) override {
    centre_.replaceParameters(slice, held.parameters);
  }
  OwnState* own() override { return &freight_.compressor(); }

 private:
  const optimizer::OptimizerSpec atStart_;
  SparseFreight freight_;
  shard::SparseCentre centre_;
};

}  // namespace

Result<std::unique_ptr<StaleForm>> makeSparseStale(const Rooms& rooms) {
  SLUICE_ASSIGN_OR_RETURN(const auto settings, settingsOfDgc(rooms));
  return std::unique_ptr<StaleForm>(std::make_unique<SparseStale>(rooms, settings));
}

}  // namespace sluice::strategy
