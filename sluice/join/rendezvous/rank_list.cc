#include <sluice/join/rendezvous/rank_list.h>

#include <sluice/base/check.h>

namespace sluice::rendezvous {

std::string describeRanks(std::span<const Rank> ranks) {
  constexpr size_t kMostPieces = 12;
  SLUICE_CHECK(!ranks.empty());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  size_t pieces = 0;
  for (size_t first = 0; first < ranks.size();) {
    // The text is for people. It must stay a line even if thousands of ranks are meant.
    if (pieces == kMostPieces) return text + fmt::format(" and {} more", ranks.size() - first);
    size_t last = first;
    while (last + 1 < ranks.size() && index(ranks[last + 1]) == index(ranks[last]) + 1) ++last;
    if (pieces++ > 0) text += ", ";
    text += last == first ? fmt::format("{}", index(ranks[first]))
                          : fmt::format("{}-{}", index(ranks[first]), index(ranks[last]));
    first = last + 1;
  }
  return text;
}

}  // namespace sluice::rendezvous
