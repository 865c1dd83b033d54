#include <sluice/algorithms/gossip/meeting.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include <sluice/algorithms/gossip/topology.h>
#include <sluice/base/testing/short_tests.h>
#include <sluice/data/kernel/element.h>

namespace sluice::gossip {
namespace {

double valueOf(PairMeeting& meeting) {
  return kernel::loadAt<double>(meeting.live().data(), 0);
}
PairMeeting meetingAt(double x) {
  return {DType::kF64, std::as_bytes(std::span(&x, 1))};
}

TEST(PairMeeting, BothEndInTheMiddle) {
  PairMeeting active = meetingAt(10);
  PairMeeting passive = meetingAt(2);
  const auto sent = active.begin();
  std::vector<std::byte> message(sent.begin(), sent.end());
  passive.meet(message);
  EXPECT_EQ(valueOf(passive), 6);
  active.end(message);
  EXPECT_EQ(valueOf(active), 6);
  EXPECT_FALSE(active.isUnderWay());
}

// Workers on a graph: each turn an active one begins a meeting, a message arrives, or a gradient
// changes somebody's parameters in the middle of it all. Whatever the order, everybody who has
// begun a meeting ends it, and the sum changes by the gradients only.
class Schedule final {
 public:
  Schedule(uint32_t seed, const GossipGraph& topology) : random_(seed), topology_(topology) {
    const auto workers = static_cast<uint32_t>(topology.neighbours.size());
    for (uint32_t w = 0; w < workers; ++w) {
      const auto x = static_cast<double>(random_() % 1000);
      expected_ += x;
      workers_.push_back(meetingAt(x));
    }
    lanes_.resize(size_t{workers} * workers);
  }

  void run(int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      const auto worker = static_cast<uint32_t>(random_() % workers_.size());
      switch (random_() % 4) {
        case 0: begin(worker); break;
        case 1: step(worker); break;
        default: arriveSomewhere();
      }
    }
    while (arriveSomewhere()) {
    }
  }
  size_t begun() const { return begun_; }
  size_t underWay() const {
    return static_cast<size_t>(
        std::ranges::count_if(workers_, [](const PairMeeting& each) { return each.isUnderWay(); }));
  }
  double sum() {
    double sum = 0;
    for (PairMeeting& worker : workers_) sum += valueOf(worker);
    return sum;
  }
  double expected() const { return expected_; }

 private:
  using Message = std::vector<std::byte>;
  std::deque<Message>& lane(uint32_t from, uint32_t to) {
    return lanes_[from * workers_.size() + to];
  }

  void begin(uint32_t worker) {
    const auto& neighbours = topology_.neighbours[worker];
    if (!isActive(worker) || neighbours.empty() || workers_[worker].isUnderWay()) return;
    const auto sent = workers_[worker].begin();
    lane(worker, neighbours[random_() % neighbours.size()]).emplace_back(sent.begin(), sent.end());
    ++begun_;
  }
  void step(uint32_t worker) {
    const double x = valueOf(workers_[worker]) - 3;
    kernel::storeAt(workers_[worker].live().data(), 0, x);
    expected_ -= 3;
  }
  bool arriveSomewhere() {
    const size_t first = random_() % lanes_.size();
    for (size_t i = 0; i < lanes_.size(); ++i) {
      const size_t number = (first + i) % lanes_.size();
      if (lanes_[number].empty()) continue;
      const auto from = static_cast<uint32_t>(number / workers_.size());
      const auto to = static_cast<uint32_t>(number % workers_.size());
      Message message = std::move(lanes_[number].front());
      lanes_[number].pop_front();
      if (isActive(to)) {
        workers_[to].end(message);
      } else {
        workers_[to].meet(message);
        lane(to, from).push_back(std::move(message));
      }
      return true;
    }
    return false;
  }

  std::mt19937 random_;
  const GossipGraph& topology_;
  std::vector<PairMeeting> workers_;
  std::vector<std::deque<Message>> lanes_;  // by sender, then receiver
  double expected_ = 0;
  size_t begun_ = 0;
};

TEST(PairMeeting, NobodyIsLeftWaitingAndTheMeanIsKeptInEverySchedule) {
  const uint32_t schedules = base::testsAreShort() ? 5'000 : 100'000;
  std::map<std::pair<GraphShape, uint32_t>, GossipGraph> topologies;
  for (const GraphShape shape : {GraphShape::kRing, GraphShape::kTorus, GraphShape::kExponential,
                                 GraphShape::kRandomRegular}) {
    for (uint32_t workers = 2; workers <= 9; ++workers)
      topologies[{shape, workers}] = makeTopology(shape, workers, 1);
  }
  size_t begun = 0;
  for (uint32_t seed = 0; seed < schedules; ++seed) {
    const auto shape = static_cast<GraphShape>(seed % 4);
    const uint32_t workers = 2 + seed / 4 % 8;
    Schedule schedule(seed, topologies[{shape, workers}]);
    schedule.run(40);
    ASSERT_EQ(schedule.underWay(), 0U)
        << "seed " << seed << ", " << workers << " workers, " << name(shape);
    ASSERT_NEAR(schedule.sum(), schedule.expected(), 1e-6 * std::abs(schedule.expected()) + 1e-9)
        << "seed " << seed;
    begun += schedule.begun();
  }
  EXPECT_GT(begun, size_t{schedules});  // or nothing has been shown
}

}  // namespace
}  // namespace sluice::gossip
