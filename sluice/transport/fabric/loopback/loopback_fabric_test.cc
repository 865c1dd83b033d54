#include <sluice/transport/fabric/loopback/loopback_fabric.h>

#include <sluice/base/testing/manual_loop.h>
#include <sluice/transport/fabric/testing/contract_suite.h>

namespace sluice::fabric {
namespace contract {
namespace {

template <typename ItsWorld>
class LoopbackEngine final : public Engine {
 public:
  explicit LoopbackEngine(size_t worldSize) : world_(worldSize), hub_(worldSize) {}
  World& world() override { return world_; }
  std::unique_ptr<Fabric> make(Rank rank, Receiver& receiver) override {
    return hub_.join(rank, world_.loop(index(rank)), receiver, {.closeDeadline = 1s});
  }

 private:
  ItsWorld world_;
  LoopbackHub hub_;
};

template <typename ItsWorld>
EngineCase loopbackIn(std::string name) {
  return {std::move(name), [](size_t worldSize) -> std::unique_ptr<Engine> {
            return std::make_unique<LoopbackEngine<ItsWorld>>(worldSize);
          }};
}

INSTANTIATE_TEST_SUITE_P(Loopback, FabricContract,
                         testing::Values(loopbackIn<ThreadWorld>("threads"),
                                         loopbackIn<SteppedFabrics>("stepped")),
                         caseName);

}  // namespace
}  // namespace contract

namespace {

TEST(LoopbackFabric, CanBeSteppedByHand) {
  base::ManualLoop loop;  // one for both ranks: a whole job in one thread
  contract::ReceiptRecorder first;
  contract::ReceiptRecorder second;
  first.loop = second.loop = &loop;
  LoopbackHub hub(2);
  auto from = hub.join(Rank{0}, loop, first);
  auto to = hub.join(Rank{1}, loop, second);
  contract::Completions ends;
  const auto payload = contract::pattern(100);
  from->send(Rank{1}, Lane::kBulk, {}, contract::view(payload), ends.expect());
  EXPECT_EQ(ends.ended(), 0U);
  loop.runReady();
  EXPECT_EQ(ends.countOf(Code::kOk), 1U);
  EXPECT_EQ(*second.seen.get().arrivals[0].bytes, payload);
  from->close(ends.expect());
  to->close(ends.expect());
  loop.runReady();
  EXPECT_EQ(ends.countOf(Code::kOk), 3U);
}

}  // namespace
}  // namespace sluice::fabric
