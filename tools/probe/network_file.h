// The network of a job in the words of `sluice plan --network` and `sluice simulate --topology`:
//
//   {"rate": "940mbit", "latency": "50us", "loss": 0.0, "encrypted": true,
//    "names": ["a", "b"], "hosts": {"1": {"out": "300mbit", "in": "300mbit"}}}
//
// Rates are those of links, frames and all. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <tools/probe/facts.h>

namespace sluice::probe {

// REQUIRES: two ranks or more. The error says that no pair could be measured.
Result<nlohmann::ordered_json> networkFile(const NetworkFacts& facts);

}  // namespace sluice::probe
