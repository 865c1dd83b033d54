#include <sluice/data/plan/slicing.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/random.h>
#include <sluice/data/plan/cutter.h>

namespace sluice::plan {
namespace {

Status cutKvstore(const Model& model, const Slicing& slicing, Cutter& cutter) {
  const uint32_t servers = cutter.servers();
  for (uint32_t t = 0; t < model.tensors.size(); ++t) {
    const uint64_t elements = model.tensors[t].elements;
    // This is MXNet's rule, kept as it is because the papers compare with it: small layers go
    // whole to a server drawn by chance, which may load one server far more than another; large
    // layers are cut evenly.
    if (elements < slicing.sliceElements) {
      SLUICE_RETURN_IF_ERROR(cutter.begin(TensorId{t}, 1));
      cutter.add(elements, static_cast<uint32_t>(base::splitmix64(slicing.seed, t) % servers),
                 /*chunk=*/0);
      continue;
    }
    const auto parts = static_cast<uint32_t>(std::min<uint64_t>(servers, elements));
    SLUICE_RETURN_IF_ERROR(cutter.begin(TensorId{t}, parts));
    for (uint32_t s = 0; s < parts; ++s) cutter.add(evenPart(elements, parts, s), s, /*chunk=*/0);
  }
  return base::ok();
}

Status cutRoundRobin(const Model& model, const Slicing& slicing, Cutter& cutter) {
  uint32_t turn =
      0;  // goes on over the ends of tensors, or small tensors would all land on server 0
  for (uint32_t t = 0; t < model.tensors.size(); ++t) {
    uint64_t left = model.tensors[t].elements;
    SLUICE_RETURN_IF_ERROR(cutter.begin(TensorId{t}, ceilDivide(left, slicing.sliceElements)));
    for (uint32_t chunk = 0; left > 0; ++chunk) {
      const uint64_t count = std::min(left, slicing.sliceElements);
      cutter.add(count, turn, chunk);
      turn = (turn + 1) % cutter.servers();
      left -= count;
    }
  }
  return base::ok();
}

Status cutLayers(const Model& model, const Slicing& slicing, Cutter& cutter) {
  std::vector<uint64_t> loads(cutter.servers());
  for (uint32_t t = 0; t < model.tensors.size(); ++t) {
    uint64_t left = model.tensors[t].elements;
    // Layers go whole to the server with the fewest elements so far; among equals to the first,
    // so that all ranks cut alike.
    const auto least = std::ranges::min_element(loads);
    *least += left;
    SLUICE_RETURN_IF_ERROR(cutter.begin(TensorId{t}, ceilDivide(left, slicing.sliceElements)));
    for (uint32_t chunk = 0; left > 0; ++chunk) {
      const uint64_t count = std::min(left, slicing.sliceElements);
      cutter.add(count, static_cast<uint32_t>(least - loads.begin()), chunk);
      left -= count;
    }
  }
  return base::ok();
}

}  // namespace

std::string Slice::toString() const {
  return fmt::format("slice {} = tensor {} [{}, {}) on rank {}, priority {}", index(id),
                     index(tensor), offset, offset + count, index(server), priority);
}

std::string_view name(Placement placement) {
  switch (placement) {
    case Placement::kKvstore: return "kvstore";
    case Placement::kRoundRobin: return "roundRobin";
    case Placement::kSharded: return "sharded";
    case Placement::kLayers: return "layers";
  }
  return "?";
}

Status Cutter::begin(TensorId tensor, uint64_t slices) {
  // The comparison is a subtraction, because a sum could overflow.
  if (slices > kMaxSlices - slices_.size()) {
    return {Code::kInvalidArgument,
            fmt::format("the model would be cut into more than {} slices; raise --slice-elements",
                        kMaxSlices)};
  }
  tensor_ = tensor;
  offset_ = 0;
  return base::ok();
}

Result<std::vector<Slice>> cut(const Model& model, const Roles& roles, const Slicing& slicing) {
  SLUICE_RETURN_IF_ERROR(check(model));
  SLUICE_RETURN_IF_ERROR(check(roles));
  if (slicing.sliceElements == 0 || slicing.sliceElements > kMaxTensorElements) {
    return Status(Code::kInvalidArgument,
                  fmt::format("a slice cannot have {} elements; give --slice-elements 1 to {}",
                              slicing.sliceElements, kMaxTensorElements));
  }
  if (slicing.hostsPerRack == 0) {
    return Status(
        Code::kInvalidArgument,
        "a rack cannot have 0 hosts; give at least 1, which means that racks do not matter");
  }
  Cutter cutter(roles.servers);
  switch (slicing.placement) {
    case Placement::kKvstore: SLUICE_RETURN_IF_ERROR(cutKvstore(model, slicing, cutter)); break;
    case Placement::kRoundRobin:
      SLUICE_RETURN_IF_ERROR(cutRoundRobin(model, slicing, cutter));
      break;
    case Placement::kSharded: SLUICE_RETURN_IF_ERROR(cutSharded(model, slicing, cutter)); break;
    case Placement::kLayers: SLUICE_RETURN_IF_ERROR(cutLayers(model, slicing, cutter)); break;
  }
  return std::move(cutter).take();
}

}  // namespace sluice::plan
