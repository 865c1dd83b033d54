// A test tool: strangers in numbers at ports of this host.
//
//   flood SECONDS RATE FROM:PORT [FROM:PORT ...]
//
// For SECONDS (30 at most) it makes RATE connections a second (5,000 at most) from each loopback
// address FROM to that port of 127.0.0.1: silent ones, ones that say one byte, and ones that say a
// first message with a wrong proof. It keeps the last few hundred of them open. Prints how many it
// made a second.
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <deque>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/net/address.h>
#include <sluice/base/net/fd.h>
#include <sluice/secret/handshake.h>

namespace sluice {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kKeptOpen = 600;
constexpr auto kTick = std::chrono::milliseconds(4);

// Makes the connection end with a reset: ports that wait for their connection's late packets would
// soon run out.
void endWithReset(int socket) {
  const linger atOnce{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &atOnce, sizeof atOnce);
}

class Flood final {
 public:
  explicit Flood(const Address& source)
      : from_(source.withPort(0)), to_(Address::loopback(source.port())) {}

  void makeOne() {
    net::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return;
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    endWithReset(socket.get());
    if (::bind(socket.get(), from_.raw(), from_.rawSize()) != 0) return;
    // A loopback connection is made at once, or the port does not take it now.
    const bool isDone =
        ::connect(socket.get(), to_.raw(), to_.rawSize()) == 0 || errno == EINPROGRESS;
    if (!isDone) return;
    ++made_;
    if (made_ % 3 == 1) {
      ::send(socket.get(), "s", 1, MSG_NOSIGNAL);
    } else if (made_ % 3 == 2) {
      const auto purpose = made_ % 2 == 0 ? secret::Purpose::kFabric : secret::Purpose::kRendezvous;
      auto stranger = secret::Handshake::client(key_, purpose, {});
      const auto hello = stranger.takeToSend();
      ::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL);
    }
    open_.push_back(std::move(socket));
    if (open_.size() > kKeptOpen) open_.pop_front();
  }
  size_t made() const { return made_; }

 private:
  const Address from_;
  const Address to_;
  const secret::JobKey key_ = secret::JobKey::random();
  std::deque<net::Fd> open_;
  size_t made_ = 0;
};

int run(const std::vector<std::string>& arguments) {
  double seconds = 0;
  double rate = 0;
  std::deque<Flood> floods;  // they stay where they are
  const auto number = [](const std::string& text, double& value) {
    return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
  };
  bool isGood = arguments.size() >= 3 && number(arguments[0], seconds) &&
                number(arguments[1], rate) && seconds <= 30 && rate <= 5000;
  for (size_t i = 2; isGood && i < arguments.size(); ++i) {
    const auto source = Address::parse(arguments[i]);
    isGood = source.isOk() && source->isLoopback();
    if (isGood) floods.emplace_back(*source);
  }
  if (!isGood) {
    fmt::print(
        stderr,
        "flood SECONDS RATE FROM:PORT [FROM:PORT ...], at most 30 s, 5000 a second, on loopback\n");
    return 2;
  }
  const auto begun = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begun).count(); };
  while (passed() < seconds) {
    const auto due = static_cast<size_t>(std::min(passed(), seconds) * rate);
    for (Flood& flood : floods) {
      // A late flood makes up for lost time, but not all at once.
      for (int i = 0; i < 100 && flood.made() < due; ++i) flood.makeOne();
    }
    std::this_thread::sleep_for(kTick);
  }
  for (const Flood& flood : floods) {
    fmt::print("{:.0f} ", static_cast<double>(flood.made()) / passed());
  }
  return 0;
}

}  // namespace
}  // namespace sluice

int main(int count, char** texts) {
  return sluice::run(std::vector<std::string>(texts + 1, texts + count));
}
