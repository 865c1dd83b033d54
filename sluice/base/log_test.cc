#include <sluice/base/log.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::base {
namespace {

class Log : public testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(setLogLevels("info").isOk()); }
};

TEST_F(Log, VerbosityFollowsTheLayer) {
  ASSERT_TRUE(setLogLevels("warn,fabric=debug").isOk());
  EXPECT_FALSE(log("queue").should_log(spdlog::level::info));
  EXPECT_TRUE(log("fabric").should_log(spdlog::level::debug));
  ASSERT_TRUE(setLogLevels("debug, fabric = error").isOk());
  EXPECT_TRUE(log("queue").should_log(spdlog::level::debug));
  EXPECT_FALSE(log("fabric").should_log(spdlog::level::warn));
}

TEST_F(Log, ALevelThatDoesNotExistIsRefusedAndChangesNothing) {
  ASSERT_TRUE(setLogLevels("error").isOk());
  const Status status = setLogLevels("debug,fabric=loud");
  EXPECT_EQ(status.message(),
            "'loud' is not a log level; use trace, debug, info, warn, error or off");
  EXPECT_FALSE(log("queue").should_log(spdlog::level::info));
}

TEST_F(Log, LinesCarryLevelPrefixAndLayerAndGoToStandardError) {
  const auto lineOf = [](auto&& say) {
    testing::internal::CaptureStderr();
    say();
    return testing::internal::GetCapturedStderr();
  };
  const auto hello = [] { log("fabric").info("hello {}", 7); };
  const std::string time = "[0-9:]+\\.[0-9]+ ";
  EXPECT_THAT(lineOf(hello), testing::MatchesRegex(time + "info fabric: hello 7\n"));
  setLogPrefix("rank 3");
  EXPECT_THAT(lineOf(hello), testing::MatchesRegex(time + "info rank 3 fabric: hello 7\n"));
  setLogPrefix("");
}

}  // namespace
}  // namespace sluice::base
