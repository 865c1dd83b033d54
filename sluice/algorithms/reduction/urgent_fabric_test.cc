#include <sluice/algorithms/reduction/urgent_fabric.h>

#include <gtest/gtest.h>

#include <sluice/base/testing/manual_loop.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>

namespace sluice::algorithms {
namespace {

constexpr size_t kBytes = 100;

// Two ranks in one thread. The second notes what comes.
class UrgentFabricTest : public testing::Test, protected fabric::Receiver {
 protected:
  UrgentFabricTest() {
    for (const uint32_t r : {0U, 1U}) fabrics_[r] = hub_.join(Rank{r}, loops_[r], *this);
    urgent_ = std::make_unique<UrgentFabric>(*fabrics_[0], kBytes);
  }
  ~UrgentFabricTest() override {
    for (const uint32_t r : {0U, 1U}) {
      loops_[r].post([this, r] { fabrics_[r].reset(); });
      run();
    }
  }

  void send(uint32_t tensor, Stage stage = Stage::kPush, uint64_t step = 0) {
    urgent_->send(Rank{1}, fabric::Lane::kBulk,
                  {.step = Step{step}, .tensor = TensorId{tensor}, .stage = stage},
                  {payload_.data(), payload_.size()},
                  [this](const Status& status) { (status.isOk() ? sent_ : failed_)++; });
  }
  void run() {
    while (loops_[0].runOne() || loops_[1].runOne()) {
    }
  }

  Result<fabric::Landing> onMessage(Rank, fabric::Lane, const wire::Header& header) override {
    came_.push_back(index(header.tensor));
    return fabric::Landing{{landed_.data(), landed_.size()}, [](const Status&) {}};
  }
  void onPeerLost(Rank, const Status&) override {}
  void onPeerLeft(Rank) override {}

  base::ManualLoop loops_[2];
  fabric::LoopbackHub hub_{2};
  std::unique_ptr<UrgentFabric> urgent_;  // goes after what it stands on
  std::unique_ptr<fabric::Fabric> fabrics_[2];
  std::vector<std::byte> payload_ = std::vector<std::byte>(kBytes);
  std::vector<std::byte> landed_ = std::vector<std::byte>(kBytes);
  std::vector<uint32_t> came_;
  int sent_ = 0;
  int failed_ = 0;
};

TEST_F(UrgentFabricTest, WhatIsUrgentOvertakesAllThatWaits) {
  loops_[0].post([this] {
    send(9);  // goes at once, and is beyond recall
    send(7);
    send(2, Stage::kPublish);
    send(3);
    send(2);
    send(1, Stage::kPush, /*step=*/1);
    EXPECT_EQ(urgent_->bytesWaiting(), 5 * kBytes);
  });
  run();
  EXPECT_EQ(came_, (std::vector<uint32_t>{9, 2, 2, 3, 7, 1}));
  EXPECT_EQ(sent_, 6);
  EXPECT_EQ(urgent_->bytesWaiting(), 0);
}

TEST_F(UrgentFabricTest, WhatWaitsForARankThatIsGoneEndsToo) {
  loops_[1].post([this] { fabrics_[1].reset(); });
  run();
  loops_[0].post([this] {
    for (const uint32_t tensor : {1U, 2U, 3U}) send(tensor);
  });
  run();
  EXPECT_EQ(sent_ + failed_, 3);
  EXPECT_EQ(failed_, 3);
  EXPECT_EQ(urgent_->bytesWaiting(), 0);
}

}  // namespace
}  // namespace sluice::algorithms
