#include <tools/cli/lab/lab_etcd.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/net/address.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/text.h>
#include <tools/lab/state_directory.h>

namespace sluice::cli {
namespace {

using namespace std::chrono_literals;

constexpr uint16_t kEtcdClientPort = 2379;
constexpr uint16_t kEtcdPeerPort = 2380;
constexpr auto kLongestStart = 30s;

std::string etcdProgram() {
  const char* path = std::getenv("PATH");
  for (const auto folder : base::split(path == nullptr ? "/usr/bin" : path, ':')) {
    std::string file = fmt::format("{}/etcd", folder);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

std::vector<std::string> etcdCommand(const lab::Layout& layout, int host,
                                     const std::filesystem::path& folder) {
  const auto urlOf = [&](int of, uint16_t port) {
    return fmt::format("http://{}:{}", lab::hostAddress(layout.subnet, of), port);
  };
  std::vector<std::string> cluster;
  for (int other = layout.hosts - layout.etcd; other < layout.hosts; ++other)
    cluster.push_back(fmt::format("h{}={}", other, urlOf(other, kEtcdPeerPort)));
  const std::string client = urlOf(host, kEtcdClientPort);
  const std::string peer = urlOf(host, kEtcdPeerPort);
  return {etcdProgram(),
          fmt::format("--name=h{}", host),
          fmt::format("--data-dir={}/h{}", folder.string(), host),
          "--listen-client-urls=" + client,
          "--advertise-client-urls=" + client,
          "--listen-peer-urls=" + peer,
          "--initial-advertise-peer-urls=" + peer,
          fmt::format("--initial-cluster={}", fmt::join(cluster, ",")),
          "--initial-cluster-token=" + layout.name,
          "--initial-cluster-state=new",
          "--pre-vote=true",
          "--logger=zap",
          "--log-level=warn"};
}

// Becomes the server. Only returns if that fails.
void becomeEtcd(const lab::Lab& lab, int host, std::vector<std::string> command,
                const std::string& log) {
  ::setsid();
  const int nothing = ::open("/dev/null", O_RDONLY);
  const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (nothing < 0 || file < 0) return;
  ::dup2(nothing, 0);
  ::dup2(file, 1);
  ::dup2(file, 2);
  if (const Status entered = lab.enter(host); !entered.isOk()) {
    fmt::print(stderr, "{}\n", entered.toString());
    return;
  }
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(arguments[0], arguments.data());
}

bool isServing(const net::Address& address) {
  const net::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = 1, .tv_usec = 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  constexpr std::string_view kQuestion = "GET /health HTTP/1.0\r\n\r\n";
  if (::connect(socket.get(), address.raw(), address.rawSize()) != 0) return false;
  if (::send(socket.get(), kQuestion.data(), kQuestion.size(), MSG_NOSIGNAL) < 0) return false;
  std::array<char, 4096> bytes{};
  std::string answer;
  for (ssize_t got = 0; (got = ::recv(socket.get(), bytes.data(), bytes.size(), 0)) > 0;)
    answer.append(bytes.data(), static_cast<size_t>(got));
  return answer.find(R"("health":"true")") != std::string::npos;
}

// Runs in a process on a host of the lab: the servers cannot be reached from outside.
bool waitUntilServing(const std::vector<net::Address>& servers) {
  const auto end = std::chrono::steady_clock::now() + kLongestStart;
  for (const net::Address& server : servers) {
    while (!isServing(server)) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(20ms);
    }
  }
  return true;
}

}  // namespace

Status checkEtcdIsInstalled() {
  if (!etcdProgram().empty()) return base::ok();
  return {Code::kUnavailable, "there is no program etcd; install it (Debian: etcd-server)"};
}

Result<std::string> startEtcd(const lab::Lab& lab, const lab::Layout& layout) {
  SLUICE_ASSIGN_OR_RETURN(const auto files, lab::stateDirectory());
  const auto folder = files / (lab.name() + ".etcd");
  std::error_code error;
  std::filesystem::create_directory(folder, error);
  if (error) return base::fromErrno("cannot make " + folder.string(), error.value());
  std::vector<net::Address> servers;
  std::vector<std::string> names;
  for (int host = layout.hosts - layout.etcd; host < layout.hosts; ++host) {
    names.push_back(lab::hostAddress(layout.subnet, host));
    SLUICE_ASSIGN_OR_RETURN(servers.emplace_back(), net::Address::parse(fmt::format(
                                                        "{}:{}", names.back(), kEtcdClientPort)));
    const pid_t pid = ::fork();
    if (pid < 0) return base::fromErrno("fork");
    if (pid == 0) {
      becomeEtcd(lab, host, etcdCommand(layout, host, folder),
                 (folder / fmt::format("h{}.log", host)).string());
      ::_exit(1);
    }
  }
  const pid_t waiter = ::fork();
  if (waiter < 0) return base::fromErrno("fork");
  if (waiter == 0) {
    const bool isThere = lab.enter(layout.hosts - layout.etcd).isOk();
    ::_exit(isThere && waitUntilServing(servers) ? 0 : 1);
  }
  int status = 0;
  ::waitpid(waiter, &status, 0);
  if (status != 0)
    return Status(Code::kUnavailable,
                  fmt::format("the etcd servers of lab {} do not serve within {} s; their logs are "
                              "in {}",
                              lab.name(), kLongestStart.count(), folder.string()));
  return fmt::format("etcd://{}", fmt::join(names, ","));
}

}  // namespace sluice::cli
