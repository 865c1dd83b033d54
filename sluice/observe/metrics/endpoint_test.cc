#include <sluice/observe/metrics/endpoint.h>

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/observe/metrics/counts.h>
#include <sluice/observe/metrics/testing/scrape.h>

namespace sluice::metrics {
namespace {

using testing::HasSubstr;
using testing::Not;

class Meters final : public MetricsSource {
 public:
  explicit Meters(Reading reading) : reading_(std::move(reading)) {}
  Result<Reading> read() override { return reading_; }

 private:
  const Reading reading_;
};

size_t countOf(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

TEST(MetricsServer, TellsWhatEverySourceShows) {
  const auto endpoint = MetricsServer::open("127.0.0.1", 0).value();
  EXPECT_THAT(endpoint->url(), testing::MatchesRegex("http://127.0.0.1:[1-9][0-9]*/metrics"));
  EXPECT_THAT(scrape(endpoint->url()), Not(HasSubstr("sluice_steps_total{")));

  Reading reading{.session = "a", .rank = Rank{2}, .steps = 7, .tensors = {"w\"1\"", "b"}};
  reading.fabric.bytesSent = 1000;
  reading.fabric.drops.count(wire::Drop::kRefused);
  reading.slicesByStage[static_cast<size_t>(Stage::kReduce)] = 5;
  reading.creditUsed = 400;
  reading.inversion.record(std::chrono::seconds(2));
  reading.waited = {std::chrono::milliseconds(1500), {}};
  reading.peers[Rank{3}] = {
      .isUp = false, .silence = std::chrono::seconds(4), .busy = std::chrono::seconds(3)};
  Meters first(reading);
  reading.session = "b";
  Meters second(reading);
  endpoint->add(first);
  endpoint->add(second);
  std::string text = scrape(endpoint->url());
  for (const char* line :
       {R"(sluice_steps_total{session="a",rank="2"} 7)",
        R"(sluice_steps_total{session="b",rank="2"} 7)",
        R"(sluice_sent_bytes_total{session="a",rank="2"} 1000)",
        R"(sluice_credit_used_bytes{session="a",rank="2"} 400)",
        R"(sluice_dropped_messages_total{session="a",rank="2",reason="refused"} 1)",
        R"(sluice_slices_total{session="a",rank="2",stage="reduce"} 5)",
        R"(sluice_inversion_seconds_sum{session="a",rank="2"} 2)",
        R"(sluice_inversion_seconds_count{session="a",rank="2"} 1)",
        R"(sluice_wait_seconds_total{session="a",rank="2",layer="w\"1\""} 1.5)",
        R"(sluice_peer_up{session="a",rank="2",peer="3"} 0)",
        R"(sluice_peer_silence_seconds{session="a",rank="2",peer="3"} 4)",
        R"(sluice_peer_busy_seconds{session="a",rank="2",peer="3"} 3)"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_EQ(countOf(text, "# TYPE sluice_steps_total "), 1);  // a family may be there only once

  endpoint->remove(first);
  text = scrape(endpoint->url());
  EXPECT_THAT(text, Not(HasSubstr("session=\"a\"")));
  EXPECT_THAT(text, HasSubstr("session=\"b\""));
}

TEST(MetricsServer, APortThatIsTakenIsNamed) {
  const auto first = MetricsServer::open("127.0.0.1", 0).value();
  const std::string url = first->url();
  const auto port = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  const Status status = MetricsServer::open("127.0.0.1", port).status();
  EXPECT_THAT(
      status.message(),
      HasSubstr(fmt::format("cannot listen on 127.0.0.1:{}: Address already in use", port)));
}

TEST(Counts, AddUp) {
  Counts counts(2);
  for (int i = 0; i < 3; ++i)
    counts.onStage({Stage::kPush, Step{0}, TensorId{1}, SliceId{0}, Rank{0}, {}});
  for (int i = 0; i < 2; ++i)
    counts.onWait({TensorId{1}, Step{0}, TimePoint(Duration(10)), TimePoint(Duration(15))});
  EXPECT_EQ(counts.slicesByStage()[static_cast<size_t>(Stage::kPush)], 3);
  EXPECT_EQ(counts.slicesByStage()[static_cast<size_t>(Stage::kReady)], 0);
  EXPECT_EQ(counts.waitedByTensor(), (std::vector<Duration>{Duration(0), Duration(10)}));
}

TEST(MetricsServer, ASourceThatCannotBeReadIsLeftOut) {
  class Broken final : public MetricsSource {
    Result<Reading> read() override { return Status(Code::kTimeout, "the loop is busy"); }
  };
  const auto endpoint = MetricsServer::open("127.0.0.1", 0).value();
  Broken broken;
  Meters meters({.session = "a", .steps = 7});
  endpoint->add(broken);
  endpoint->add(meters);
  EXPECT_THAT(scrape(endpoint->url()), HasSubstr(R"(sluice_steps_total{session="a",rank="0"} 7)"));
}

}  // namespace
}  // namespace sluice::metrics
