// Processes ask for the key of a job that has none of its own. Becoming another user needs root.
#include <sluice/join/rendezvous/same_user.h>

#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sluice/join/rendezvous/testing/test_world.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr uid_t kNobody = 65534;

class SameUser : public testing::Test {
 protected:
  ~SameUser() override {
    onLoop(loop(), [&] { server_.reset(); });
  }

  net::EpollLoop& loop() { return thread_.loop(); }

  Status serve() {
    return onLoop(loop(), [&] {
      auto server = KeyServer::start(loop(), master_, key_);
      if (server.isOk()) server_ = *std::move(server);
      return server.status();
    });
  }

  Result<secret::JobKey> ask() {
    std::future<Result<secret::JobKey>> answer;
    auto got = completion(answer);
    KeyRequest request(loop(), master_);
    const Status asked = onLoop(loop(), [&] { return request.start(got); });
    if (!asked.isOk()) return asked;
    auto key = answer.get();
    onLoop(loop(), [] {});  // the request must not be gone before its callback has returned
    return key;
  }

  // The name that a process of root uses, as sockets take it.
  std::pair<sockaddr_un, socklen_t> name() const {
    const std::string text = "sluice 0 " + master_.toString();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, text.data(), text.size());
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())};
  }

  // Starts a process of another user that runs `body` and ends with its result. `body` makes only
  // plain system calls.
  template <typename Body>
  static pid_t asNobody(Body body) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    if (::setresgid(kNobody, kNobody, kNobody) != 0 || ::setresuid(kNobody, kNobody, kNobody) != 0)
      ::_exit(99);
    ::_exit(body());
  }
  static int exitCode(pid_t child) {
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // A port that is nobody else's while the test runs.
  const net::Fd reserved_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const Address master_ = [this] {
    const Address any = Address::loopback(0);
    EXPECT_EQ(::bind(reserved_.get(), any.raw(), any.rawSize()), 0);
    return Address::localOf(reserved_.get());
  }();
  const secret::JobKey key_ = secret::JobKey::random();
  net::LoopThread thread_{"test"};
  std::unique_ptr<KeyServer> server_;
};

TEST_F(SameUser, GetsTheKey) {
  EXPECT_EQ(ask().status().code(), Code::kUnavailable) << "nobody is there yet";
  ASSERT_EQ(serve(), base::ok());
  EXPECT_EQ(ask().value(), key_);
  EXPECT_EQ(ask().value(), key_);
}

TEST_F(SameUser, TheNameIsFreeAgainWhenTheServerHasGone) {
  ASSERT_EQ(serve(), base::ok());
  auto second = onLoop(loop(), [&] { return KeyServer::start(loop(), master_, key_).status(); });
  EXPECT_EQ(second.code(), Code::kPermissionDenied);
  EXPECT_THAT(second.message(), HasSubstr("pid " + std::to_string(::getpid())));
  onLoop(loop(), [&] { server_.reset(); });
  EXPECT_EQ(serve(), base::ok());
}

TEST_F(SameUser, AnotherUserGetsNothing) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ASSERT_EQ(serve(), base::ok());
  const pid_t child = asNobody([name = name()] {
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&name.first), name.second) != 0)
      return 98;
    char byte = 0;
    return static_cast<int>(::read(socket, &byte, 1));  // the end, without a byte of the key
  });
  EXPECT_EQ(exitCode(child), 0);
  EXPECT_EQ(ask().value(), key_) << "ranks of the right user still get it";
}

TEST_F(SameUser, AnotherUserThatTookTheNameIsNamedAndNotAsked) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = asNobody([name = name(), ready] {
    ::alarm(60);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    if (::bind(socket, reinterpret_cast<const sockaddr*>(&name.first), name.second) != 0) return 98;
    if (::listen(socket, 8) != 0 || ::write(ready[1], "x", 1) != 1) return 97;
    ::pause();
    return 0;
  });
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  for (const Status& refused : {serve(), ask().status()}) {
    EXPECT_EQ(refused.code(), Code::kPermissionDenied);
    EXPECT_THAT(refused.message(), HasSubstr("of user 65534 holds the name"));
  }
  // A rank that wants to join says so at once instead of waiting for its time to be up.
  RemoteOptions options{.master = {master_}, .rank = Rank{1}, .agreement = {}};
  options.keyFrom = master_;
  EXPECT_THAT(TestRank(loop(), options).join().get().message(),
              HasSubstr("of user 65534 holds the name"));
  ::kill(child, SIGKILL);
  EXPECT_EQ(exitCode(child), -1);
  ::close(ready[0]);
  ::close(ready[1]);
}

// Rank 1 comes before rank 0, and waits.
TEST(SameUserJob, RanksMeetWithTheKeyOfRankZero) {
  net::LoopThread ranks("ranks");
  const secret::JobKey key = secret::JobKey::random();
  TestServer server({.listen = {}, .key = key, .worldSize = 2, .agreement = {}});
  RemoteOptions options{.master = {server.address()}, .rank = Rank{1}, .agreement = {}};
  options.keyFrom = server.address();
  TestRank rank(ranks.loop(), options);
  auto joined = rank.join();
  EXPECT_EQ(joined.wait_for(100ms), std::future_status::timeout);
  std::unique_ptr<KeyServer> keys;
  onLoop(server.loop(),
         [&] { keys = KeyServer::start(server.loop(), server.address(), key).value(); });
  EXPECT_EQ(joined.get(), base::ok());
  onLoop(server.loop(), [&] { keys.reset(); });
}

}  // namespace
}  // namespace sluice::rendezvous
