// Random sends for the property tests of this folder.
#pragma once

#include <rapidcheck.h>

#include <sluice/transport/queue/send.h>

namespace sluice::queue::testing {

// Few ranks, layers and turns, so that ties of every kind come up.
inline rc::Gen<Send> anySend(uint32_t ranks = 4) {
  return rc::gen::build<Send>(
      rc::gen::set(&Send::to, rc::gen::map(rc::gen::inRange<uint32_t>(0, ranks),
                                           [](uint32_t r) { return Rank{r}; })),
      rc::gen::set(&Send::bytes, rc::gen::inRange<uint64_t>(0, 1'000)),
      rc::gen::set(&Send::step, rc::gen::map(rc::gen::inRange<uint64_t>(0, 2),
                                             [](uint64_t s) { return Step{s}; })),
      rc::gen::set(&Send::priority, rc::gen::inRange<uint32_t>(0, 5)),
      rc::gen::set(&Send::stage, rc::gen::element(Stage::kPush, Stage::kPublish)),
      rc::gen::set(&Send::turn, rc::gen::inRange<uint64_t>(0, 3)));
}

}  // namespace sluice::queue::testing
