#include <sluice/data/staging/pieces.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/data/staging/testing/staged_steps.h>

namespace sluice::staging {
namespace {

using ::testing::ElementsAre;

TEST(Pieces, EndWhereSlicesEnd) {
  const auto plan = testing::planOf({1000}, 100);  // slices of 400 bytes
  EXPECT_THAT(cutPieces(plan, TensorId{0}, 1000),
              ElementsAre(Piece{0, 800}, Piece{800, 800}, Piece{1600, 800}, Piece{2400, 800},
                          Piece{3200, 800}));
}

TEST(Pieces, CutSlicesThatAreTooLong) {
  const auto plan = testing::planOf({1000}, 1000);  // one slice of 4000 bytes
  EXPECT_THAT(cutPieces(plan, TensorId{0}, 1500),
              ElementsAre(Piece{0, 1500}, Piece{1500, 1500}, Piece{3000, 1000}));
}

TEST(Pieces, OneForASmallTensor) {
  const auto plan = testing::planOf({10, 3}, 100);
  EXPECT_THAT(cutPieces(plan, TensorId{1}, 1 << 20), ElementsAre(Piece{0, 12}));
}

TEST(Pieces, AreFewAndCoverTheTensor) {
  for (const uint64_t slice : {3, 7, 333, 5000, 100'000}) {
    for (const size_t atMost : {64, 1000, 4096, 65536}) {
      const auto plan = testing::planOf({17'777}, slice);
      const size_t bytes = plan.model()[TensorId{0}].bytes();
      size_t end = 0;
      const auto pieces = cutPieces(plan, TensorId{0}, atMost);
      for (const Piece& piece : pieces) {
        EXPECT_EQ(piece.begin, end);
        EXPECT_LE(piece.count, atMost);
        EXPECT_GT(piece.count, 0U);
        end = piece.end();
      }
      EXPECT_EQ(end, bytes);
      EXPECT_LE(pieces.size(), bytes / (atMost / 2 / 4 * 4) + 1) << slice << " " << atMost;
    }
  }
}

}  // namespace
}  // namespace sluice::staging
