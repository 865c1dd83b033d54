// The lab as C++ programs use it: tests and benchmarks that have threads of their own.
#include <unistd.h>

#include <map>
#include <thread>

#include <gtest/gtest.h>

#include <sluice/base/net/epoll_loop.h>
#include <tools/lab/lab.h>
#include <tools/lab/namespaces.h>

namespace sluice::lab {
namespace {

Layout hosts(int count) {
  Layout layout;
  layout.hosts = count;
  return layout;
}

class LabApi : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto tried = TemporaryLab::up(hosts(1));
    if (tried.status().code() == Code::kPermissionDenied) GTEST_SKIP() << tried.status().message();
  }
};

TEST_F(LabApi, ATemporaryLabRunsProgramsAndIsGoneAfterwards) {
  const net::LoopThread another("another");  // launching must not depend on being the only thread
  std::string name;
  {
    auto lab = TemporaryLab::up(hosts(2));
    ASSERT_TRUE(lab.isOk()) << lab.status().toString();
    name = (**lab)->name();
    std::map<int, std::string> said;
    RunOptions options;
    options.command = {"sh", "-c", "echo $RANK of $WORLD_SIZE at $MASTER_ADDR with $EXTRA"};
    options.environment = {{"EXTRA", "salt"}};
    options.onLine = [&](int rank, Stream, std::string_view line) { said[rank] = line; };
    for (int time = 0; time < 2; ++time) {
      said.clear();
      const auto ended = (**lab)->run(options);
      ASSERT_TRUE(ended.isOk()) << ended.status().toString();
      EXPECT_EQ(*ended, 0);
      EXPECT_EQ(said, (std::map<int, std::string>{{0, "0 of 2 at 10.77.0.1 with salt"},
                                                  {1, "1 of 2 at 10.77.0.1 with salt"}}));
    }
    std::thread stillPossible([] {});  // the launcher has left the PID namespace again
    stillPossible.join();
  }
  EXPECT_TRUE(namespacesOf(Realm::ofMachine(), name).empty());
  EXPECT_EQ(Lab::open(name).status().code(), Code::kNotFound);
}

TEST_F(LabApi, TwoTemporaryLabsDoNotMeet) {
  auto one = TemporaryLab::up(hosts(1));
  auto two = TemporaryLab::up(hosts(1));
  ASSERT_TRUE(one.isOk() && two.isOk());
  EXPECT_NE((**one)->name(), (**two)->name());
}

}  // namespace
}  // namespace sluice::lab
