// The contract of Collective, over a process group of c10d. A group of Gloo cannot be made in C++,
// as the wheel has none of its headers (tests/python trains over Gloo), so the group is one of our
// own backend.
#include <sluice/pytorch/backend/c10d_collective.h>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

#include <sluice/base/net/epoll_loop.h>
#include <sluice/data/collective/testing/contract_suite.h>
#include <sluice/pytorch/backend/backend.h>

namespace sluice::collective::contract {
namespace {

using namespace std::chrono_literals;
using pytorch::C10dCollective;
using pytorch::Connection;

class C10dSeat final : public Seat {
 public:
  explicit C10dSeat(std::shared_ptr<pytorch::GroupCommunicator> group)
      : connection_(std::make_shared<Connection>(std::move(group))) {
    const auto backend = c10::make_intrusive<pytorch::SluiceBackend>(
        connection_, 30s, [](Connection& connection) { connection.close(); });
    const auto type = c10d::ProcessGroup::BackendType::CUSTOM;
    const auto group =
        c10::make_intrusive<c10d::ProcessGroup>(backend->getRank(), backend->getSize());
    group->setBackend(c10::DeviceType::CPU, type, backend);
    group->setDefaultBackend(type);
    engine_ = std::make_unique<C10dCollective>(thread_.loop(), group);
  }

  Loop& loop() override { return thread_.loop(); }
  Collective& collective() override { return *engine_; }
  void die() override { connection_->close(); }

 private:
  net::LoopThread thread_{"rank"};
  const std::shared_ptr<Connection> connection_;
  std::unique_ptr<C10dCollective> engine_;
};

std::string freePort() {
  const int descriptor = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::bind(descriptor, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(descriptor);
  return std::to_string(ntohs(address.sin_port));
}

// Makes all ranks at once, since they wait for each other.
std::vector<std::unique_ptr<Seat>> makeSeats(uint32_t world) {
  const std::string port = freePort();
  std::vector<std::unique_ptr<Seat>> seats(world);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < world; ++r) {
    threads.emplace_back([&, r] {
      const base::Config::Values environment{{"RANK", std::to_string(r)},
                                             {"WORLD_SIZE", std::to_string(world)},
                                             {"MASTER_ADDR", "127.0.0.1"},
                                             {"MASTER_PORT", port}};
      auto group = pytorch::GroupCommunicator::join({{"log", "warn"}}, environment, 30s, {});
      ASSERT_TRUE(group.isOk()) << group.status().toString();
      seats[r] = std::make_unique<C10dSeat>(*std::move(group));
    });
  }
  for (auto& thread : threads) thread.join();
  return seats;
}

INSTANTIATE_TEST_SUITE_P(C10d, CollectiveContract, testing::Values(EngineCase{"c10d", makeSeats}),
                         caseName);

}  // namespace
}  // namespace sluice::collective::contract
