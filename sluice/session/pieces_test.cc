#include <sluice/algorithms/slices.h>

#include <vector>

#include <gtest/gtest.h>

#include <sluice/algorithms/testing/stepped_world.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/data/kernel/testing/test_numbers.h>

namespace sluice::algorithms {
namespace {

TEST(Pieces, OthersGetTheirTurnOnTheLoopInBetween) {
  constexpr size_t kCount = 8;
  std::vector<size_t> order;
  size_t turns = 0;
  net::LoopThread thread("test");  // ends first: its last tasks count, too
  const Status ran = inPieces(thread.loop(), kCount, [&](size_t i) {
    EXPECT_TRUE(thread.loop().inLoop());
    order.push_back(i);
    thread.loop().post([&] { ++turns; });
    if (i == kCount - 1) {
      EXPECT_GE(turns, kCount / 2 - 1);  // two to a piece
    }
    return kPieceBytes / 2;
  });
  EXPECT_TRUE(ran.isOk());
  EXPECT_EQ(order, (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// A group as large as a model is used tensor by tensor, and all its gates open together at the end.
TEST(Pieces, ALargeGroupIsUpdatedInPiecesAndOpensAtOnce) {
  constexpr uint64_t kElements = kPieceBytes / sizeof(float) + 1;
  constexpr uint32_t kTensors = 3;
  std::vector<Tensor> tensors;
  for (uint32_t t = 0; t < kTensors; ++t)
    tensors.push_back({fmt::format("t{}", t), kElements, DType::kF32});
  SteppedWorld world("allreduce", "all", 2, tensors, "sgd:lr=0.5");
  for (uint32_t step = 1; step <= 2; ++step) {
    for (uint32_t t = kTensors; t-- > 0;) {
      for (uint32_t r = 0; r < 2; ++r) {
        const std::vector<float> gradient(kElements, static_cast<float>(2 * r));  // the mean is 1
        world.ranks()[r]->gradientReady(TensorId{t}, std::as_bytes(std::span(gradient)));
      }
    }
    SteppedRank& rank = *world.ranks()[0];
    const auto valueOf = [&](uint32_t t) {
      return kernel::loadAt<float>(rank.result(TensorId{t}).data(), 0);
    };
    bool wasCut = false;
    for (bool ran = true; ran;) {
      ran = rank.loop().runOne();
      size_t open = 0;
      for (uint32_t t = 0; t < kTensors; ++t) open += rank.gates().isOpen(TensorId{t}) ? 1 : 0;
      EXPECT_TRUE(open == 0 || open == kTensors);
      wasCut = wasCut || (open == 0 && valueOf(0) != valueOf(kTensors - 1));
      ran = world.ranks()[1]->loop().runOne() || ran;
    }
    EXPECT_TRUE(wasCut);
    for (uint32_t t = 0; t < kTensors; ++t) {
      EXPECT_TRUE(rank.gates().isOpen(TensorId{t}));
      EXPECT_EQ(valueOf(t), -0.5F * static_cast<float>(step));
    }
  }
}

}  // namespace
}  // namespace sluice::algorithms
