#include <sluice/data/collective/schedule.h>

#include <bit>

#include <sluice/base/check.h>

namespace sluice::collective {
namespace {

Schedule concat(Schedule first, const Schedule& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

// Each rank begins with another destination, so that no rank is sent to by all at once.
template <typename F>
void forEachOther(uint32_t self, uint32_t world, F&& f) {
  for (uint32_t distance = 1; distance < world; ++distance) f((self + distance) % world);
}

Schedule directScatter(uint32_t self, uint32_t world) {
  ScheduleRound round{.arriving = Arriving::kContributions};
  forEachOther(self, world, [&](uint32_t other) {
    round.sends.push_back({Rank{other}, {other, 1}});
    round.receives.push_back({Rank{other}, {self, 1}});
  });
  return {round};
}

Schedule directGather(uint32_t self, uint32_t world) {
  ScheduleRound round{.arriving = Arriving::kResults, .sendsResults = true};
  forEachOther(self, world, [&](uint32_t other) {
    round.sends.push_back({Rank{other}, {self, 1}});
    round.receives.push_back({Rank{other}, {other, 1}});
  });
  return {round};
}

// In round k rank r passes part r-k-1 on; after N-1 rounds it holds the sum of part r.
Schedule ringScatter(uint32_t self, uint32_t world) {
  Schedule schedule;
  const Rank next{(self + 1) % world};
  const Rank previous{(self + world - 1) % world};
  for (uint32_t k = 0; k + 1 < world; ++k) {
    const uint32_t passedOn = (self + 2 * world - k - 1) % world;
    const uint32_t received = (passedOn + world - 1) % world;
    schedule.push_back(
        {{{next, {passedOn, 1}}}, {{previous, {received, 1}}}, Arriving::kContributions});
  }
  return schedule;
}

Schedule ringGather(uint32_t self, uint32_t world) {
  Schedule schedule;
  const Rank next{(self + 1) % world};
  const Rank previous{(self + world - 1) % world};
  for (uint32_t k = 0; k + 1 < world; ++k) {
    const uint32_t passedOn = (self + world - k) % world;
    const uint32_t received = (passedOn + world - 1) % world;
    schedule.push_back(
        {{{next, {passedOn, 1}}}, {{previous, {received, 1}}}, Arriving::kResults, true});
  }
  return schedule;
}

// The greatest power of two of ranks takes part. The `extra` others are the even ones of pairs
// among the first 2*extra ranks: each hands all its data to its odd neighbour first, and gets the
// result from it at the end.
class HalvingDoubling final {
 public:
  HalvingDoubling(uint32_t self, uint32_t world)
      : self_(self), world_(world), core_(std::bit_floor(world)), extra_(world - core_) {}

  Schedule schedule() const {
    const bool isPaired = self_ < 2 * extra_;
    const Parts everything{0, world_};
    if (isPaired && self_ % 2 == 0) {
      const Rank neighbour{self_ + 1};
      return {{{{neighbour, everything}}, {}}, {{}, {{neighbour, everything}}, Arriving::kResults}};
    }
    Schedule schedule;
    if (isPaired)
      schedule.push_back({{}, {{Rank{self_ - 1}, everything}}, Arriving::kContributions});
    schedule = concat(std::move(schedule), core(isPaired ? self_ / 2 : self_ - extra_));
    if (isPaired)
      schedule.push_back({{{Rank{self_ - 1}, everything}}, {}, Arriving::kResults, true});
    return schedule;
  }

 private:
  // Returns the rounds of a rank by its `place` among those that take part. It keeps ever smaller
  // runs of parts, then gathers them again.
  Schedule core(uint32_t place) const {
    Schedule halving;
    Schedule doubling;
    uint32_t first = 0;  // of core_ shares, each a run of parts
    for (uint32_t size = core_; size > 1; size /= 2) {
      // Both halves of the algorithm come from one loop: the doubling undoes the halving in
      // reverse order, giving back what was kept and taking what was given away.
      const uint32_t half = size / 2;
      const bool isUpper = (place & half) != 0;
      const Rank partner = rankAt(place ^ half);
      const Parts lower = partsOf(first, half);
      const Parts upper = partsOf(first + half, half);
      const Parts kept = isUpper ? upper : lower;
      const Parts given = isUpper ? lower : upper;
      halving.push_back({{{partner, given}}, {{partner, kept}}, Arriving::kContributions});
      doubling.insert(doubling.begin(),
                      {{{partner, kept}}, {{partner, given}}, Arriving::kResults, true});
      if (isUpper) first += half;
    }
    return concat(std::move(halving), doubling);
  }
  Rank rankAt(uint32_t place) const {
    return Rank{place < extra_ ? 2 * place + 1 : place + extra_};
  }
  Parts partsOf(uint32_t firstShare, uint32_t shares) const {
    const auto begin = [&](uint32_t share) {
      return static_cast<uint32_t>(static_cast<uint64_t>(share) * world_ / core_);
    };
    return {begin(firstShare), begin(firstShare + shares) - begin(firstShare)};
  }

  const uint32_t self_;
  const uint32_t world_;
  const uint32_t core_;
  const uint32_t extra_;
};

}  // namespace

Schedule reduceScatterSchedule(Method method, Rank rank, uint32_t world) {
  SLUICE_CHECK(index(rank) < world, rank, world);
  if (world == 1) return {};
  return method == Method::kRing ? ringScatter(index(rank), world)
                                 : directScatter(index(rank), world);
}

Schedule allGatherSchedule(Method method, Rank rank, uint32_t world) {
  SLUICE_CHECK(index(rank) < world, rank, world);
  if (world == 1) return {};
  return method == Method::kRing ? ringGather(index(rank), world)
                                 : directGather(index(rank), world);
}

Schedule allReduceSchedule(Method method, Rank rank, uint32_t world) {
  if (method == Method::kHalvingDoubling && world > 1)
    return HalvingDoubling(index(rank), world).schedule();
  return concat(reduceScatterSchedule(method, rank, world), allGatherSchedule(method, rank, world));
}

Schedule broadcastSchedule(Rank root, Rank rank, uint32_t world) {
  // A binary tree rotated so that the root has place 0: the data of a strip goes down one level
  // while the next strip comes in, so all levels are busy.
  const uint32_t place = (index(rank) + world - index(root)) % world;
  const auto rankAt = [&](uint32_t p) { return Rank{(p + index(root)) % world}; };
  const Parts everything{0, world};
  ScheduleRound receive;
  ScheduleRound send{.sendsResults = true};
  if (place > 0) receive.receives.push_back({rankAt((place - 1) / 2), everything});
  for (const uint32_t child : {2 * place + 1, 2 * place + 2}) {
    if (child < world) send.sends.push_back({rankAt(child), everything});
  }
  return {receive, send};
}

}  // namespace sluice::collective
