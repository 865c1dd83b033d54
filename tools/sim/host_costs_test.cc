#include <tools/sim/host_costs.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace sluice::sim {
namespace {

constexpr std::string_view kCosts = R"({
  "plain": {"message_sent_ns": 100, "message_received_ns": 200, "byte_sent_ns": 1,
            "byte_received_ns": 2, "byte_summed_ns": 0.5, "byte_updated_ns": 0},
  "encrypted": {"message_sent_ns": 300, "message_received_ns": 200, "byte_sent_ns": 1,
                "byte_received_ns": 2, "byte_summed_ns": 0.5, "byte_updated_ns": -1}})";

TEST(HostCosts, ThereAreCostsForEveryName) {
  EXPECT_TRUE(parseCosts("free").value().isFree());
  const HostCosts plain = parseCosts("plain").value();
  const HostCosts encrypted = parseCosts("encrypted").value();
  EXPECT_GT(plain.messageSent, 0);
  EXPECT_GT(encrypted.byteSent, plain.byteSent);
  EXPECT_EQ(parseCosts("nosuch").status().code(), Code::kInvalidArgument);
}

TEST(HostCosts, AreReadFromAFile) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("sluice-costs-{}.json", ::getpid());
  std::ofstream(path) << kCosts;
  EXPECT_EQ(parseCosts(path.string()).value().sent(10).count(), 110);
  EXPECT_EQ(parseCosts(path.string()).value().received(10).count(), 220);
  const Status bad = parseCosts(path.string() + ":encrypted").status();
  std::filesystem::remove(path);
  EXPECT_NE(bad.message().find("'byte_updated_ns' must be"), std::string::npos) << bad.message();
}

TEST(HostCosts, RefusesFilesOfOtherThings) {
  for (const char* json : {"", "[]", "{}", R"({"plain": 3})", R"({"plain": {}})"})
    EXPECT_EQ(readCosts(json, "plain").status().code(), Code::kInvalidArgument) << json;
}

}  // namespace
}  // namespace sluice::sim
