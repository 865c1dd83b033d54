#include <tools/cli/name_owners.h>

#include <unistd.h>

#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

class NameOwners : public testing::Test {
 protected:
  NameOwners()
      : root_(std::filesystem::temp_directory_path() / fmt::format("name_owners_{}", ::getpid())) {}
  ~NameOwners() override { std::filesystem::remove_all(root_); }

  void install(const std::string& distribution, const std::string& record) {
    const auto folder = root_ / "lib/python3.11/site-packages" / (distribution + ".dist-info");
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "RECORD") << record;
  }
  std::string complaint() const { return complaintAboutOwners(root_ / "bin"); }

 private:
  const std::filesystem::path root_;
};

TEST_F(NameOwners, AProgramOutsideOfAPythonEnvironmentHasNone) {
  EXPECT_THAT(complaint(), IsEmpty());
  install("sluice-0.3.1", "sluice/__init__.py,sha256=x,1\n");
  EXPECT_THAT(complaint(), IsEmpty());
}

TEST_F(NameOwners, OnlyAPackageOfTheVeryNameCounts) {
  install("torch_sluice-0.1.0", "sluice/__init__.py,sha256=x,1\n");
  install("canals-1.0", "canals/sluice/__init__.py,sha256=x,1\nsluices/__init__.py,sha256=x,1\n");
  EXPECT_THAT(complaint(), IsEmpty());
  install("sluice_pipeline-2.0", "a.py,sha256=x,1\nsluice/__init__.py,sha256=x,1\n");
  EXPECT_THAT(complaint(), HasSubstr("'pip uninstall sluice_pipeline torch-sluice'"));
}

}  // namespace
}  // namespace sluice::cli
