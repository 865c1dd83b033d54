#include <sluice/base/file.h>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::base {
namespace {

std::string fileOf(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  ::unlink(path.c_str());  // of an earlier run, with another owner
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

TEST(ReadFile, HasALimitWhateverTheFileIs) {
  const std::string path = fileOf("read.txt", std::string(100'000, 'x'));
  EXPECT_EQ(readFile("text", path).value().size(), 100'000U);
  EXPECT_EQ(readFile("text", path, 100'000).value().size(), 100'000U);
  EXPECT_EQ(readFile("text", path, 99'999).status().message(),
            "the text " + path + " has more than 99999 bytes");
  EXPECT_EQ(readFile("text", "/dev/zero", 1'000'000).status().message(),
            "the text /dev/zero has more than 1000000 bytes");
  EXPECT_EQ(readFile("text", "/nowhere/x").status().code(), Code::kNotFound);
  EXPECT_EQ(readFile("text", testing::TempDir()).status().message(),
            "cannot read the text " + testing::TempDir() + ": Is a directory");
}

TEST(ReadPrivateFile, RefusesWhatOthersMayOpen) {
  const std::string path = fileOf("private.txt", "hunter2");
  const auto read = [&] { return readPrivateFile("password file", path, 100, "a password"); };
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(read().status().message(), path +
                                           " holds a password but others may open it (mode 0640); "
                                           "run: chmod 600 " +
                                           path);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(read().value(), "hunter2");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
    EXPECT_THAT(read().status().message(), testing::HasSubstr("belongs to user 65534"));
  }
  EXPECT_THAT(readPrivateFile("password file", "/dev/null", 100, "a password").status().message(),
              testing::HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace sluice::base
