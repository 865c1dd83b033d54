// Both sides of the table of C functions (table.h), without Torch: what a module calls, carried out
// by the engine.
#include <sluice/pytorch/backend/core.h>

#include <array>
#include <atomic>
#include <future>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/testing/free_port.h>
#include <sluice/data/staging/testing/pretend_device.h>
#include <sluice/pytorch/core_table.h>
#include <sluice/pytorch/table_status.h>

namespace sluice::pytorch {
namespace {

using namespace std::chrono_literals;
using staging::testing::PretendBytes;
using staging::testing::PretendDevice;
using ::testing::HasSubstr;

TEST(Table, OfAnotherVersionIsRefused) {
  table::CoreTable other = coreTable();
  other.version = table::kVersion + 1;
  EXPECT_THAT(attachCore(other).message(), HasSubstr("repairs the package"));
  other = coreTable();
  other.size -= sizeof(void*);
  EXPECT_EQ(attachCore(other).code(), Code::kRefused);
  EXPECT_TRUE(attachCore(coreTable()).isOk());
}

TEST(Table, CutsLongTextsAndTurnsExceptionsIntoErrors) {
  table::Error error;
  table::write({Code::kTimeout, std::string(10'000, 'x')}, &error);
  EXPECT_EQ(table::statusOf(error).code(), Code::kTimeout);
  EXPECT_EQ(table::statusOf(error).message(), std::string(sizeof(error.text) - 1, 'x'));
  table::guarded(&error, []() -> Status { throw std::runtime_error("planted"); });
  EXPECT_EQ(table::statusOf(error), Status(Code::kInternal, "planted"));
}

TEST(Table, FreesWhatItWasGivenOnce) {
  auto kept = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = kept;
  {
    const auto call = table::take(
        table::Closure<int(int)>::of([kept = std::move(kept)](int more) { return *kept + more; }));
    const auto copy = call;
    EXPECT_EQ(copy(2), 3);
  }
  EXPECT_TRUE(watched.expired());
}

class CopyByTable : public ::testing::Test {
 protected:
  CopyByTable() { EXPECT_TRUE(attachCore(coreTable()).isOk()); }
  std::shared_ptr<PretendBytes> newMemory(size_t bytes) {
    return std::make_shared<PretendBytes>(device_.machine(), device_.stream(), bytes);
  }
  PretendDevice device_;
};

TEST_F(CopyByTable, TakesTensorsToTheDeviceAndBack) {
  auto copier = CoreCopier::make(device_, 64 << 10);
  ASSERT_TRUE(copier.isOk()) << copier.status().toString();
  std::vector<float> sent(30'000);
  std::iota(sent.begin(), sent.end(), 1.F);
  const auto memory = newMemory(sent.size() * sizeof(float));
  const std::weak_ptr<PretendBytes> watched = memory;

  std::promise<Result<std::shared_ptr<const DeviceMark>>> queued;
  (*copier)->toDevice(std::as_bytes(std::span(sent)), memory, device_.mark(),
                      [&](auto end) { queued.set_value(std::move(end)); });
  const auto end = queued.get_future().get();
  ASSERT_TRUE(end.isOk()) << end.status().toString();
  EXPECT_TRUE(device_.makeStreamWait(**end).isOk());

  std::vector<float> back(sent.size());
  std::promise<Status> arrived;
  (*copier)->toHost(memory, *end, std::as_writable_bytes(std::span(back)),
                    [&](const Status& status) { arrived.set_value(status); });
  EXPECT_TRUE(arrived.get_future().get().isOk());
  EXPECT_EQ(back, sent);
  EXPECT_EQ(watched.use_count(), 1) << "the engine has kept the memory";
}

TEST_F(CopyByTable, RefusesTooLittlePinnedMemory) {
  const auto copier = CoreCopier::make(device_, 16);
  EXPECT_EQ(copier.status().code(), Code::kInvalidArgument);
}

// Two ranks of a group, as two modules would have them.
class GroupByTable : public ::testing::Test {
 protected:
  GroupByTable() {
    EXPECT_TRUE(attachCore(coreTable()).isOk());
    const std::string port = base::freePort();
    std::vector<std::thread> threads;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      threads.emplace_back([this, r, port] {
        auto group = CoreGroup::join({{"log", "warn"}},
                                     {{"RANK", std::to_string(r)},
                                      {"WORLD_SIZE", "2"},
                                      {"MASTER_ADDR", "127.0.0.1"},
                                      {"MASTER_PORT", port}},
                                     30s, {}, {});
        ASSERT_TRUE(group.isOk()) << group.status().toString();
        ranks_[r] = *std::move(group);
      });
    }
    for (auto& thread : threads) thread.join();
  }

  // Makes one call on both ranks, and returns how each has ended.
  template <typename Call>
  std::array<Status, 2> both(Call&& call) {
    std::array<std::promise<Status>, 2> ended;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const Status made = call(
          r, CoreTerms{.atMost = 20s,
                       .done = [&ended, r](const Status& status) { ended[r].set_value(status); }});
      if (!made.isOk()) ended[r].set_value(made);
    }
    return {ended[0].get_future().get(), ended[1].get_future().get()};
  }

  std::array<std::shared_ptr<CoreGroup>, 2> ranks_;
};

TEST_F(GroupByTable, SumsSendsAndExchanges) {
  EXPECT_EQ(ranks_[1]->rank(), 1U);
  EXPECT_EQ(ranks_[1]->worldSize(), 2U);
  std::array<std::vector<float>, 2> data{std::vector<float>{1, 2}, std::vector<float>{3, 4}};
  const auto bytes = [&](size_t r) { return std::as_writable_bytes(std::span(data[r])); };
  for (const Status& status : both([&](size_t r, CoreTerms terms) {
         return ranks_[r]->allReduce(bytes(r), DType::kF32, std::move(terms));
       }))
    EXPECT_TRUE(status.isOk()) << status.toString();
  EXPECT_EQ(data[0], (std::vector<float>{4, 6}));
  EXPECT_EQ(data[1], data[0]);

  data[0] = {7, 8};
  std::optional<Rank> source;
  for (const Status& status : both([&](size_t r, CoreTerms terms) {
         if (r == 0) return ranks_[0]->send(Rank{1}, 5, bytes(0), std::move(terms));
         return ranks_[1]->receive(
             std::nullopt, 5, bytes(1), [&](Rank from) { source = from; }, std::move(terms));
       }))
    EXPECT_TRUE(status.isOk()) << status.toString();
  EXPECT_EQ(data[1], data[0]);
  EXPECT_EQ(source, Rank{0});

  std::array<std::vector<float>, 2> got{std::vector<float>(2), std::vector<float>(2)};
  std::atomic<int> merged = 0;
  data[1] = {9, 10};
  for (const Status& status : both([&](size_t r, CoreTerms terms) {
         const Rank other{r == 0 ? 1U : 0U};
         const CoreLeg leg{.sends = {{other, bytes(r)}},
                           .receives = {{other, std::as_writable_bytes(std::span(got[r]))}},
                           .then = [&merged] { ++merged; }};
         return ranks_[r]->exchange(table::ExchangeKind::kAllToAll, {leg}, std::move(terms));
       }))
    EXPECT_TRUE(status.isOk()) << status.toString();
  EXPECT_EQ(got[0], data[1]);
  EXPECT_EQ(got[1], data[0]);
  EXPECT_EQ(merged, 2);
}

TEST(GroupOfOneByTable, RefusesAndFreesACallAfterItsEnd) {
  ASSERT_TRUE(attachCore(coreTable()).isOk());
  const auto joined = CoreGroup::join({{"log", "warn"}}, {}, 30s, {}, {});
  ASSERT_TRUE(joined.isOk()) << joined.status().toString();
  CoreGroup& group = **joined;
  group.leave();
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = memory;
  bool hasRun = false;
  const Status made = group.barrier(
      {.atMost = 1s, .memory = std::move(memory), .done = [&](const Status&) { hasRun = true; }});
  EXPECT_EQ(made.code(), Code::kCancelled);
  EXPECT_FALSE(hasRun);
  EXPECT_TRUE(watched.expired());
}

TEST(JoinByTable, EndsWhenItIsInterrupted) {
  ASSERT_TRUE(attachCore(coreTable()).isOk());
  const auto group = CoreGroup::join({{"log", "warn"}},
                                     {{"RANK", "0"},
                                      {"WORLD_SIZE", "2"},
                                      {"MASTER_ADDR", "127.0.0.1"},
                                      {"MASTER_PORT", base::freePort()}},
                                     30s, [] { return Status(Code::kCancelled, "planted"); }, {});
  EXPECT_EQ(group.status(), Status(Code::kCancelled, "planted"));
}

}  // namespace
}  // namespace sluice::pytorch
