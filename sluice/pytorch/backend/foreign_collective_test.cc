// The contract of Collective, over a process group of c10d. A group of Gloo cannot be made in C++,
// as the wheel has none of its headers (tests/python trains over Gloo), so the group is one of our
// own backend.
#include <sluice/pytorch/foreign_collective.h>

#include <thread>

#include <gtest/gtest.h>

#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/testing/free_port.h>
#include <sluice/data/collective/testing/contract_suite.h>
#include <sluice/pytorch/backend/backend.h>
#include <sluice/pytorch/backend/process_group.h>
#include <sluice/pytorch/core_table.h>

namespace sluice::collective::contract {
namespace {

using namespace std::chrono_literals;
using pytorch::BackendLink;

// A seat whose group is reached through the table, as from Python.
class ForeignSeat final : public CollectiveSeat {
 public:
  explicit ForeignSeat(std::shared_ptr<pytorch::CoreGroup> communicator)
      : connection_(std::make_shared<BackendLink>(std::move(communicator))) {
    const auto backend = c10::make_intrusive<pytorch::SluiceBackend>(
        connection_, 30s, [](BackendLink& connection) { connection.close(); });
    const auto type = c10d::ProcessGroup::BackendType::CUSTOM;
    group_ = c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
    group_->setBackend(c10::DeviceType::CPU, type, backend);
    group_->setDefaultBackend(type);
    engine_ = std::make_unique<pytorch::ForeignCollective>(thread_.loop(),
                                                           pytorch::giveProcessGroup(group_));
  }

  Loop& loop() override { return thread_.loop(); }
  Collective& collective() override { return *engine_; }
  void die() override { connection_->close(); }

 private:
  net::LoopThread thread_{"rank"};
  const std::shared_ptr<BackendLink> connection_;
  pytorch::GroupPtr group_;
  std::unique_ptr<pytorch::ForeignCollective> engine_;
};

// Makes all ranks at once, since they wait for each other.
std::vector<std::unique_ptr<CollectiveSeat>> makeSeats(uint32_t world) {
  EXPECT_TRUE(pytorch::attachCore(pytorch::coreTable()).isOk());
  const std::string port = base::freePort();
  std::vector<std::unique_ptr<CollectiveSeat>> seats(world);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      const pytorch::CoreGroup::Values environment{{"RANK", std::to_string(r)},
                                                   {"WORLD_SIZE", std::to_string(world)},
                                                   {"MASTER_ADDR", "127.0.0.1"},
                                                   {"MASTER_PORT", port}};
      auto group = pytorch::CoreGroup::join({{"log", "warn"}}, environment, 30s, {}, {});
      ASSERT_TRUE(group.isOk()) << group.status().toString();
      seats[r] = std::make_unique<ForeignSeat>(*std::move(group));
    });
  }
  for (auto& thread : threads) thread.join();
  return seats;
}

INSTANTIATE_TEST_SUITE_P(C10d, CollectiveContract,
                         testing::Values(CollectiveCase{"c10d", makeSeats}), caseName);

}  // namespace
}  // namespace sluice::collective::contract
