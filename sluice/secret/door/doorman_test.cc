#include <sluice/secret/door/doorman.h>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include <sluice/base/mutex.h>
#include <sluice/secret/door/greeting.h>
#include <sluice/secret/door/listen.h>

namespace sluice::door {
namespace {

using namespace std::chrono_literals;
using secret::Handshake;
using secret::Purpose;

class AtTheDoor : public testing::Test {
 protected:
  struct Seen {
    size_t greeted = 0;
    size_t proved = 0;
    std::vector<Code> turnedAway;
  };

  void open(const DoorOptions& options) {
    net::Fd listener = listenOn(Address::loopback(0)).value();
    address_ = Address::localOf(listener.get());
    doorman_ = std::make_unique<Doorman>(
        makeDoorThread(), std::move(listener), options,
        Doorman::Handlers{.greet =
                              [this](net::Fd socket, const Address&) {
                                seen_.with([](Seen& seen) { ++seen.greeted; });
                                return std::make_unique<Greeting>(
                                    std::move(socket), Handshake::server(key_, Purpose::kFabric));
                              },
                          .proved =
                              [this](std::unique_ptr<Applicant>) {
                                seen_.with([](Seen& seen) { ++seen.proved; });
                              },
                          .turnedAway =
                              [this](const Address&, const Status& why) {
                                seen_.with(
                                    [&](Seen& seen) { seen.turnedAway.push_back(why.code()); });
                              }});
  }

  net::Fd knock() {
    net::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval patience{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(socket.get(), address_.raw(), address_.rawSize()), 0) << errno;
    return socket;
  }
  static void say(const net::Fd& socket, std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), std::ssize(bytes));
  }
  // Returns the number of bytes that came before the other end hung up, at most into.size().
  static size_t hear(const net::Fd& socket, std::span<std::byte> into) {
    const ssize_t got = ::recv(socket.get(), into.data(), into.size(), MSG_WAITALL);
    return static_cast<size_t>(std::max<ssize_t>(got, 0));
  }
  // A stranger whom the doorman sees, since it has said something.
  net::Fd stranger() {
    net::Fd socket = knock();
    say(socket, std::array{std::byte{'s'}});
    return socket;
  }

  template <typename Condition>
  Seen waitUntil(Condition condition) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    Seen seen;
    do {
      seen = seen_.with([](const Seen& now) { return now; });
      if (condition(seen)) return seen;
      std::this_thread::sleep_for(1ms);
    } while (std::chrono::steady_clock::now() < until);
    ADD_FAILURE() << seen.greeted << " greeted, " << seen.proved << " proved, "
                  << seen.turnedAway.size() << " turned away";
    return seen;
  }

  const secret::JobKey key_ = secret::JobKey::random();
  base::Guarded<Seen> seen_;
  Address address_;
  std::unique_ptr<Doorman> doorman_;
};

TEST_F(AtTheDoor, AConnectionThatShowedTheKeyIsNotDroppedForStrangers) {
  open({.deadline = 30s, .maxStrangers = 4});
  const net::Fd member = knock();
  auto handshake = Handshake::client(key_, Purpose::kFabric, {});
  say(member, handshake.takeToSend());
  std::array<std::byte, Handshake::kAnswerBytes> answer{};
  ASSERT_EQ(hear(member, answer), answer.size());
  // The member's last message is on its way all the while.
  std::vector<net::Fd> crowd;
  for (int i = 0; i < 200; ++i) crowd.push_back(stranger());
  const Seen crowded = waitUntil([](const Seen& seen) { return seen.turnedAway.size() >= 196; });
  EXPECT_TRUE(std::ranges::all_of(crowded.turnedAway,
                                  [](Code code) { return code == Code::kUnavailable; }));
  ASSERT_TRUE(handshake.received(answer).isOk());
  say(member, handshake.takeToSend());
  waitUntil([](const Seen& seen) { return seen.proved == 1; });
  // The oldest strangers were dropped.
  std::array<std::byte, 1> byte{};
  EXPECT_EQ(hear(crowd.front(), byte), 0U);
}

TEST_F(AtTheDoor, AConnectionWithoutAByteIsNotAccepted) {
  open({});
  const net::Fd silent = knock();
  const net::Fd talking = stranger();
  waitUntil([](const Seen& seen) { return seen.greeted == 1; });
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(seen_.with([](const Seen& seen) { return seen.greeted; }), 1U);
}

TEST_F(AtTheDoor, ANarrowDoorStillLetsAMemberIn) {
  open({.deadline = 30s, .maxStrangers = 256});
  doorman_->narrow();
  std::vector<net::Fd> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(stranger());
  const net::Fd member = knock();
  auto handshake = Handshake::client(key_, Purpose::kFabric, {});
  say(member, handshake.takeToSend());
  std::array<std::byte, Handshake::kAnswerBytes> answer{};
  ASSERT_EQ(hear(member, answer), answer.size());
  ASSERT_TRUE(handshake.received(answer).isOk());
  say(member, handshake.takeToSend());
  waitUntil([](const Seen& seen) { return seen.proved == 1 && seen.turnedAway.size() >= 36; });
}

TEST_F(AtTheDoor, AHelloOfAnotherKeyIsAnsweredAndTurnedAway) {
  open({});
  const net::Fd socket = knock();
  auto handshake = Handshake::client(secret::JobKey::random(), Purpose::kFabric, {});
  say(socket, handshake.takeToSend());
  std::array<std::byte, Handshake::kAnswerBytes> answer{};
  ASSERT_EQ(hear(socket, answer), answer.size());
  EXPECT_EQ(handshake.received(answer).code(), Code::kPermissionDenied);
  EXPECT_EQ(waitUntil([](const Seen& seen) { return seen.turnedAway.size() == 1; }).turnedAway[0],
            Code::kPermissionDenied);
}

TEST_F(AtTheDoor, TheDeadlineEndsAHandshakeThatStandsStill) {
  open({.deadline = 50ms});
  const net::Fd socket = stranger();
  EXPECT_EQ(waitUntil([](const Seen& seen) { return seen.turnedAway.size() == 1; }).turnedAway[0],
            Code::kTimeout);
}

TEST_F(AtTheDoor, ThePortIsFreeWhenTheDoormanHasGone) {
  open({});
  std::vector<net::Fd> crowd;
  for (int i = 0; i < 20; ++i) crowd.push_back(stranger());
  doorman_.reset();
  EXPECT_TRUE(listenOn(address_).isOk());
}

}  // namespace
}  // namespace sluice::door
