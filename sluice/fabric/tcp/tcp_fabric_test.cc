#include <sluice/fabric/tcp/tcp_fabric.h>

#include <sluice/fabric/contract_test.h>

namespace sluice::fabric {
namespace contract {
namespace {

class TcpEngine final : public Engine {
 public:
  TcpEngine(size_t worldSize, Encrypt encrypt) {
    options_.encrypt = encrypt;
    options_.closeDeadline = 2s;
    for (size_t i = 0; i < worldSize; ++i) {
      listeners_.push_back(TcpListener::open(Address::loopback(0)).value());
      membership_.addresses.push_back(listeners_.back().address());
    }
    membership_.key = secret::JobKey::random();
  }
  std::unique_ptr<Fabric> make(Rank rank, base::EpollLoop& loop, Receiver& receiver) override {
    TcpMembership mine = membership_;
    mine.rank = rank;
    return makeTcpFabric(loop, std::move(listeners_[index(rank)]), mine, options_, receiver).value();
  }

 private:
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

}  // namespace
}  // namespace contract
}  // namespace sluice::fabric
