#include <sluice/base/log.h>

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
  EXPECT_EQ(status.message(), "'loud' is not a log level; use trace, debug, info, warn, error or off");
  EXPECT_FALSE(log("queue").should_log(spdlog::level::info));
}

TEST_F(Log, LinesCarryPrefixAndLayerAndGoToStandardError) {
  setLogPrefix("rank 3");
  testing::internal::CaptureStderr();
  log("fabric").info("hello {}", 7);
  const std::string line = testing::internal::GetCapturedStderr();
  setLogPrefix("");
  EXPECT_NE(line.find("info rank 3 fabric: hello 7"), std::string::npos) << line;
}

}  // namespace
}  // namespace sluice::base
