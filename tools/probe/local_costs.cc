#include <tools/probe/local_costs.h>

#include <array>
#include <chrono>
#include <future>
#include <memory>
#include <vector>

#include <sluice/base/cpu_time.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/secret/job_key.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>

namespace sluice::probe {
namespace {

constexpr size_t kPiece = size_t{256} << 10;
constexpr size_t kPieces = 64;
constexpr auto kLimit = std::chrono::seconds(2);

// Takes everything, and says when the last piece is here.
class LocalEnd final : public fabric::Receiver {
 public:
  Result<fabric::Landing> onMessage(Rank, fabric::Lane, const wire::Header& header) override {
    if (header.length > buffer_.size())
      return Status(Code::kRefused, "a message is longer than any that a probe sends");
    return fabric::Landing{.buffer = {buffer_.data(), buffer_.size()},
                           .done = [this](const Status& status) {
                             if (!status.isOk()) return end(status);
                             if (++arrived_ == kPieces + 1) end(base::ok());
                             if (arrived_ == 1) first_.set_value();
                           }};
  }
  void onPeerLost(Rank, const Status& why) override { end(why); }
  void onPeerLeft(Rank) override {}

  std::future<void> first() { return first_.get_future(); }
  std::future<Status> ended() { return ended_.get_future(); }

 private:
  void end(const Status& status) {
    if (!std::exchange(hasEnded_, true)) ended_.set_value(status);
  }

  std::vector<std::byte> buffer_ = std::vector<std::byte>(kPiece);
  std::promise<void> first_;
  std::promise<Status> ended_;
  size_t arrived_ = 0;
  bool hasEnded_ = false;
};

}  // namespace

Result<double> measureLocalCost(bool encrypted) {
  net::LoopThread thread("probe-local");
  SLUICE_RETURN_IF_ERROR(thread.status());
  fabric::TcpOptions options;
  options.encrypt = encrypted ? fabric::Encrypt::kOn : fabric::Encrypt::kOff;
  const auto key = secret::JobKey::random();
  std::vector<fabric::TcpListener> listeners;
  std::vector<Address> addresses;
  for (int i = 0; i < 2; ++i) {
    SLUICE_ASSIGN_OR_RETURN(auto listener, fabric::TcpListener::open(Address::loopback(0)));
    addresses.push_back(listener.address());
    listeners.push_back(std::move(listener));
  }
  std::array<LocalEnd, 2> ends;
  std::vector<std::unique_ptr<fabric::Fabric>> fabrics;
  for (uint32_t i = 0; i < 2; ++i) {
    SLUICE_ASSIGN_OR_RETURN(
        auto fabric, fabric::makeTcpFabric(
                         thread.loop(), std::move(listeners[i]),
                         {.rank = Rank{i}, .epoch = Epoch{0}, .addresses = addresses, .key = key},
                         options, ends[i]));
    fabrics.push_back(std::move(fabric));
  }
  const std::vector<std::byte> payload(kPiece);
  const auto send = [&] {
    fabrics[0]->send(Rank{1}, fabric::Lane::kBulk, {}, {payload.data(), payload.size()},
                     [](const Status&) {});
  };
  auto first = ends[1].first();
  auto ended = ends[1].ended();
  send();  // the connection and its handshake are not what a GB costs
  Status status(Code::kTimeout, "moving bytes inside this host takes too long");
  double cost = 0;
  if (first.wait_for(kLimit) == std::future_status::ready) {
    const Duration before = base::processCpuTime();
    for (size_t i = 0; i < kPieces; ++i) send();
    if (ended.wait_for(kLimit) == std::future_status::ready) status = ended.get();
    const Duration used = base::processCpuTime() - before;
    cost = base::seconds(used) / (2.0 * kPieces * kPiece) * 1e9;
  }
  fabrics.clear();  // completes what is pending while `payload` and `ends` still live
  if (!status.isOk()) return status;
  return cost;
}

}  // namespace sluice::probe
