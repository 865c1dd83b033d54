#include <tools/probe/facts.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sluice/base/units.h>
#include <tools/probe/network_file.h>

namespace sluice::probe {
namespace {

NetworkFacts fourHosts() {
  NetworkFacts facts;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    RankFacts own;
    own.name = std::string(1, static_cast<char>('a' + rank));
    own.address = "10.0.0." + std::to_string(rank + 1);
    own.isEncrypted = true;
    own.outAllBits = own.inAllBits = 900e6;
    for (uint32_t to = 0; to < 4; ++to) {
      if (to == rank) continue;
      PairFacts pair;
      pair.to = to;
      pair.bitsPerSecond = rank == 2 || to == 2 ? 287e6 : 900e6;
      pair.roundTrip = 100e-6;
      pair.segments = 1000;
      own.pairs.push_back(pair);
    }
    facts.ranks.push_back(own);
  }
  facts.ranks[2].outAllBits = facts.ranks[2].inAllBits = 280e6;
  return facts;
}

TEST(Facts, ComeBackAsTheyWere) {
  RankFacts own = fourHosts().ranks[1];
  own.pairs[2].sharedBitsPerSecond = 3e8;
  own.pairs[0].problem = "no answer";
  own.pairs[1].control = "cubic";
  own.codecCpuPerGb = {{"fp16", 0.5}};
  own.compute = {.cpuSeconds = 1, .totalCpuSeconds = 2, .totalSeconds = 3};
  const auto back = decodeRankFacts(encode(own), 4);
  ASSERT_TRUE(back.isOk());
  EXPECT_EQ(encode(*back), encode(own));
}

TEST(Facts, SurviveWhatAnotherRankSends) {
  EXPECT_FALSE(decodeRankFacts("nonsense", 4).isOk());
  const auto odd = decodeRankFacts(
      R"({"pairs": [{"to": 9}, 3, {"to": 1, "bits_per_s": "x"}], "codec_cpu_s_per_gb": 4,
          "host": [], "encrypted": 1})",
      4);
  ASSERT_TRUE(odd.isOk());
  for (const PairFacts& pair : odd->pairs) EXPECT_LT(pair.to, 4U);
  EXPECT_EQ(odd->name, "");
}

TEST(NetworkFile, NamesTheUsualLinkAndTheHostsThatDiffer) {
  const auto file = networkFile(fourHosts());
  ASSERT_TRUE(file.isOk());
  EXPECT_EQ((*file)["rate"], "941mbit");  // 900 * 1514 / 1448
  EXPECT_EQ((*file)["latency"], "50us");
  EXPECT_EQ((*file)["encrypted"], true);
  EXPECT_EQ((*file)["names"].size(), 4U);
  EXPECT_EQ((*file)["hosts"].size(), 1U);
  EXPECT_EQ((*file)["hosts"]["2"]["out"], "300mbit");
  EXPECT_EQ((*file)["hosts"]["2"]["in"], "300mbit");
  EXPECT_TRUE(base::parseRate((*file)["rate"].get<std::string>()).isOk());
}

TEST(NetworkFile, AHostThatIsSlowOnlyWhenAllSendHasThatRate) {
  NetworkFacts facts = fourHosts();
  facts.ranks[1].inAllBits = 500e6;
  const auto file = networkFile(facts);
  ASSERT_TRUE(file.isOk());
  EXPECT_EQ((*file)["hosts"]["1"]["in"], "523mbit");
  EXPECT_EQ((*file)["hosts"]["1"]["out"], "941mbit");
}

TEST(NetworkFile, NeedsARate) {
  NetworkFacts facts = fourHosts();
  for (auto& rank : facts.ranks) rank.pairs.clear();
  EXPECT_EQ(networkFile(facts).status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace sluice::probe
