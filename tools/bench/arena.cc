#include <tools/bench/arena.h>

#include <algorithm>
#include <fstream>

#include <fmt/format.h>

#include <sluice/transport/fabric/tcp/tcp_fabric.h>
#include <tools/bench/yardstick.h>

namespace sluice::bench {
namespace {

std::string machinesCongestionControl() {
  std::string name = "unknown";
  std::ifstream("/proc/sys/net/ipv4/tcp_congestion_control") >> name;
  return name;
}

}  // namespace

Result<std::unique_ptr<Arena>> Arena::up(uint32_t hosts, Rate rate, const HostRates& unlike,
                                         const base::Config& config) {
  if (hosts < 2) return Status(Code::kInvalidArgument, "a replay needs at least two hosts");
  lab::Layout layout;
  layout.hosts = static_cast<int>(hosts);
  layout.rate = rate;
  layout.congestionControl = fabric::readTcpOptions(config).congestionControl;
  SLUICE_ASSIGN_OR_RETURN(auto lab, lab::TemporaryLab::up(layout));
  std::unique_ptr<Arena> arena(new Arena(
      std::move(lab), hosts, rate,
      layout.congestionControl.empty() ? machinesCongestionControl() : layout.congestionControl));
  SLUICE_ASSIGN_OR_RETURN(arena->goodput_,
                          measureGoodput(arena->lab(), {{1, 0}}, std::chrono::seconds(2)));
  for (const auto& [host, own] : unlike) {
    if (host >= hosts)
      return Status(Code::kInvalidArgument, fmt::format("--host-rate: there is no host {}", host));
    SLUICE_RETURN_IF_ERROR((*arena->lab_)->setRate({static_cast<int>(host)}, own));
    if (own.bitsPerSecond < arena->slowest_.bitsPerSecond) arena->slowest_ = own;
  }
  return arena;
}

double Arena::burstSeconds() const {
  const lab::Shape shape = lab::shapeFor(rate_);
  return 8 * static_cast<double>(shape.burstBytes) / static_cast<double>(shape.rateBits);
}

std::string Arena::toString() const {
  const auto gbit = [](Rate rate) { return static_cast<double>(rate.bitsPerSecond) / 1e9; };
  return fmt::format("{} hosts at {}, {}: {:.3f} Gbit/s of payload; iperf3 reaches {:.3f} Gbit/s",
                     hosts_, base::formatRate(rate_), congestionControl_, gbit(payloadRate()),
                     gbit(goodput_));
}

Rate defaultRate(const Profile& profile, uint32_t hosts) {
  constexpr uint64_t kLargeModel = 100'000'000;  // parameters: iterations would else take too long
  constexpr uint32_t kFew = 4;  // hosts; more than these share what half of these had
  const uint64_t few = profile.parameters() > kLargeModel ? 2'300'000'000 : 1'200'000'000;
  return {hosts <= kFew ? few : few * (kFew / 2) / hosts};
}

}  // namespace sluice::bench
