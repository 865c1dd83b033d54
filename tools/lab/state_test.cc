#include <tools/lab/state.h>

#include <fstream>

#include <gtest/gtest.h>

namespace sluice::lab {
namespace {

State sample() {
  State state;
  state.layout.name = "sample";
  state.layout.hosts = 3;
  state.layout.etcd = 1;
  state.layout.delay = std::chrono::milliseconds(10);
  state.layout.congestionControl = "cubic";
  state.complete = true;
  state.rates = {Rate{1'000'000'000}, Rate{100'000'000}, Rate{2'500'000'000}};
  state.faults.cutHosts = {2};
  state.faults.cutPairs = {{0, 1}};
  state.faults.dropPercent = {{1, 2.5}};
  return state;
}

class StateStoreTest : public ::testing::Test {
 protected:
  StateStoreTest() : store_(::testing::TempDir() + "sluice_state_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(store_.directory());
  }
  ~StateStoreTest() override { std::filesystem::remove_all(store_.directory()); }

  StateStore store_;
};

TEST(State, SurvivesJson) {
  const auto back = stateFromJson(toJson(sample()));
  ASSERT_TRUE(back.isOk()) << back.status().toString();
  EXPECT_EQ(*back, sample());
}

TEST(State, RefusesWhatDoesNotFitTogether) {
  State state = sample();
  state.rates.pop_back();
  EXPECT_EQ(stateFromJson(toJson(state)).status().code(), Code::kDataLoss);
  for (const char* text : {"", "{}", "[]", "{\"name\": 3}"})
    EXPECT_FALSE(stateFromJson(text).isOk()) << text;
}

TEST_F(StateStoreTest, WritesReadsListsAndRemoves) {
  EXPECT_TRUE(store_.labs().empty());
  EXPECT_EQ(store_.read("sample").status().code(), Code::kNotFound);
  ASSERT_TRUE(store_.write(sample()).isOk());
  EXPECT_EQ(store_.labs(), std::vector<std::string>{"sample"});
  EXPECT_EQ(*store_.read("sample"), sample());
  std::ofstream(store_.directory() / "sample.12.key") << "left by a killed run";
  std::ofstream(store_.directory() / "samples.json") << "of another lab";
  ASSERT_TRUE(store_.remove("sample").isOk());
  EXPECT_EQ(store_.labs(), std::vector<std::string>{"samples"});
  EXPECT_FALSE(std::filesystem::exists(store_.directory() / "sample.12.key"));
}

TEST_F(StateStoreTest, ADamagedFileSaysHowToClearIt) {
  std::ofstream(store_.directory() / "sample.json") << "{";
  const auto state = store_.read("sample");
  EXPECT_NE(state.status().message().find("sluice lab down --name sample"), std::string::npos);
}

}  // namespace
}  // namespace sluice::lab
