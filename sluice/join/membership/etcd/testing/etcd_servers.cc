#include <sluice/join/membership/etcd/testing/etcd_servers.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <sluice/base/net/address.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/text.h>
#include <sluice/join/membership/etcd/base64.h>

namespace sluice::membership {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "sluice-etcd-";

std::string findProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const auto folder : base::split(path == nullptr ? "/usr/bin" : path, ':')) {
    const std::string file = fmt::format("{}/{}", folder, name);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

// Each server takes 122 MB from its start, so that what a killed test has left is removed.
fs::path makeFolder() {
  const fs::path room = fs::exists("/dev/shm") ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(room, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with(kFolderPrefix)) continue;
    const int pid = std::atoi(name.c_str() + kFolderPrefix.size());
    if (pid > 0 && ::kill(pid, 0) != 0) fs::remove_all(entry.path(), ignored);
  }
  static int number = 0;
  const fs::path folder = room / fmt::format("{}{}-{}", kFolderPrefix, ::getpid(), number++);
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all);
  return folder;
}

// Ports that nobody listens on, all different.
std::vector<uint16_t> freePorts(size_t count) {
  std::vector<net::Fd> sockets;
  std::vector<uint16_t> ports;
  for (size_t i = 0; i < count; ++i) {
    net::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const net::Address any = net::Address::loopback(0);
    if (::bind(socket.get(), any.raw(), any.rawSize()) != 0) std::abort();
    ports.push_back(net::Address::localOf(socket.get()).port());
    sockets.push_back(std::move(socket));
  }
  return ports;
}

std::string outputOf(const std::string& command) {
  std::string output;
  FILE* pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return output;
  std::array<char, 4096> bytes{};
  for (size_t got = 0; (got = ::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;)
    output.append(bytes.data(), got);
  ::pclose(pipe);
  return output;
}

// A small authority, and one certificate that serves as that of a server and of a client. It has no
// common name: etcd's gateway refuses clients that have one once users are switched on.
void makeCertificates(const std::string& folder) {
  const std::string log = outputOf(fmt::format(
      "cd {} && exec 2>&1 && set -e; "
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
      "-subj /O=test -keyout ca.key -out ca.pem; "
      "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /O=member "
      "-keyout member.key -out member.csr; "
      "printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\\n"
      "extendedKeyUsage=serverAuth,clientAuth\\n' >extensions; "
      "openssl x509 -req -in member.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 "
      "-extfile extensions -out member.pem",
      folder));
  if (!fs::exists(folder + "/member.pem")) ADD_FAILURE() << "no certificates: " << log;
}

}  // namespace

std::unique_ptr<EtcdServers> EtcdServers::start(size_t count, bool hasTls,
                                                const std::vector<std::string>& flags) {
  const std::string program = findProgram("etcd");
  if (program.empty()) return nullptr;
  std::unique_ptr<EtcdServers> servers(new EtcdServers);
  servers->program_ = program;
  servers->folder_ = makeFolder();
  servers->hasTls_ = hasTls;
  servers->flags_ = flags;
  if (hasTls) makeCertificates(servers->folder_);
  const auto ports = freePorts(2 * count);
  for (size_t i = 0; i < count; ++i)
    servers->servers_.push_back({.clientPort = ports[2 * i], .peerPort = ports[2 * i + 1]});
  for (size_t i = 0; i < count; ++i) servers->launch(i);
  if (!servers->waitServing()) ADD_FAILURE() << "the etcd servers do not serve";
  return servers;
}

