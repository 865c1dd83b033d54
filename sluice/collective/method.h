// How the ranks of a collective talk with each other. Plain values, any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include <sluice/base/status.h>

namespace sluice::collective {

enum class Method : uint8_t {
  // Everybody sends each part to the rank that owns it, which sums in rank order and sends the sum
  // to everybody: the bits of the parameter servers. Two rounds; N-1 messages each.
  kDirect,
  // Parts go around, each rank adds its own; then sums go around. 2(N-1) rounds between neighbours.
  kRing,
  // Halves, quarters, ... are exchanged with ever nearer ranks, then back. 2 log2 N rounds; where N
  // is no power of two, some ranks hand theirs to a neighbour first. Only for allReduce(); the
  // others fall back to direct.
  kHalvingDoubling,
};

std::string_view name(Method method);
Result<Method> parseMethod(std::string_view text);

}  // namespace sluice::collective
