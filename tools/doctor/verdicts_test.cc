#include <tools/doctor/verdicts.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Four hosts at 1 Gbit/s with nothing wrong.
CaseFile healthyFile() {
  CaseFile file;
  file.network.emplace();
  for (uint32_t rank = 0; rank < 4; ++rank) {
    HostReport host;
    host.version = "0.1.0";
    host.torch = "2.6.0";
    host.host = "node" + std::to_string(rank);
    host.interface = "eth0";
    host.address = host.routedAddress = "10.0.0." + std::to_string(rank + 1);
    host.masterName = "head";
    host.master = {"10.0.0.1"};
    host.settings = {{"encrypt", "auto"}};
    host.receiveBuffer = 6 << 20;
    host.sendBuffer = 4 << 20;
    file.hosts.push_back(host);
    file.clocks.push_back({.offset = 0.001 * rank, .error = 0.002});
    file.unreachable.emplace_back();
    probe::RankFacts facts;
    facts.address = host.address;
    facts.compute = {.cpuSeconds = 0.015, .totalCpuSeconds = 0.12, .totalSeconds = 0.13};
    for (uint32_t to = 0; to < 4; ++to) {
      if (to == rank) continue;
      probe::PairFacts pair;
      pair.to = to;
      pair.largePasses = true;
      pair.roundTrip = 100e-6;
      pair.loadedRoundTrip = 0.1;  // cubic fills the deep queue of a shaped link
      pair.bitsPerSecond = 940e6;
      pair.segments = 30000;
      pair.resent = 2;
      pair.control = "cubic";
      facts.pairs.push_back(pair);
    }
    file.network->ranks.push_back(facts);
  }
  return file;
}

probe::PairFacts& pairOf(CaseFile& file, uint32_t from, uint32_t to) {
  for (auto& pair : file.network->ranks[from].pairs) {
    if (pair.to == to) return pair;
  }
  ADD_FAILURE() << "no such pair";
  return file.network->ranks[from].pairs.front();
}

std::vector<std::string> codesOf(const std::vector<Finding>& findings) {
  std::vector<std::string> codes;
  for (const Finding& finding : findings) {
    codes.emplace_back(name(finding.fault));
    EXPECT_FALSE(finding.evidence.empty());
    EXPECT_FALSE(finding.remedy.empty());
  }
  return codes;
}

TEST(Verdicts, AHealthyJobHasNoFinding) {
  EXPECT_THAT(codesOf(judge(healthyFile())), IsEmpty());
}

TEST(Verdicts, OneRankAloneHasNoFinding) {
  CaseFile file = healthyFile();
  file.hosts.resize(1);
  file.clocks.clear();
  file.unreachable.clear();
  file.network->ranks.resize(1);
  file.network->ranks[0].pairs.clear();
  EXPECT_THAT(codesOf(judge(file)), IsEmpty());
}

struct PlantedCase {
  std::string code;
  uint32_t rank;
  std::function<void(CaseFile&)> plant;
};

