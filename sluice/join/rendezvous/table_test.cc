#include <sluice/join/rendezvous/table.h>

#include <functional>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/base/testing/manual_loop.h>
#include <sluice/join/rendezvous/message.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Answer = std::optional<Result<std::shared_ptr<const std::string>>>;

class TableTest : public testing::Test {
 protected:
  ValueTable::Got into(Answer& answer) {
    return [&answer](const Result<std::shared_ptr<const std::string>>& got) { answer = got; };
  }
  // Returns the answer of a gather, in rank order; empty if it has not ended, or has failed.
  static std::vector<std::string> listOf(const Answer& answer) {
    if (!answer || !answer->isOk()) return {};
    return decodeList(***answer).value();
  }

  void onLoop(Task task) {
    loop_.post(std::move(task));
    loop_.runReady();
  }
  void gather(Rank who, uint32_t id, const std::string& value, Answer& answer) {
    onLoop([&, this] { table_.gather(who, id, "key", value, 1h, into(answer)); });
  }

  // Adds small entries until the table is full; false if it never is.
  bool fills(const std::function<void(const std::string& key, ValueTable::Got got)>& add) {
    const auto isFull = std::make_shared<bool>(false);  // answers may come later
    for (size_t i = 0; !*isFull && i < 20'000; ++i) {
      onLoop([&] {
        add(std::to_string(i), [isFull](const Result<std::shared_ptr<const std::string>>& got) {
          *isFull = *isFull || got.status().code() == Code::kUnavailable;
        });
      });
    }
    return *isFull;
  }

  base::ManualLoop loop_;
  ValueTable table_{loop_, 2, size_t{2} << 20};
};

TEST_F(TableTest, IsFullAtSomePointAndAnOversizedSetLeavesNothingBehind) {
  const std::string value(kLargestValueBytes, 'x');
  Status status;
  int kept = 0;
  for (; status.isOk() && kept < 1000; ++kept)
    status = table_.set("key" + std::to_string(kept), value);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(status.message(), HasSubstr("full"));
  EXPECT_EQ(table_.get("key" + std::to_string(kept - 1)).status().code(), Code::kNotFound);
  EXPECT_TRUE(table_.set("key0", value).isOk());  // in place of what is there
  EXPECT_TRUE(table_.set("key0", "").isOk());
  EXPECT_TRUE(table_.set("small", "").isOk());  // there is room again
  EXPECT_EQ(table_.set("k", std::string(kLargestValueBytes + 1, 'x')).code(),
            Code::kInvalidArgument);
  EXPECT_EQ(table_.get("k").status().code(), Code::kNotFound);
}

TEST_F(TableTest, WaitsAreBounded) {
  EXPECT_TRUE(fills([&](const std::string& key, ValueTable::Got got) {
    table_.wait(Rank{1}, key, kNoEnd, std::move(got));
  }));
  onLoop([&] { table_.disconnected(Rank{1}); });  // and are forgotten with the rank that asked
  EXPECT_TRUE(table_.set("key", "").isOk());
}

TEST_F(TableTest, GathersAreBounded) {
  uint32_t id = 0;
  EXPECT_TRUE(fills([&](const std::string& key, ValueTable::Got got) {
    table_.gather(Rank{1}, ++id, key, "", kNoEnd, std::move(got));
  }));
  onLoop([&] { table_.went(Rank{0}, "test"); });  // ends them all
  EXPECT_TRUE(table_.set("key", "").isOk());
}

TEST_F(TableTest, ARepeatedGatherCountsOnce) {
  Answer lost;
  Answer first;
  Answer again;
  gather(Rank{1}, 7, "b", lost);
  onLoop([&] { table_.disconnected(Rank{1}); });
  gather(Rank{1}, 7, "b", again);
  gather(Rank{0}, 0, "a", first);
  EXPECT_THAT(listOf(first), testing::ElementsAre("a", "b"));
  EXPECT_THAT(listOf(again), testing::ElementsAre("a", "b"));
  EXPECT_FALSE(lost->isOk());
}

TEST_F(TableTest, AGatherWhoseAnswerWasLostIsAnsweredAgain) {
  Answer lost;
  Answer first;
  gather(Rank{1}, 7, "b", lost);
  onLoop([&] { table_.disconnected(Rank{1}); });
  gather(Rank{0}, 0, "a", first);
  EXPECT_THAT(listOf(first), testing::ElementsAre("a", "b"));
  Answer again;
  gather(Rank{1}, 7, "b", again);
  EXPECT_THAT(listOf(again), testing::ElementsAre("a", "b"));
  // The next round of the same key is another request.
  Answer next;
  gather(Rank{1}, 8, "c", next);
  EXPECT_FALSE(next.has_value());
}

TEST_F(TableTest, AnotherValueOfTheSameRankIsRefused) {
  Answer first;
  Answer second;
  gather(Rank{1}, 7, "b", first);
  gather(Rank{1}, 8, "c", second);
  EXPECT_EQ(second->status().code(), Code::kAlreadyExists);
  EXPECT_FALSE(first.has_value());
}

}  // namespace
}  // namespace sluice::rendezvous
