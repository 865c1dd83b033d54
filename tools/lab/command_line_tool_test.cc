#include <tools/lab/command_line_tool.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

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

TEST(CommandLineTool, TheSystemsDirectoriesComeBeforeThePath) {
  const std::string folder = testing::TempDir() + "sluice-tools";
  std::filesystem::create_directory(folder);
  for (const char* name : {"cat", "only-here"}) {
    std::ofstream(folder + "/" + name) << "#!/bin/sh\necho mine\n";
    std::filesystem::permissions(folder + "/" + name, std::filesystem::perms::owner_all);
  }
  const std::string former = ::getenv("PATH");
  ::setenv("PATH", folder.c_str(), 1);
  const auto cat = runTool({.command = {"cat"}, .input = "input"});
  const auto here = runTool({.command = {"only-here"}});
  std::filesystem::current_path(folder);
  ::setenv("PATH", ".", 1);
  const auto relative = runTool({.command = {"only-here"}});
  ::setenv("PATH", former.c_str(), 1);
  EXPECT_EQ(cat.value(), "input");
  EXPECT_EQ(here.value(), "mine\n");
  EXPECT_EQ(relative.status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace sluice::lab
