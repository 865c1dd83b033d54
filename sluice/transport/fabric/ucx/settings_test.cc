#include <sluice/transport/fabric/ucx/settings.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/options.h>

namespace sluice::fabric::ucx {
namespace {

using testing::HasSubstr;

std::string valueOf(const UcxOptions& options, std::string_view name) {
  for (const UcxSetting& setting : settingsFor(options)) {
    if (setting.name == name) return setting.value;
  }
  return "(unset)";
}

TEST(Settings, TellUcxWhatItMayUse) {
  UcxOptions options;
  EXPECT_EQ(valueOf(options, "TLS"), "tcp");
  EXPECT_EQ(valueOf(options, "NET_DEVICES"), "(unset)");
  EXPECT_EQ(valueOf(options, "PUT_ENABLE"), "n");
  EXPECT_EQ(valueOf(options, "ZCOPY_THRESH"), "inf");
  options.transports = "rc,tcp";
  options.device = "mlx5_0:1";
  EXPECT_EQ(valueOf(options, "TLS"), "rc,tcp");
  EXPECT_EQ(valueOf(options, "NET_DEVICES"), "mlx5_0:1");
  EXPECT_EQ(valueOf(options, "ZCOPY_THRESH"), "(unset)");
  options.transports = "rc";
  EXPECT_EQ(valueOf(options, "PUT_ENABLE"),
            "(unset)");  // UCX warns of a setting that no transport knows
}

TEST(Settings, AnEagerMessageFitsInOneSegment) {
  UcxOptions options;
  EXPECT_GE(std::stoull(valueOf(options, "RX_SEG_SIZE")), options.eagerBytes + 256);
}

TEST(Settings, AnUntrustedNetworkIsRefusedInOneLineThatSaysWhatToType) {
  UcxOptions options;
  const Status status = checkTrusted(options);
  EXPECT_EQ(status.code(), Code::kPermissionDenied);
  EXPECT_THAT(status.message(), HasSubstr("--trusted-network"));
  EXPECT_THAT(status.message(), HasSubstr("--fabric tcp"));
  EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  options.isNetworkTrusted = true;
  EXPECT_TRUE(checkTrusted(options).isOk());
}

TEST(Settings, ComeFromTheConfiguration) {
  base::Config config;
  EXPECT_FALSE(ucxOptions(config).isNetworkTrusted);
  ASSERT_TRUE(config.set(option::kTrustedNetwork, "on").isOk());
  ASSERT_TRUE(config.set(option::kUcxTransports, "sm,tcp").isOk());
  EXPECT_TRUE(ucxOptions(config).isNetworkTrusted);
  EXPECT_EQ(ucxOptions(config).transports, "sm,tcp");
}

}  // namespace
}  // namespace sluice::fabric::ucx
