// The cost of an all-reduce by method, as a + b*M each, and so the method that suits a message.
// Written by `sluice bench collective`, read where ranks agree on a plan. Pure functions, any
// thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/data/collective/method.h>

namespace sluice::collective {

struct MethodCost {
  Method method{};
  double start = 0;    // seconds
  double perByte = 0;  // seconds
  double of(double bytes) const { return start + perByte * bytes; }
  friend bool operator==(const MethodCost&, const MethodCost&) = default;
};

// "direct=220us+2.53ns,ring=180us+2.8ns": start, and time for each byte.
std::string toText(std::span<const MethodCost> costs);
Result<std::vector<MethodCost>> parseMethodCosts(std::string_view text);

// Returns the first of the cheapest methods. REQUIRES: there is one
Method cheapest(std::span<const MethodCost> costs, double bytes);

}  // namespace sluice::collective
