// The messages that kvstore, slicing, p3 and sluice put on the wire, and their order: it is what
// tells these four apart, since all of them end with the same numbers. tests/mutation/wire.py plants
// faults and checks that these tests find them.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/server/server_options.h>
#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/algorithms/words.h>
#include <sluice/base/options.h>

namespace sluice::algorithms {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Words = std::vector<std::string>;

// A job whose messages are written down as ranks hear them: "push third.4" is the fifth slice of
// the tensor `third`. Workers come first, dedicated servers last.
class WireJob final {
 public:
  WireJob(std::string_view algorithm, uint32_t workers, uint32_t servers,
          std::vector<Tensor> tensors, std::string_view updateRate = "0bit")
      : world_(algorithm, fmt::format("dedicated:{}", servers), workers + servers,
               std::move(tensors), "sgd:lr=1", /*updatesWaitForWord=*/false, configOf(updateRate)) {
    for (auto& rank : world_.ranks()) {
      rank->listen([this](const wire::Header& header) {
        heard_.push_back({header.source, header.destination, wordsFor(header)});
      });
    }
  }

  // Hands over the gradients of these tensors, in this order. Nothing else runs.
  void backward(uint32_t worker, const std::vector<uint32_t>& tensors) {
    for (const uint32_t t : tensors) {
      const std::vector<float> ones(world_.plan().model().tensors[t].elements, 1);
      world_.ranks()[worker]->gradientReady(TensorId{t}, std::as_bytes(std::span(ones)));
    }
  }
  // Runs everything that is ready at this rank, and at no other.
  void run(uint32_t rank) { world_.ranks()[rank]->loop().runReady(); }
  bool runOne(uint32_t rank) { return world_.ranks()[rank]->loop().runOne(); }
  // Lets time pass at this rank, which runs what is due.
  void advance(uint32_t rank, Duration by) { world_.ranks()[rank]->loop().advance(by); }
  void runAll() {
    std::mt19937 random(1);
    runShuffled(world_.ranks(), random);
  }

  // Returns the messages from one rank to another, in the order of their arrival.
  Words between(uint32_t from, uint32_t to) const {
    Words words;
    for (const Heard& each : heard_) {
      if (each.from == Rank{from} && each.to == Rank{to}) words.push_back(each.words);
    }
    return words;
  }
  size_t countFrom(uint32_t from) const {
    return static_cast<size_t>(std::ranges::count(heard_, Rank{from}, &Heard::from));
  }
  // Returns the number of messages of each kind.
  std::map<std::string, size_t> kinds() const {
    std::map<std::string, size_t> count;
    for (const Heard& each : heard_) ++count[each.words.substr(0, each.words.find(' '))];
    return count;
  }

 private:
  struct Heard {
    Rank from;
    Rank to;
    std::string words;
  };

  // Four slices of three f32 elements, for those who go by credit.
  static base::Config configOf(std::string_view updateRate) {
    base::Config config;
    SLUICE_CHECK(config.set(option::kCredit, "48").isOk());
    SLUICE_CHECK(config.set(option::kUpdateRate, updateRate).isOk());
    return config;
  }

  std::string wordsFor(const wire::Header& header) const {
    std::string_view kind = "publish";
    if (header.stage == Stage::kPush) kind = "push";
    if (has(header.flags, collecting::kNotify)) kind = "notify";
    if (has(header.flags, collecting::kPull)) kind = "pull";
    const uint32_t first = index(world_.plan().slicesOf(header.tensor).front().id);
    return fmt::format("{} {}.{}", kind, world_.plan().model()[header.tensor].name,
                       index(header.slice) - first);
  }