TEST(Verdicts, EveryFaultHasItsOwnCodeAndNoOther) {
  const std::vector<PlantedCase> cases{
      {"other-version", 1, [](CaseFile& file) { file.hosts[1].version = "0.0.1"; }},
      {"other-torch", 3, [](CaseFile& file) { file.hosts[3].torch = "1.9"; }},
      {"other-torch", 3, [](CaseFile& file) { file.hosts[3].torch = ""; }},
      {"other-settings", 2, [](CaseFile& file) { file.hosts[2].settings["encrypt"] = "off"; }},
      {"clock-off", 2, [](CaseFile& file) { file.clocks[2].offset = 90; }},
      {"clock-off", 0,
       [](CaseFile& file) {
         for (uint32_t rank = 1; rank < 4; ++rank) file.clocks[rank].offset = -90;
       }},
      {"blocked-port", 2,
       [](CaseFile& file) {
         file.network.reset();
         for (const uint32_t rank : {0, 1, 3}) file.unreachable[rank][2] = "no answer";
       }},
      {"wrong-interface", 2,
       [](CaseFile& file) {
         file.network.reset();
         file.hosts[2].address = "192.168.9.2";
         for (const uint32_t rank : {0, 1, 3}) file.unreachable[rank][2] = "no route to host";
       }},
      {"resolver", 0,
       [](CaseFile& file) {
         file.network.reset();
         file.hosts[0].master = {"127.0.1.1"};
         file.hosts[0].address = file.hosts[0].routedAddress = "127.0.0.1";
         for (const uint32_t rank : {1, 2, 3}) file.unreachable[rank][0] = "refused";
       }},
      {"mtu-hole", 2,
       [](CaseFile& file) {
         for (const uint32_t rank : {0, 1, 3}) {
           pairOf(file, rank, 2).largePasses = false;
           pairOf(file, rank, 2).bitsPerSecond = 0;
         }
       }},
      {"slow-direction", 2,
       [](CaseFile& file) {
         for (const uint32_t rank : {0, 1, 3}) pairOf(file, 2, rank).bitsPerSecond = 94e6;
       }},
      {"slow-direction", 1, [](CaseFile& file) { pairOf(file, 1, 3).bitsPerSecond = 94e6; }},
      {"slow-link", 2,
       [](CaseFile& file) {
         for (const uint32_t rank : {0, 1, 3})
           pairOf(file, 2, rank).bitsPerSecond = pairOf(file, rank, 2).bitsPerSecond = 94e6;
       }},
      {"packet-loss", 2,
       [](CaseFile& file) {
         for (const uint32_t rank : {0, 1, 3}) {
           pairOf(file, rank, 2).resent = 300;
           pairOf(file, rank, 2).bitsPerSecond = 100e6;
         }
       }},
      {"overfilled-queue", 2,
       [](CaseFile& file) {
         for (const uint32_t rank : {0, 1, 3}) pairOf(file, 2, rank).control = "reno";
       }},
      {"starved-cpu", 2,
       [](CaseFile& file) {
         file.network->ranks[2].compute.totalSeconds = 0.6;
         for (const uint32_t rank : {0, 1, 3}) pairOf(file, 2, rank).bitsPerSecond = 94e6;
       }},
      {"small-buffers", 2,
       [](CaseFile& file) {
         file.hosts[2].receiveBuffer = 16 << 10;
         for (const uint32_t rank : {0, 1, 3}) pairOf(file, rank, 2).bitsPerSecond = 94e6;
       }},
      {"slow-rank", 3, [](CaseFile& file) { file.network->ranks[3].compute.cpuSeconds = 0.03; }},
  };
  for (const auto& [code, rank, plant] : cases) {
    CaseFile file = healthyFile();
    plant(file);
    const auto findings = judge(file);
    EXPECT_THAT(codesOf(findings), ElementsAre(code));
    ASSERT_FALSE(findings.empty()) << code;
    EXPECT_THAT(findings.front().ranks, ElementsAre(rank)) << code;
  }
}

TEST(Verdicts, BuffersMustHoldWhatTheLinkHolds) {
  CaseFile file = healthyFile();
  for (auto& rank : file.network->ranks) {
    for (auto& pair : rank.pairs) pair.roundTrip = 0.1;  // 12 MB on the way
  }
  for (const Finding& finding : judge(file)) EXPECT_EQ(finding.fault, Fault::kSmallBuffers);
  EXPECT_EQ(judge(file).size(), 4U);
}

TEST(Verdicts, EvidenceNamesTheHostAndTheNumbers) {
  CaseFile file = healthyFile();
  pairOf(file, 1, 3).bitsPerSecond = 94e6;
  EXPECT_THAT(judge(file).front().evidence, HasSubstr("rank 1 (node1) sends to rank 3 (node3) at "
                                                      "94.0 Mbit/s, and the other way at 940.0"));
}

}  // namespace
}  // namespace sluice::doctor