EtcdServers::~EtcdServers() {
  for (size_t i = 0; i < count(); ++i) kill(i);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

EtcdAddress EtcdServers::address() const {
  EtcdAddress address{.hasTls = hasTls_, .servers = {}};
  for (const Server& server : servers_)
    address.servers.push_back(fmt::format("127.0.0.1:{}", server.clientPort));
  return address;
}

TlsFiles EtcdServers::files() const {
  if (!hasTls_) return {};
  return {.ca = folder_ + "/ca.pem",
          .certificate = folder_ + "/member.pem",
          .key = folder_ + "/member.key"};
}

void EtcdServers::launch(size_t server) {
  std::string cluster;
  for (size_t i = 0; i < count(); ++i)
    cluster += fmt::format("{}n{}={}://127.0.0.1:{}", i == 0 ? "" : ",", i, scheme(),
                           servers_[i].peerPort);
  const auto client = fmt::format("{}://127.0.0.1:{}", scheme(), servers_[server].clientPort);
  const auto peer = fmt::format("{}://127.0.0.1:{}", scheme(), servers_[server].peerPort);
  // The short election makes the tests quick.
  std::vector<std::string> words{program_,
                                 "--name",
                                 fmt::format("n{}", server),
                                 "--data-dir",
                                 fmt::format("{}/n{}", folder_, server),
                                 "--listen-client-urls",
                                 client,
                                 "--advertise-client-urls",
                                 client,
                                 "--listen-peer-urls",
                                 peer,
                                 "--initial-advertise-peer-urls",
                                 peer,
                                 "--initial-cluster",
                                 cluster,
                                 "--initial-cluster-token",
                                 folder_,
                                 "--pre-vote=true",
                                 "--logger",
                                 "zap",
                                 "--log-level",
                                 "error",
                                 "--heartbeat-interval",
                                 "50",
                                 "--election-timeout",
                                 "500"};
  if (hasTls_) {
    const TlsFiles tls = files();
    for (const std::string prefix : {"--", "--peer-"})
      words.insert(words.end(),
                   {prefix + "cert-file", tls.certificate, prefix + "key-file", tls.key,
                    prefix + "trusted-ca-file", tls.ca, prefix + "client-cert-auth"});
  }
  words.insert(words.end(), flags_.begin(), flags_.end());
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::string log = fmt::format("{}/n{}.log", folder_, server);
  const pid_t pid = ::_Fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int file = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    ::dup2(file, 1);
    ::dup2(file, 2);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  servers_[server].pid = pid;
}

void EtcdServers::kill(size_t server) {
  if (servers_[server].pid < 0) return;
  ::kill(servers_[server].pid, SIGKILL);
  ::waitpid(servers_[server].pid, nullptr, 0);
  servers_[server].pid = -1;
}

void EtcdServers::restart(size_t server) {
  if (servers_[server].pid < 0) launch(server);
}

std::string EtcdServers::post(size_t server, const std::string& path,
                              const std::string& body) const {
  const std::string file = folder_ + "/body.json";
  std::ofstream(file) << body;
  const TlsFiles tls = files();
  return outputOf(fmt::format(
      "curl --silent --max-time 2 --noproxy '*' {} --data-binary @{} "
      "{}://127.0.0.1:{}{}",
      hasTls_ ? fmt::format("--cacert {} --cert {} --key {}", tls.ca, tls.certificate, tls.key)
              : "",
      file, scheme(), servers_[server].clientPort, path));
}

std::string EtcdServers::postAnywhere(const std::string& path, const std::string& body) const {
  for (int round = 0; round < 20; ++round) {
    for (size_t server = 0; server < count(); ++server) {
      if (servers_[server].pid < 0) continue;
      std::string answer = post(server, path, body);
      if (answer.find("\"header\"") != std::string::npos) return answer;
    }
    std::this_thread::sleep_for(50ms);
  }
  ADD_FAILURE() << "no etcd server takes " << path;
  return {};
}

void EtcdServers::enableUsers(const std::string& user, const std::string& other,
                              const std::string& password) const {
  for (const std::string& name : {std::string("root"), user, other}) {
    postAnywhere("/v3/auth/user/add",
                 fmt::format(R"({{"name":"{}","password":"{}"}})", name, password));
    postAnywhere("/v3/auth/role/add", fmt::format(R"({{"name":"{}"}})", name));
    postAnywhere("/v3/auth/user/grant", fmt::format(R"({{"user":"{0}","role":"{0}"}})", name));
  }
  postAnywhere("/v3/auth/role/grant",
               fmt::format(R"({{"name":"{}","perm":{{"permType":"READWRITE","key":"{}",)"
                           R"("range_end":"{}"}}}})",
                           user, toBase64("/sluice/"), toBase64("/sluice0")));
  postAnywhere("/v3/auth/enable", "{}");
}

bool EtcdServers::leads(size_t server) const {
  if (servers_[server].pid < 0) return false;
  const auto answer =
      nlohmann::json::parse(post(server, "/v3/maintenance/status", "{}"), nullptr, false);
  if (!answer.is_object() || !answer.contains("leader")) return false;
  return answer["leader"] == answer["header"]["member_id"];
}

bool EtcdServers::waitServing() const {
  const auto end = std::chrono::steady_clock::now() + 20s;
  for (size_t server = 0; server < count(); ++server) {
    if (servers_[server].pid < 0) continue;
    while (post(server, "/v3/kv/range", R"({"key":"YQ=="})").find("\"header\"") ==
           std::string::npos) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(20ms);
    }
  }
  return true;
}

}  // namespace sluice::membership
