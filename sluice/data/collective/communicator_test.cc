#include <sluice/data/collective/communicator.h>

#include <gtest/gtest.h>

#include <sluice/data/kernel/element.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>
#include <sluice/transport/fabric/testing/contract_recorder.h>

namespace sluice::collective {
namespace {

using namespace std::chrono_literals;
using fabric::contract::Completions;
using fabric::contract::pattern;
using fabric::contract::Watched;
using Bytes = std::vector<std::byte>;

// One rank with a thread of its own.
class Peer final {
 public:
  Peer(fabric::LoopbackHub& hub, Rank rank)
      : communicator_(Communicator::start([&](fabric::Receiver& receiver) {
                        return Result<std::unique_ptr<fabric::Fabric>>(
                            hub.join(rank, thread_.loop(), receiver, {.closeDeadline = 1s}));
                      }).value()) {}

  // Makes a call on the loop; its completion is counted, after `then`.
  void call(std::function<void(Communicator&, CallTerms)> what, Duration atMost = 30s,
            Done then = nullptr) {
    thread_.loop().post(
        [this, what = std::move(what), atMost, done = ends_.expect(std::move(then))] {
          what(*communicator_, {.atMost = atMost, .memory = nullptr, .done = done});
        });
  }
  [[nodiscard]] bool waitForAll() { return ends_.waitForAll(); }
  Completions& ends() { return ends_; }
  void leave() { communicator_.reset(); }

 private:
  Completions ends_;
  net::LoopThread thread_{"rank"};
  std::unique_ptr<Communicator> communicator_;
};

class CommunicatorTest : public testing::Test {
 protected:
  void make(uint32_t world) {
    hub_ = std::make_unique<fabric::LoopbackHub>(world);
    for (uint32_t r = 0; r < world; ++r) peers_.push_back(std::make_unique<Peer>(*hub_, Rank{r}));
  }
  void expectAllWell() {
    for (const auto& peer : peers_) {
      ASSERT_TRUE(peer->waitForAll());
      for (size_t i = 0; i < peer->ends().ended(); ++i)
        ASSERT_EQ(peer->ends().status(i).toString(), "ok");
    }
  }
  Peer& at(uint32_t rank) { return *peers_[rank]; }
  uint32_t world() const { return static_cast<uint32_t>(peers_.size()); }

