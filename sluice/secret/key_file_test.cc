#include <sluice/secret/key_file.h>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/options.h>

namespace sluice::secret {
namespace {

using testing::HasSubstr;

std::string freshPath(const std::string& name) {
  const std::string path = fmt::format("{}{}.{}", testing::TempDir(), name, ::getpid());
  ::unlink(path.c_str());
  return path;
}

base::Config configWith(const base::Option& option, const std::string& text) {
  base::Config config;
  EXPECT_TRUE(config.set(option, text).isOk());
  return config;
}

TEST(KeyFile, IsReadAsItWasWrittenAndNeverOverwritten) {
  const std::string path = freshPath("roundtrip.key");
  const JobKey key = JobKey::random();
  ASSERT_TRUE(writeKeyFile(path, key).isOk());
  struct stat info{};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  EXPECT_EQ(readKeyFile(path).value(), key);
  EXPECT_EQ(loadJobKey(configWith(option::kJobKeyFile, path)).value(), key);
  EXPECT_EQ(writeKeyFile(path, JobKey::random()).code(), Code::kAlreadyExists);
  EXPECT_EQ(readKeyFile(path).value(), key);
  ::unlink(path.c_str());
}

TEST(KeyFile, OfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give a file away";
  const std::string path = freshPath("foreign.key");
  ASSERT_TRUE(writeKeyFile(path, JobKey::random()).isOk());
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  const auto read = readKeyFile(path);
  EXPECT_EQ(read.status().code(), Code::kPermissionDenied);
  EXPECT_THAT(read.status().message(), HasSubstr("belongs to user 65534"));
  ::unlink(path.c_str());
}

TEST(KeyFile, ThatIsNoFileIsRefusedAtOnce) {
  const std::string path = freshPath("pipe.key");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(readKeyFile(path).status().message(), HasSubstr("is not a regular file"));
  EXPECT_THAT(readKeyFile(testing::TempDir()).status().message(),
              HasSubstr("is not a regular file"));
  ::unlink(path.c_str());
}

// Kubernetes mounts secrets this way.
TEST(KeyFile, MayBeReachedByASymbolicLink) {
  const std::string path = freshPath("target.key");
  const std::string link = freshPath("link.key");
  const JobKey key = JobKey::random();
  ASSERT_TRUE(writeKeyFile(path, key).isOk());
  ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
  EXPECT_EQ(readKeyFile(link).value(), key);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  EXPECT_EQ(readKeyFile(link).status().code(), Code::kPermissionDenied);
  ::unlink(path.c_str());
  ::unlink(link.c_str());
}

TEST(KeyFile, ThatOthersMayOpenIsRefusedWithWhatToType) {
  const std::string path = freshPath("open.key");
  ASSERT_TRUE(writeKeyFile(path, JobKey::random()).isOk());
  for (const mode_t mode : {0640, 0604, 0644, 0620, 0610}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    const auto read = readKeyFile(path);
    ASSERT_FALSE(read.isOk()) << mode;
    EXPECT_EQ(read.status().code(), Code::kPermissionDenied);
    EXPECT_THAT(read.status().message(), HasSubstr("run: chmod 600 " + path));
  }
  for (const mode_t mode : {0600, 0400}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(readKeyFile(path).isOk()) << mode;
  }
  ::unlink(path.c_str());
}

TEST(KeyFile, OfAnotherKindIsRefusedByName) {
  const std::string path = freshPath("garbage.key");
  std::ofstream(path) << std::string(1000, 'a');
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_THAT(readKeyFile(path).status().message(),
              HasSubstr(path + ": a job key is 64 hexadecimal digits"));
  EXPECT_EQ(readKeyFile("/nowhere/job.key").status().code(), Code::kNotFound);
  ::unlink(path.c_str());
}

TEST(LoadJobKey, ComesFromOnePlaceOrFromNone) {
  const JobKey key = JobKey::random();
  EXPECT_EQ(loadJobKey(configWith(option::kJobKey, key.toHex())).value(), key);
  EXPECT_FALSE(loadJobKey(base::Config()).value().isSecret());
  base::Config both = configWith(option::kJobKey, key.toHex());
  ASSERT_TRUE(both.set(option::kJobKeyFile, "job.key").isOk());
  EXPECT_THAT(loadJobKey(both).status().message(), HasSubstr("unset one"));
  const auto bad = loadJobKey(configWith(option::kJobKey, "abc"));
  EXPECT_THAT(bad.status().message(), testing::StartsWith("SLUICE_JOB_KEY: "));
}

TEST(CheckKeyFor, WithoutAKeyOnlyLoopbackUnlessSaidOtherwise) {
  const base::Config silent;
  const base::Config insecure = configWith(option::kInsecure, "on");
  EXPECT_TRUE(checkKeyFor(JobKey::random(), silent, "10.0.0.1", /*isLoopback=*/false).isOk());
  EXPECT_TRUE(checkKeyFor(JobKey::none(), silent, "127.0.0.1", /*isLoopback=*/true).isOk());
  EXPECT_TRUE(checkKeyFor(JobKey::none(), insecure, "10.0.0.1", /*isLoopback=*/false).isOk());
  const Status refused = checkKeyFor(JobKey::none(), silent, "10.0.0.1", /*isLoopback=*/false);
  EXPECT_EQ(refused.code(), Code::kPermissionDenied);
  EXPECT_THAT(refused.message(), HasSubstr("'sluice key new -o job.key'"));
  EXPECT_THAT(refused.message(), HasSubstr("'export SLUICE_JOB_KEY_FILE=job.key'"));
}

}  // namespace
}  // namespace sluice::secret
