#include <tools/lab/line_splitter.h>

#include <vector>

#include <gtest/gtest.h>

namespace sluice::lab {
namespace {

TEST(LineSplitter, GivesTheSameLinesHoweverTheBytesArrive) {
  const std::string text = "one\n\ntwo three\nlast";
  for (size_t step = 1; step <= text.size(); ++step) {
    std::vector<std::string> lines;
    LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
    for (size_t at = 0; at < text.size(); at += step)
      splitter.add(std::string_view(text).substr(at, step));
    splitter.finish();
    splitter.finish();
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "", "two three", "last"})) << step;
  }
}

TEST(LineSplitter, AnEndlessLineComesInPieces) {
  size_t pieces = 0;
  size_t bytes = 0;
  LineSplitter splitter([&](std::string_view line) {
    ++pieces;
    bytes += line.size();
  });
  const std::string chunk(100'000, 'x');
  for (int i = 0; i < 25; ++i) splitter.add(chunk);
  splitter.finish();
  EXPECT_EQ(pieces, 3U);
  EXPECT_EQ(bytes, 25 * chunk.size());
}

}  // namespace
}  // namespace sluice::lab