 private:
  std::unique_ptr<fabric::LoopbackHub> hub_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

// Makes a leg with a parcel to and from every other rank, but not itself.
Leg toEverybody(uint32_t self, std::vector<Bytes>& out, std::vector<Bytes>& in) {
  Leg leg;
  for (uint32_t r = 0; r < out.size(); ++r) {
    if (r == self) continue;
    leg.sends.push_back({Rank{r}, out[r]});
    leg.receives.push_back({Rank{r}, in[r]});
  }
  return leg;
}

TEST_F(CommunicatorTest, AnExchangeBringsEachPieceToItsPlace) {
  make(3);
  std::vector<std::vector<Bytes>> out(3);
  std::vector<std::vector<Bytes>> in(3);
  for (uint32_t r = 0; r < 3; ++r) {
    for (uint32_t to = 0; to < 3; ++to) {
      out[r].push_back(pattern(1000 * to + 10 * r, r * 3 + to));  // some are empty
      in[r].emplace_back(1000 * r + 10 * to);
    }
    at(r).call([&, r](Communicator& c, CallTerms terms) {
      c.exchange(CallKind::kAllToAll, {toEverybody(r, out[r], in[r])}, std::move(terms));
    });
  }
  ASSERT_NO_FATAL_FAILURE(expectAllWell());
  for (uint32_t r = 0; r < 3; ++r) {
    for (const uint32_t from : {(r + 1) % 3, (r + 2) % 3})
      EXPECT_EQ(in[r][from], out[from][r]) << from << " -> " << r;
  }
}

TEST_F(CommunicatorTest, PiecesLongerThanAMessageArriveWhole) {
  make(2);
  Bytes data = pattern((size_t{40} << 20) + 3);
  Bytes landed(data.size());
  at(0).call([&](Communicator& c, CallTerms terms) {
    c.exchange(CallKind::kGather, {{.sends = {{Rank{1}, data}}}}, std::move(terms));
  });
  at(1).call([&](Communicator& c, CallTerms terms) {
    c.exchange(CallKind::kGather, {{.receives = {{Rank{0}, landed}}}}, std::move(terms));
  });
  ASSERT_NO_FATAL_FAILURE(expectAllWell());
  EXPECT_TRUE(data == landed);
}

// A leg sends the result of the leg before.
TEST_F(CommunicatorTest, LegsFollowEachOther) {
  make(3);
  std::vector<Bytes> own(3, Bytes(1));
  std::vector<std::vector<Bytes>> parts(3, std::vector<Bytes>(3, Bytes(1)));
  std::vector<Bytes> result(3, Bytes(1));
  for (uint32_t r = 0; r < 3; ++r) {
    own[r][0] = static_cast<std::byte>(r + 1);
    std::vector<Leg> legs(2);
    for (uint32_t other = 1; other < 3 && r == 0; ++other) {
      legs[0].receives.push_back({Rank{other}, parts[0][other]});
      legs[1].sends.push_back({Rank{other}, result[0]});
    }
    if (r == 0) {
      legs[0].then = [&] { result[0][0] = own[0][0] | parts[0][1][0] | parts[0][2][0]; };
    } else {
      legs[0].sends.push_back({Rank{0}, own[r]});
      legs[1].receives.push_back({Rank{0}, result[r]});
    }
    at(r).call([legs](Communicator& c, CallTerms terms) {
      c.exchange(CallKind::kAllReduce, legs, std::move(terms));
    });
  }
  ASSERT_NO_FATAL_FAILURE(expectAllWell());
  for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(result[r][0], std::byte{3});
}

// Rank 0 begins both calls at once. Rank 1 begins the second only when the first has ended: that
// must not stop the stream that the first waits for.
TEST_F(CommunicatorTest, ARankMayBeAheadOfTheOthers) {
  make(2);
  std::vector<std::vector<Bytes>> data(2, std::vector<Bytes>(2, Bytes(size_t{1} << 20)));
  for (auto& calls : data) {
    for (auto& bytes : calls) kernel::storeAt(bytes.data(), 7, 1.5F);
  }
  const auto reduce = [&](uint32_t rank, size_t n) {
    return [&data, rank, n](Communicator& c, CallTerms terms) {
      c.allReduce(data[rank][n], DType::kF32, Method::kDirect, std::move(terms));
    };
  };
  for (size_t n = 0; n < 2; ++n) at(0).call(reduce(0, n));
  at(1).call(reduce(1, 0), 30s, [&](const Status&) { at(1).call(reduce(1, 1)); });
  ASSERT_NO_FATAL_FAILURE(expectAllWell());
  ASSERT_NO_FATAL_FAILURE(expectAllWell());  // also the call that was made last
  for (const auto& calls : data) {
    for (const auto& bytes : calls) EXPECT_EQ(kernel::loadAt<float>(bytes.data(), 7), 3.0F);
  }
}

TEST_F(CommunicatorTest, ABroadcastMayComeBeforeAnybodyAskedAndItsRootMayLeave) {
  make(3);
  std::vector<Bytes> data{pattern(100'000), Bytes(100'000), Bytes(100'000)};
  const auto broadcast = [&](uint32_t rank) {
    return [&data, rank](Communicator& c, CallTerms terms) {
      c.broadcast(data[rank], Rank{0}, std::move(terms));
    };
  };
  at(0).call(broadcast(0));
  ASSERT_TRUE(at(0).waitForAll());
  at(0).leave();
  at(1).call(broadcast(1));
  at(2).call(broadcast(2));
  ASSERT_NO_FATAL_FAILURE(expectAllWell());
  EXPECT_EQ(data[1], data[0]);
  EXPECT_EQ(data[2], data[0]);
}

TEST_F(CommunicatorTest, ABarrierWaitsForTheLast) {
  make(3);
  const auto barrier = [](Communicator& c, CallTerms terms) { c.barrier(std::move(terms)); };
  at(0).call(barrier);
  at(1).call(barrier);
  EXPECT_FALSE(at(0).ends().waitForAll(fabric::contract::kMoment));
  at(2).call(barrier);
  expectAllWell();
}

TEST_F(CommunicatorTest, MessagesAreFoundByTagAndSender) {
  make(3);
  std::vector<Bytes> out{pattern(10, 1), pattern(20, 2), pattern(30, 3), Bytes()};
  std::vector<Bytes> in{Bytes(10), Bytes(20), Bytes(30), Bytes()};
  const auto send = [&](uint32_t from, uint32_t tag, size_t n) {
    at(from).call([&out, tag, n](Communicator& c, CallTerms terms) {
      c.send(Rank{1}, tag, out[n], std::move(terms));
    });
  };
  send(0, 5, 0);
  send(0, 6, 1);
  send(2, 5, 2);
  send(2, 9, 3);
  ASSERT_NO_FATAL_FAILURE(expectAllWell());
  std::vector<Watched<int>> sources(4);
  const auto receive = [&](std::optional<Rank> from, uint32_t tag, size_t n) {
    at(1).call([&, from, tag, n](Communicator& c, CallTerms terms) {
      c.receive(
          from, tag, in[n],
          [&, n](Rank rank) {
            sources[n].change([&](int& source) { source = static_cast<int>(index(rank)); });
          },
          std::move(terms));
    });
  };
  receive(Rank{0}, 6, 1);  // passes what was sent before it
  receive(Rank{2}, 5, 2);
  receive(std::nullopt, 5, 0);
  receive(std::nullopt, 9, 3);
  ASSERT_NO_FATAL_FAILURE(expectAllWell());
  EXPECT_EQ(in, out);
  EXPECT_EQ(sources[0].get(), 0);
  EXPECT_EQ(sources[3].get(), 2);
}

TEST_F(CommunicatorTest, AMessageOfAnotherSizeIsRefusedAndTheNextOneComes) {
  make(2);
  Bytes three(3);
  Bytes four(4);
  for (Bytes* bytes : {&three, &four}) {
    at(0).call(
        [=](Communicator& c, CallTerms terms) { c.send(Rank{1}, 0, *bytes, std::move(terms)); });
  }
  for (int n = 0; n < 2; ++n) {
    at(1).call([&](Communicator& c, CallTerms terms) {
      c.receive(Rank{0}, 0, four, nullptr, std::move(terms));
    });
  }
  ASSERT_TRUE(at(1).waitForAll());
  EXPECT_EQ(at(1).ends().status(0).message(),
            "receive 0: rank 0 has sent 3 bytes with tag 0, but 4 are to be received: both sides "
            "must give a "
            "tensor of the same size");
  EXPECT_EQ(at(1).ends().status(1).toString(), "ok");
  EXPECT_TRUE(at(0).waitForAll());
}

TEST_F(CommunicatorTest, OtherCallsThanTheOthersMakeEndWithBothNames) {
  make(2);
  Bytes data(1000);
  at(0).call(
      [&](Communicator& c, CallTerms terms) { c.broadcast(data, Rank{0}, std::move(terms)); });
  ASSERT_TRUE(at(0).waitForAll());
  at(1).call([&](Communicator& c, CallTerms terms) { c.barrier(std::move(terms)); });
  at(0).call([&](Communicator& c, CallTerms terms) { c.barrier(std::move(terms)); });
  ASSERT_TRUE(at(1).waitForAll());
  EXPECT_EQ(at(1).ends().status().code(), Code::kInvalidArgument);
  EXPECT_NE(at(1).ends().status().message().find("call 0 is broadcast on rank 0 and barrier here"),
            std::string::npos)
      << at(1).ends().status().message();
  at(1).leave();
  EXPECT_TRUE(at(0).waitForAll());
}

TEST_F(CommunicatorTest, OtherSizesThanTheOthersGiveEndWithAName) {
  make(2);
  std::vector<Bytes> data{Bytes(4000), Bytes(8000)};
  for (uint32_t r = 0; r < 2; ++r) {
    at(r).call([&, r](Communicator& c, CallTerms terms) {
      c.allReduce(data[r], DType::kF32, Method::kDirect, std::move(terms));
    });
  }
  for (uint32_t r = 0; r < 2; ++r) {
    ASSERT_TRUE(at(r).waitForAll());
    EXPECT_NE(at(r).ends().status().message().find(
                  fmt::format("rank {} gives all-reduce 0 other sizes", 1 - r)),
              std::string::npos)
        << at(r).ends().status().message();
  }
}

TEST_F(CommunicatorTest, TimeIsUpNamesWhoIsMissingAndEndsAllElse) {
  make(3);
  Bytes data(4000);
  at(0).call([](Communicator& c, CallTerms terms) { c.barrier(std::move(terms)); }, 50ms);
  at(0).call([&](Communicator& c, CallTerms terms) {
    c.receive(Rank{1}, 0, data, nullptr, std::move(terms));
  });
  at(1).call([](Communicator& c, CallTerms terms) { c.barrier(std::move(terms)); }, 20s);
  ASSERT_TRUE(at(0).waitForAll());
  EXPECT_EQ(at(0).ends().status(0).toString(),
            "timeout: barrier 0: not done after 50ms: nothing from rank 2");
  EXPECT_EQ(at(0).ends().status(1).code(), Code::kTimeout);
  at(2).leave();
  ASSERT_TRUE(at(1).waitForAll());
  EXPECT_EQ(at(1).ends().status().toString(),
            "peer lost: barrier 0: rank 2 has left the process group");
}

}  // namespace
}  // namespace sluice::collective
