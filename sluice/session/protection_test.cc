#include <sluice/session/protection.h>

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/options.h>

namespace sluice::session {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

base::Config configOf(const std::string& fabric, const std::string& encrypt,
                      const std::string& check) {
  base::Config config;
  EXPECT_TRUE(config.set(option::kFabric, fabric).isOk());
  EXPECT_TRUE(config.set(option::kEncrypt, encrypt).isOk());
  EXPECT_TRUE(config.set(option::kPayloadCheck, check).isOk());
  return config;
}

TEST(Protection, IsSaidInWords) {
  struct Case {
    const char* fabric;
    const char* encrypt;
    const char* check;
    bool isOneHost;
    bool hasKey;
    const char* words;
    bool warns;
  };
  const std::vector<Case> cases{
      {"tcp", "auto", "crc32c", false, true, "encrypted (TLS 1.3)", false},
      {"tcp", "auto", "crc32c", true, true, "checksummed only (CRC32C)", false},
      {"tcp", "auto", "crc32c", true, false, "checksummed only (CRC32C)", false},
      {"tcp", "on", "off", true, false, "encrypted (TLS 1.3)", false},
      {"tcp", "integrity", "crc32c", false, true, "authenticated, not encrypted", false},
      {"tcp", "integrity", "off", true, true, "authenticated, not encrypted", false},
      {"tcp", "off", "crc32c", false, true, "checksummed only (CRC32C)", true},
      {"tcp", "off", "off", false, true, "not protected", true},
      {"tcp", "off", "off", false, false, "not protected", false},
      {"ucx", "auto", "crc32c", false, true, "checksummed only (CRC32C)", true},
      {"ucx", "auto", "off", true, true, "not protected", false},
  };
  for (const Case& each : cases) {
    const auto protection = describeProtection(configOf(each.fabric, each.encrypt, each.check),
                                               each.isOneHost, each.hasKey);
    SCOPED_TRACE(std::string(each.fabric) + " " + each.encrypt + " " + each.check);
    EXPECT_THAT(protection.words, StartsWith(each.words));
    EXPECT_EQ(!protection.warning.empty(), each.warns) << protection.warning;
  }
  EXPECT_THAT(describeProtection(configOf("tcp", "on", "off"), false, false).words,
              HasSubstr("without a job key"));
}

TEST(Protection, UcxRefusesWhatItCannotDo) {
  for (const char* encrypt : {"on", "integrity"}) {
    EXPECT_THAT(checkProtectionOfUcx(configOf("ucx", encrypt, "crc32c")).message(),
                HasSubstr("--fabric tcp"));
  }
  for (const char* encrypt : {"auto", "off"}) {
    EXPECT_TRUE(checkProtectionOfUcx(configOf("ucx", encrypt, "crc32c")).isOk());
  }
}

}  // namespace
}  // namespace sluice::session
