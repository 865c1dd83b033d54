#include <tools/trace/flight_reader.h>

#include <cstring>
#include <random>

#include <gtest/gtest.h>

#include <tools/trace/testing/flight_story.h>

namespace sluice::flight {
namespace {

std::vector<std::byte> copyOf(const FlightStory& story) {
  return {story.bytes().begin(), story.bytes().end()};
}

void put(std::vector<std::byte>& bytes, size_t word, uint64_t value) {
  std::memcpy(bytes.data() + word * sizeof value, &value, sizeof value);
}

TEST(FlightReader, ReadsWhatARingHolds) {
  FlightStory story(1);
  story.waits(5, "fc.weight", 12).says(9, EventKind::kPeerLost, "rank 2 is lost", {.peer = 2});
  const SavedFlight saved = story.saved();
  EXPECT_EQ(saved.rank, 1);
  EXPECT_EQ(saved.worldSize, 3);
  EXPECT_EQ(saved.job, "story");
  EXPECT_FALSE(saved.host.empty());
  EXPECT_TRUE(saved.isMapped);
  EXPECT_EQ(saved.state, RunState::kRunning);
  ASSERT_EQ(saved.events.size(), 3);
  EXPECT_EQ(saved.nameOf(saved.events[0]), "model");
  EXPECT_EQ(saved.nameOf(saved.events[1]), "fc.weight");
  EXPECT_EQ(saved.events[1].step, 12);
  EXPECT_EQ(saved.textOf(saved.events[2]), "rank 2 is lost");
  EXPECT_EQ(saved.events[2].peer, 2);
  EXPECT_EQ(saved.lost, 0);
  EXPECT_EQ(saved.damaged, 0);
}

TEST(FlightReader, OfAFullRingTheLatestAreThereInOrder) {
  FlightStory story(0);
  constexpr uint64_t kMany = 5000;  // about three times what fits
  for (uint64_t step = 0; step < kMany; ++step) story.begins(1, step);
  const SavedFlight saved = story.saved();
  EXPECT_EQ(saved.events.size() + saved.lost, kMany + 1);
  for (size_t i = 0; i < saved.events.size(); ++i)
    EXPECT_EQ(saved.events[i].step, kMany - saved.events.size() + i);
}

TEST(FlightReader, AnEventThatWasNotFinishedIsLeftOut) {
  FlightStory story(0);
  story.begins(1, 1).begins(2, 2);
  auto bytes = copyOf(story);
  const auto words = story.ring().words();
  put(bytes, words[kRecordsAt] + kRecordWords, 0);  // the head of the second
  const auto saved = parseFlight(bytes);
  ASSERT_TRUE(saved.isOk());
  EXPECT_EQ(saved->events.size(), 2);
  EXPECT_EQ(saved->damaged, 1);
}

TEST(FlightReader, NamesWhatIsNoFileOfThisVersion) {
  FlightStory story(0);
  EXPECT_FALSE(parseFlight({}).isOk());
  auto bytes = copyOf(story);
  put(bytes, kVersionAndHeaderWords, wordOf(2, kHeaderWords));
  EXPECT_NE(parseFlight(bytes).status().message().find("version 2"), std::string::npos);
  bytes = copyOf(story);
  put(bytes, kMagicWord, 1);
  EXPECT_EQ(parseFlight(bytes).status().code(), Code::kInvalidArgument);
  bytes = copyOf(story);
  put(bytes, kRankAndWorld, wordOf(3, 3));
  EXPECT_EQ(parseFlight(bytes).status().code(), Code::kDataLoss);
}

TEST(FlightReader, ATruncatedFileGivesWhatIsThere) {
  FlightStory story(0);
  for (uint64_t step = 0; step < 100; ++step) story.begins(1, step);
  const auto bytes = copyOf(story);
  size_t most = 0;
  for (size_t size = 0; size <= bytes.size(); size += 8) {
    const auto saved = parseFlight(std::span(bytes).first(size));
    EXPECT_EQ(saved.isOk(), size >= kHeaderWords * 8);
    if (!saved.isOk()) continue;
    EXPECT_GE(saved->events.size(), most);
    most = saved->events.size();
  }
  EXPECT_EQ(most, 101);
}

TEST(FlightReader, BytesOfAStrangerDoNoHarm) {
  FlightStory story(1);
  for (uint64_t step = 0; step < 50; ++step) story.waits(1, "fc.weight", step).hears(2, 0, step);
  story.says(5, EventKind::kFailed, "rank 2 is lost");
  const auto good = copyOf(story);
  std::mt19937_64 random(1);
  constexpr std::array kValues{uint64_t{0},       uint64_t{1},       ~uint64_t{0},
                               uint64_t{1} << 63, uint64_t{1} << 32, uint64_t{0xffff'ffff}};
  for (size_t word = 2; word < kHeaderWords; ++word) {
    for (const uint64_t value : kValues) {
      auto bytes = good;
      put(bytes, word, value);
      (void)parseFlight(bytes);
    }
  }
  for (int round = 0; round < 2000; ++round) {
    auto bytes = good;
    for (int i = 0; i < 8; ++i)
      put(bytes, 2 + random() % (bytes.size() / 8 - 2), random() >> (random() % 64));
    const auto saved = parseFlight(bytes);
    if (!saved.isOk()) continue;
    for (const SavedEvent& event : saved->events) {
      (void)saved->nameOf(event);
      (void)saved->textOf(event);
    }
  }
}

TEST(FlightReader, TextsCannotMoveATerminalsCursor) {
  FlightStory story(0);
  story.waits(1, "\x1b[2J", 1);
  const SavedFlight saved = story.saved();
  EXPECT_EQ(saved.nameOf(saved.events.back()).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace sluice::flight
