#include <tools/planner/cluster.h>

#include <chrono>

#include <gtest/gtest.h>

namespace sluice::planner {
namespace {

using std::chrono::microseconds;

TEST(Cluster, ReadsEveryKey) {
  const auto cluster = parseCluster(
      R"({"rate": "1gbit", "latency": "80us", "loss": 0.01, "encrypted": false,
          "names": ["a", "b"], "hosts": {"1": {"out": "300mbit"}}, "slower": {"0": 2.5}})",
      "net.json");
  ASSERT_TRUE(cluster.isOk()) << cluster.status().toString();
  EXPECT_EQ(cluster->network.rate.bitsPerSecond, 1'000'000'000U);
  EXPECT_EQ(cluster->network.latency, microseconds(80));
  EXPECT_DOUBLE_EQ(cluster->network.loss, 0.01);
  EXPECT_FALSE(cluster->isEncrypted);
  EXPECT_EQ(cluster->network.topology.hosts.at(1).out.bitsPerSecond, 300'000'000U);
  EXPECT_EQ(cluster->slowerHosts, (std::map<uint32_t, double>{{0, 2.5}}));
  EXPECT_EQ(cluster->nameOf(1), "host b");
  EXPECT_EQ(cluster->nameOf(2), "host 2");
  EXPECT_EQ((Cluster{.names = {"a", "a"}}.nameOf(1)), "host 1");  // two have the name
}

TEST(Cluster, NeedsTheRateOnly) {
  const auto cluster = parseCluster(R"({"rate": "25gbit"})", "net.json");
  ASSERT_TRUE(cluster.isOk()) << cluster.status().toString();
  EXPECT_TRUE(cluster->isEncrypted);
  EXPECT_TRUE(cluster->network.topology.isStar());
}

TEST(Cluster, RefusesWhatCannotBeInOneLine) {
  const struct {
    std::string json;
    std::string error;
  } cases[] = {
      {"{", "net.json: it is not JSON at byte 2"},
      {std::string(1'000'000, '['), "net.json: it has more than 64 levels of lists and objects"},
      {"[]", "net.json: it must be a JSON object"},
      {"{}", "net.json: there is no \"rate\": give the speed of a host's link, as \"1gbit\""},
      {R"({"rate": 5})", "net.json: rate is 5; write a text, as \"1gbit\""},
      {R"({"rate": "0bit"})", "net.json: rate must be above 0"},
      {R"({"rate": "1gbit", "latency": "0us"})", "net.json: latency must be above 0"},
      {R"({"rate": "1gbit", "loss": 2})", "net.json: loss is 2; give a share from 0 to 0.5"},
      {R"({"rate": "1gbit", "names": [1]})",
       "net.json: names is a list of texts, as [\"a\", \"b\"]"},
      {R"({"rate": "1gbit", "encrypted": 1})", "net.json: encrypted is true or false"},
      {R"({"rate": "1gbit", "slower": []})",
       "net.json: slower is a list by number, as {\"3\": 2.5}"},
      {R"({"rate": "1gbit", "slower": {"x": 2}})", "net.json: invalid host number 'x'"},
      {R"({"rate": "1gbit", "slower": {"1": 0}})",
       "net.json: slower has 0 for host 1; give how many times longer it computes"},
  };
  for (const auto& c : cases) {
    const auto cluster = parseCluster(c.json, "net.json");
    ASSERT_FALSE(cluster.isOk()) << c.json;
    EXPECT_EQ(cluster.status().message(), c.error);
  }
  EXPECT_FALSE(parseCluster(R"({"rate": "1gbit", "colour": "red"})", "net.json").isOk());
  EXPECT_FALSE(readCluster("/no/such/file.json").isOk());
}

}  // namespace
}  // namespace sluice::planner
