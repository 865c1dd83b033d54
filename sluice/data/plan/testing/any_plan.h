// Random models and plans for property tests here and in the folders above.
#pragma once

#include <string>

#include <rapidcheck.h>

#include <sluice/data/plan/plan.h>

namespace sluice::plan::testing {

// Sizes as models have them: many small tensors, a few large ones.
inline rc::Gen<Model> anyModel(uint64_t largest = 3'000'000) {
  const auto elements = rc::gen::weightedOneOf<uint64_t>(
      {{4, rc::gen::inRange<uint64_t>(1, 300)}, {2, rc::gen::inRange<uint64_t>(1, largest)}});
  const auto dtype = rc::gen::element(DType::kF32, DType::kF64, DType::kBF16, DType::kF16);
  const auto tensor = rc::gen::build<Tensor>(
      rc::gen::set(&Tensor::name, rc::gen::string<std::string>()),
      rc::gen::set(&Tensor::elements, elements), rc::gen::set(&Tensor::dtype, dtype));
  return rc::gen::map(rc::gen::nonEmpty(rc::gen::container<std::vector<Tensor>>(tensor)),
                      [](std::vector<Tensor> tensors) { return Model{std::move(tensors)}; });
}

inline rc::Gen<Roles> anyRoles(uint32_t mostRanks = 17) {
  return rc::gen::exec([mostRanks] {
    const auto world = *rc::gen::inRange<uint32_t>(1, mostRanks + 1);
    const auto kind = world == 1 ? 0 : *rc::gen::inRange(0, 3);
    if (kind == 0) return *parseRoles("all", world);
    const auto k = std::to_string(*rc::gen::inRange<uint32_t>(1, world));
    return *parseRoles(kind == 1 ? k : "dedicated:" + k, world);
  });
}

inline rc::Gen<Slicing> anySlicing(Placement placement) {
  return rc::gen::build<Slicing>(
      rc::gen::set(&Slicing::placement, rc::gen::just(placement)),
      rc::gen::set(&Slicing::sliceElements, rc::gen::inRange<uint64_t>(100, 100'000)),
      rc::gen::set(&Slicing::minMessageElements, rc::gen::inRange<uint64_t>(0, 10'000)),
      rc::gen::set(&Slicing::seed, rc::gen::arbitrary<uint64_t>()),
      rc::gen::set(&Slicing::hostsPerRack, rc::gen::inRange<uint32_t>(1, 9)));
}

inline rc::Gen<PlanSpec> anySpec() {
  return rc::gen::exec([] {
    PlanSpec spec;
    spec.epoch = Epoch{*rc::gen::arbitrary<uint32_t>()};
    spec.model = *anyModel(100'000);
    spec.roles = *anyRoles();
    spec.slicing = *anySlicing(*rc::gen::element(Placement::kKvstore, Placement::kRoundRobin,
                                                 Placement::kSharded, Placement::kLayers));
    spec.strategy = *rc::gen::string<std::string>();
    spec.settings = *rc::gen::arbitrary<std::map<std::string, std::string>>();
    return spec;
  });
}

}  // namespace sluice::plan::testing
