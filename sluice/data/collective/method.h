// The ways in which the ranks of a collective talk with each other. Plain values, any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include <sluice/base/status.h>

namespace sluice::collective {

enum class Method : uint8_t {
  // Every rank sends each part to the rank that owns it, which sums in rank order and sends the sum
  // to every rank. The sum has the same bits as with parameter servers. Two rounds; N-1 messages
  // each.
  kDirect,
  // Parts go around, each rank adds its own; then sums go around. 2(N-1) rounds between neighbours.
  kRing,
  // Halves, quarters, ... are exchanged with ever nearer ranks, then back. 2 log2 N rounds; if N is
  // not a power of two, some ranks hand their data to a neighbour first. Only for allReduce(); the
  // other collectives fall back to direct.
  kHalvingDoubling,
};

std::string_view name(Method method);
Result<Method> parseMethod(std::string_view text);

}  // namespace sluice::collective
