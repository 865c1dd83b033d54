#include <tools/probe/rounds.h>

#include <algorithm>

namespace sluice::probe {

// The circle method of a tournament: with an odd number of ranks, one that is not there joins in.
std::vector<uint32_t> chooseRounds(uint32_t ranks, uint32_t most) {
  if (ranks < 2) return {};
  const uint32_t all = ranks + ranks % 2 - 1;
  const uint32_t wanted = std::clamp(most, 1U, all);
  std::vector<uint32_t> rounds;
  for (uint32_t i = 0; i < wanted; ++i)
    rounds.push_back(static_cast<uint32_t>(uint64_t{i} * all / wanted));
  return rounds;
}

std::optional<uint32_t> partnerOf(uint32_t rank, uint32_t round, uint32_t ranks) {
  const uint32_t all = ranks + ranks % 2 - 1;
  uint32_t partner = (2 * round + all - rank % all) % all;
  if (rank == all) {
    partner = round;
  } else if (rank == round) {
    partner = all;
  }
  if (partner >= ranks || partner == rank) return std::nullopt;
  return partner;
}

}  // namespace sluice::probe
