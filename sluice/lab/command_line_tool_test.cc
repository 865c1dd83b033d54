#include <sluice/lab/command_line_tool.h>

#include <gtest/gtest.h>

namespace sluice::lab {
namespace {

TEST(CommandLineTool, HandsOverInputAndReturnsOutput) {
  const std::string text(200'000, 'x');  // more than a pipe holds
  const auto output = runTool({.command = {"cat"}, .input = text});
  ASSERT_TRUE(output.isOk()) << output.status().toString();
  EXPECT_EQ(*output, text);
}

TEST(CommandLineTool, AFailureIsOneLineWithTheToolsReason) {
  const auto failed = runTool({.command = {"sh", "-c", "echo one >&2; echo two >&2; exit 3"}});
  EXPECT_EQ(failed.status(), Status(Code::kInternal, "sh failed: one; two"));
}

TEST(CommandLineTool, AMissingToolSaysSo) {
  EXPECT_EQ(runTool({.command = {"no-such-tool"}}).status().code(), Code::kUnavailable);
}

TEST(CommandLineTool, ATimeLimitEndsIt) {
  const auto late = runTool({.command = {"sleep", "60"}, .limit = std::chrono::milliseconds(20)});
  EXPECT_EQ(late.status(), Status(Code::kTimeout, "sleep has not ended within 20ms"));
}

}  // namespace
}  // namespace sluice::lab
