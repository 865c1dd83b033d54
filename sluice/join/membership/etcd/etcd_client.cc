#include <sluice/join/membership/etcd/etcd_client.h>

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/text.h>
#include <sluice/join/membership/etcd/etcd_json.h>

namespace sluice::membership {
namespace {

constexpr size_t kLargestEtcdAnswer = size_t{64} << 20;

// The codes of gRPC that say more about the server than about the request.
bool isFaultOfServer(int64_t code) {
  constexpr int64_t kUnknown = 2;
  constexpr int64_t kDeadlineExceeded = 4;
  constexpr int64_t kInternal = 13;
  constexpr int64_t kUnavailable = 14;
  return code == kUnknown || code == kDeadlineExceeded || code == kInternal || code == kUnavailable;
}

Code codeOf(int64_t grpc) {
  switch (grpc) {
    case 3: return Code::kInvalidArgument;
    case 5: return Code::kNotFound;
    case 7:
    case 16: return Code::kPermissionDenied;
    case 8: return Code::kUnavailable;  // its disk or its quota is full
    default: return Code::kRefused;
  }
}

}  // namespace

EtcdClient::EtcdClient(net::EpollLoop& loop, HttpClient& http, const EtcdOptions& options)
    : loop_(loop),
      http_(http),
      options_(options),
      // Members spread over the servers.
      current_(std::random_device{}() % options.address.servers.size()) {}

EtcdClient::~EtcdClient() {
  if (loop_.isInherited()) return;
  onHealth_ = nullptr;
  onRevision_ = nullptr;
  while (!calls_.empty())
    endCall(calls_.begin()->first, Status(Code::kCancelled, "the membership was closed"));
}

std::string EtcdClient::urlOf(size_t server, std::string_view path) const {
  return fmt::format("{}://{}{}", options_.address.hasTls ? "https" : "http", serverName(server),
                     path);
}

const std::string& EtcdClient::serverName(size_t server) const {
  return options_.address.servers[server % options_.address.servers.size()];
}

std::string EtcdClient::allServers() const {
  return fmt::format("{}", fmt::join(options_.address.servers, ", "));
}

void EtcdClient::call(std::string_view path, std::string body, TimePoint deadline, Got got) {
  SLUICE_DCHECK(loop_.inLoop());
  // One deadline bounds the whole call, however many servers and pauses it takes; each attempt
  // has a shorter limit, so that a server which accepts and never answers costs only a part of
  // it. A request may so be done twice, and each is such that this does no harm: an append
  // finds its own entry, and a second lease ends by itself.
  const uint64_t id = nextCall_++;
  Call call{.path = std::string(path),
            .body = std::move(body),
            .got = std::move(got),
            .server = current_,
            .pauses = Pauses(options_.leastPause, options_.mostPause)};
  call.end = loop_.after(std::max(Duration::zero(), deadline - loop_.now()), [this, id] {
    endCall(id,
            Status(Code::kTimeout, fmt::format("the etcd servers {} have not answered in time: {}",
                                               allServers(), calls_.at(id).fault)));
  });
  calls_.emplace(id, std::move(call));
  attempt(id);
}

void EtcdClient::attempt(uint64_t id) {
  Call& call = calls_.at(id);
  call.pause.reset();
  call.answer.clear();
  call.request = http_.post(
      {.url = urlOf(call.server, call.path),
       .body = call.body,
       .timeout = options_.attempt,  // the call itself ends at its deadline
       .largestAnswer = kLargestEtcdAnswer},
      [this, id](std::string_view bytes) { calls_.at(id).answer += bytes; },
      [this, id](const HttpAnswer& answer) { answered(id, answer); });
}

void EtcdClient::answered(uint64_t id, const HttpAnswer& answer) {
  Call& call = calls_.at(id);
  call.request.reset();
  // Two kinds of failure are told apart. A server that cannot be reached, has no leader or is
  // not etcd says nothing about the request, which goes on to the next server. An error that
  // etcd itself reports, such as a lack of permission, would be the answer of every server, so
  // it ends the call.
  if (!answer.error.empty()) return failed(id, base::printable(answer.error));
  const auto object = parseAnswer(call.answer);
  if (!object.isOk()) return failed(id, fmt::format("HTTP status {} without JSON", answer.status));
  if (const auto error = readError(*object)) {
    if (isFaultOfServer(error->code)) return failed(id, error->message);
    return endCall(id, Status(codeOf(error->code),
                              fmt::format("etcd server {} refuses {}: {}", serverName(call.server),
                                          call.path, error->message)));
  }
  if (answer.status != 200) return failed(id, fmt::format("HTTP status {}", answer.status));
  // Later calls begin with the server that answers, and do not pay for the dead ones before it
  // again.
  current_ = call.server;
  if (const uint64_t revision = readRevision(*object); revision != 0 && onRevision_)
    onRevision_(revision);
  setHealth(base::ok());
  endCall(id, object);
}

void EtcdClient::failed(uint64_t id, std::string_view fault) {
  Call& call = calls_.at(id);
  call.fault = fmt::format("{}: {}", serverName(call.server), fault);
  ++call.server;
  ++call.failures;
  // Every server is tried once before there is a pause: while one of them lives, a call loses
  // no time by waiting. Only when all have failed is the store said to be unavailable.
  if (call.failures % options_.address.servers.size() != 0) return attempt(id);
  call.pause = loop_.after(call.pauses.next(), [this, id] { attempt(id); });
  setHealth(Status(Code::kUnavailable, fmt::format("none of the etcd servers {} answers: {}",
                                                   allServers(), call.fault)));
}

void EtcdClient::endCall(uint64_t id, const Result<nlohmann::json>& result) {
  // The call leaves the map before its callback runs, since the callback may make another call
  // and the map must not change under it. A second end of the same call, by its deadline, finds
  // nothing.
  auto node = calls_.extract(id);
  if (node.empty()) return;
  Call& call = node.mapped();
  loop_.cancel(call.end);
  if (call.pause) loop_.cancel(*call.pause);
  if (call.request) http_.cancel(*call.request);
  call.got(result);
}

void EtcdClient::setHealth(const Status& health) {
  const bool isChange = health.isOk() != health_.isOk();
  health_ = health;
  if (isChange && onHealth_) onHealth_(health_);
}

}  // namespace sluice::membership
