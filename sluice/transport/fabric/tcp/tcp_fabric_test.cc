#include <sluice/transport/fabric/tcp/tcp_fabric.h>

#include <sluice/transport/fabric/testing/contract_suite.h>

namespace sluice::fabric {
namespace contract {
namespace {

class TcpEngine final : public Engine {
 public:
  TcpEngine(size_t worldSize, Encrypt encrypt) : world_(worldSize) {
    options_.encrypt = encrypt;
    options_.closeDeadline = 2s;
    for (size_t i = 0; i < worldSize; ++i) {
      listeners_.push_back(TcpListener::open(Address::loopback(0)).value());
      membership_.addresses.push_back(listeners_.back().address());
    }
    membership_.key = secret::JobKey::random();
  }
  World& world() override { return world_; }
  std::unique_ptr<Fabric> make(Rank rank, Receiver& receiver) override {
    TcpMembership mine = membership_;
    mine.rank = rank;
    return makeTcpFabric(world_.loop(index(rank)), std::move(listeners_[index(rank)]), mine,
                         options_, receiver)
        .value();
  }

 private:
  ThreadWorld world_;
  TcpOptions options_;
  TcpMembership membership_;
  std::vector<TcpListener> listeners_;
};

EngineCase engineCase(std::string name, Encrypt encrypt) {
  return {std::move(name), [encrypt](size_t worldSize) -> std::unique_ptr<Engine> {
            return std::make_unique<TcpEngine>(worldSize, encrypt);
          }};
}

INSTANTIATE_TEST_SUITE_P(Tcp, FabricContract,
                         testing::Values(engineCase("plain", Encrypt::kOff),
                                         engineCase("encrypted", Encrypt::kOn)),
                         caseName);

// Every size around the limits of reads, writes and trailers, on its way with others.
TEST(TcpPayloads, ArriveUnchangedHoweverTheyAreChecked) {
  struct Case {
    Encrypt encrypt;
    wire::PayloadCheckKind check;
  };
  for (const Case& each : {Case{Encrypt::kOff, wire::PayloadCheckKind::kNone},
                           Case{Encrypt::kOff, wire::PayloadCheckKind::kCrc32c},
                           Case{Encrypt::kIntegrity, wire::PayloadCheckKind::kCrc32c}}) {
    SCOPED_TRACE(wire::name(each.check));
    TcpOptions options;
    options.encrypt = each.encrypt;
    options.payloadCheck = each.check;
    TcpMembership membership;
    membership.key = secret::JobKey::random();
    std::vector<TcpListener> listeners;
    for (int i = 0; i < 2; ++i) {
      listeners.push_back(TcpListener::open(Address::loopback(0)).value());
      membership.addresses.push_back(listeners.back().address());
    }
    Completions sends;
    std::vector<std::vector<std::byte>> payloads;
    for (const size_t size :
         {1, 4, 16, 72, 4096, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 3'000'000}) {
      for (const size_t around : {size - 1, size, size + 1}) payloads.push_back(pattern(around, 7));
    }
    std::array<ThreadRank, 2> ranks;
    for (uint32_t i = 0; i < 2; ++i) {
      ranks[i].receiver.loop = &ranks[i].thread.loop();
      membership.rank = Rank{i};
      ranks[i].fabric = makeTcpFabric(ranks[i].thread.loop(), std::move(listeners[i]), membership,
                                      options, ranks[i].receiver)
                            .value();
    }
    for (const auto& payload : payloads) {
      ranks[0].fabric->send(Rank{1}, Lane::kBulk, {}, view(payload), sends.expect());
    }
    ASSERT_TRUE(ranks[1].receiver.waitLanded(payloads.size()));
    ASSERT_TRUE(sends.waitForAll());
    const Seen seen = ranks[1].receiver.seen.get();
    for (size_t i = 0; i < payloads.size(); ++i) {
      EXPECT_TRUE(*seen.arrivals[i].bytes == payloads[i]) << payloads[i].size();
      EXPECT_TRUE(seen.arrivals[i].status.isOk());
    }
    for (auto& rank : ranks) rank.fabric.reset();
  }
}

}  // namespace
}  // namespace contract
}  // namespace sluice::fabric