  std::vector<Heard> heard_;  // outlives the world, which also hears messages as it ends
  SteppedWorld world_;
};

// Ten slices each.
std::vector<Tensor> threeLayers() {
  return {{"first", 30, DType::kF32}, {"second", 30, DType::kF32}, {"third", 30, DType::kF32}};
}

// Returns "push third.0", ..., "push third.9" for each of the names.
Words wordsOf(std::string_view kind, const std::vector<std::string>& names) {
  Words words;
  for (const std::string& name : names) {
    for (int slice = 0; slice < 10; ++slice)
      words.push_back(fmt::format("{} {}.{}", kind, name, slice));
  }
  return words;
}

TEST(WireOrder, KvstoreSendsLayersInTheOrderOfBackward) {
  // Larger than any window that an algorithm has, so that a window would be seen.
  constexpr uint64_t kLarge = 400'000;
  WireJob job("kvstore", 1, 1,
              {{"first", kLarge, DType::kF32},
               {"second", kLarge, DType::kF32},
               {"third", kLarge, DType::kF32}});
  job.backward(0, {2, 1, 0});
  job.run(0);
  job.run(1);
  EXPECT_THAT(job.between(0, 1), ElementsAre("push third.0", "push second.0", "push first.0"));
}

TEST(WireOrder, KvstorePullsALayerWhenItsLastPartIsNotified) {
  WireJob job("kvstore", 2, 2, {{"large", plan::kKvstoreSplitFrom, DType::kF32}});
  for (const uint32_t worker : {0U, 1U}) {
    job.backward(worker, {0});
    job.run(worker);
  }
  job.run(2);
  job.run(0);
  job.run(2);
  EXPECT_THAT(job.between(2, 0), ElementsAre("notify large.0"));
  EXPECT_THAT(job.between(0, 2), ElementsAre("push large.0")) << "pulled before the last notice";
  job.run(3);
  job.run(0);
  job.run(2);
  job.run(3);
  EXPECT_THAT(job.between(0, 2), ElementsAre("push large.0", "pull large.0"));
  EXPECT_THAT(job.between(0, 3), ElementsAre("push large.1", "pull large.1"));
  job.run(0);
  EXPECT_THAT(job.between(2, 0), ElementsAre("notify large.0", "publish large.0"));
  EXPECT_THAT(job.between(3, 0), ElementsAre("notify large.1", "publish large.1"));
  job.runAll();
  EXPECT_EQ(job.kinds(), (std::map<std::string, size_t>{
                             {"push", 4}, {"notify", 4}, {"pull", 4}, {"publish", 4}}));
}

TEST(WireOrder, KvstorePartsPullsEachPartAtItsNotice) {
  WireJob job("kvstore-parts", 2, 2, {{"large", plan::kKvstoreSplitFrom, DType::kF32}});
  for (const uint32_t worker : {0U, 1U}) {
    job.backward(worker, {0});
    job.run(worker);
  }
  for (const uint32_t rank : {2U, 0U, 2U, 0U}) job.run(rank);
  EXPECT_THAT(job.between(0, 2), ElementsAre("push large.0", "pull large.0"));
  EXPECT_THAT(job.between(2, 0), ElementsAre("notify large.0", "publish large.0"));
  EXPECT_THAT(job.between(3, 0), IsEmpty());
}

TEST(WireOrder, SlicingSendsSlicesInTheOrderOfBackwardWithoutAWindow) {
  WireJob job("slicing", 1, 1, threeLayers());
  job.backward(0, {2, 1, 0});
  job.run(0);
  // Only now does the server read, so the worker has seen no completion and sent everything.
  job.run(1);
  EXPECT_EQ(job.between(0, 1), wordsOf("push", {"third", "second", "first"}));
}

// The first four slices are beyond recall when the more urgent layers come.
TEST(WireOrder, P3SendsTheMostUrgentLayerFirst) {
  for (const char* algorithm : {"p3", "sluice"}) {
    WireJob job(algorithm, 1, 1, threeLayers());
    job.backward(0, {2, 1, 0});
    while (job.runOne(0) || job.runOne(1)) {
    }
    const Words all = wordsOf("push", {"third", "first", "second"});
    Words expected(all.begin(), all.begin() + 4);                  // of the third
    expected.insert(expected.end(), all.begin() + 10, all.end());  // the first, then the second
    expected.insert(expected.end(), all.begin() + 4, all.begin() + 10);
    EXPECT_EQ(job.between(0, 1), expected) << algorithm;
  }
}

TEST(WireOrder, P3AndSluiceHaveOneWindowForAllServers) {
  for (const uint32_t servers : {1U, 2U}) {
    for (const char* algorithm : {"p3", "sluice"}) {
      WireJob job(algorithm, 1, servers, threeLayers());
      job.backward(0, {2, 1, 0});
      job.run(0);
      for (uint32_t server = 1; server <= servers; ++server) job.run(server);
      EXPECT_EQ(job.countFrom(0), 4U) << algorithm << " with " << servers << " servers";
    }
  }
}

// Nobody is told and nobody asks: the result of a slice leaves while its tensor's next slice is
// still on its way to the server.
TEST(WireOrder, SlicingP3AndSluicePublishEachSliceAtOnce) {
  for (const char* algorithm : {"slicing", "p3", "sluice"}) {
    SCOPED_TRACE(algorithm);
    WireJob job(algorithm, 2, 1, {{"only", 30, DType::kF32}});
    job.backward(1, {0});
    job.runAll();  // every part of worker 1 is at the server
    job.backward(0, {0});
    Words expected;
    while (job.runOne(0)) {  // sends one message at most
      job.run(2);
      job.run(1);
      if (job.between(0, 2).size() > expected.size())
        expected.push_back(fmt::format("publish only.{}", expected.size()));
      const Words heard = job.between(2, 1);
      ASSERT_LE(heard.size(), expected.size());
      ASSERT_TRUE(std::equal(heard.begin(), heard.end(), expected.begin()));
      ASSERT_LE(expected.size() - heard.size(), 4U) << "more than the server's own window";
    }
    EXPECT_EQ(expected.size(), 10U);
    job.runAll();
    EXPECT_EQ(job.between(2, 1), expected);
    EXPECT_EQ(job.kinds(), (std::map<std::string, size_t>{{"push", 20}, {"publish", 20}}));
  }
}

// P3's server takes what has arrived by priority, the others take it as it comes.
TEST(WireOrder, UpdatesThatTakeTimeAreInTheAlgorithmsOrder) {
  const Words byBackward = wordsOf("publish", {"third", "second", "first"});
  const Words byUrgency = wordsOf("publish", {"first", "second", "third"});
  for (const char* algorithm : {"slicing", "p3", "sluice"}) {
    WireJob job(algorithm, 1, 1, threeLayers(), /*updateRate=*/"12B/s");  // a slice in a second
    job.backward(0, {2, 1, 0});
    job.runAll();
    EXPECT_EQ(job.between(0, 1).size(), 30U) << algorithm;
    EXPECT_THAT(job.between(1, 0), IsEmpty()) << algorithm;
    for (size_t second = 1; second <= 30; ++second) {
      job.advance(1, std::chrono::seconds(1));
      job.runAll();
      EXPECT_EQ(job.between(1, 0).size(), second) << algorithm;
    }
    Words expected = byBackward;
    if (algorithm != std::string_view("slicing")) {
      // The first slice that came is under way before any other is there.
      expected = byUrgency;
      std::ranges::rotate(expected, expected.begin() + 20);
      std::rotate(expected.begin() + 1, expected.begin() + 10, expected.end());
    }
    EXPECT_EQ(job.between(1, 0), expected) << algorithm;
  }
}

}  // namespace
}  // namespace sluice::algorithms
