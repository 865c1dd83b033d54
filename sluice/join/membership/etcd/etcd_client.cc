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

constexpr std::string_view kLoginPath = "/v3/auth/authenticate";

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
      current_(std::random_device{}() % options.address.servers.size()),
      loginPauses_(options.leastPause, options.mostPause) {}

EtcdClient::~EtcdClient() {
  if (loop_.isInherited()) return;
  onHealth_ = nullptr;
  onRevision_ = nullptr;
  onToken_ = nullptr;
  if (loginTimer_) loop_.cancel(*loginTimer_);
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

void EtcdClient::call(std::string_view path, std::string body, TimePoint deadline, Got got,
                      IfTooLarge ifTooLarge) {
  begin({.path = std::string(path),
         .body = std::move(body),
         .got = std::move(got),
         .server = current_,
         .pauses = Pauses(options_.leastPause, options_.mostPause),
         .ifTooLarge = ifTooLarge},
        deadline);
}

uint64_t EtcdClient::begin(Call call, TimePoint deadline) {
  SLUICE_DCHECK(loop_.inLoop());
  // One deadline bounds the whole call, however many servers and pauses it takes; each attempt
  // has a shorter limit, so that a server which accepts and never answers costs only a part of
  // it. A request may so be done twice, and each is such that this does no harm: an append
  // finds its own entry, and a second lease ends by itself.
  const uint64_t id = nextCall_++;
  call.end = loop_.after(std::max(Duration::zero(), deadline - loop_.now()), [this, id] {
    endCall(id,
            Status(Code::kTimeout, fmt::format("the etcd servers {} have not answered in time: {}",
                                               allServers(), calls_.at(id).fault)));
  });
  calls_.emplace(id, std::move(call));
  attempt(id);
  return id;
}

void EtcdClient::attempt(uint64_t id) {
  Call& call = calls_.at(id);
  call.pause.reset();
  call.answer.clear();
  if (!call.isLogin && lacksToken()) {
    call.isWaiting = true;
    return logIn();
  }
  if (!call.isLogin) call.token = token_;
  call.request = http_.post(
      {.url = urlOf(call.server, call.path),
       .body = call.body,
       .timeout = options_.attempt,  // the call itself ends at its deadline
       .largestAnswer = kLargestEtcdAnswer,
       .authorization = call.token},
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
  if (answer.isTooLarge && call.ifTooLarge == IfTooLarge::kEnd)
    return endCall(id, Status(Code::kDataLoss, answer.error));
  if (!answer.error.empty()) return failed(id, base::printable(answer.error));
  const auto object = parseAnswer(call.answer);
  if (!object.isOk())
    return failed(id, fmt::format("HTTP status {} without JSON: {}", answer.status,
                                  object.status().message()));
  if (const auto error = readError(*object)) {
    if (isFaultOfServer(error->code)) return failed(id, error->message);
    if (error->isAboutToken() && !options_.user.empty() && !call.isLogin)
      return tokenRefused(id, error->message);
    return refused(id, error->code, error->message);
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

void EtcdClient::refused(uint64_t id, int64_t code, std::string_view message) {
  const Call& call = calls_.at(id);
  // A hostile server could have the password written into logs.
  const bool repeatsSecret =
      !options_.password.empty() && message.find(options_.password) != std::string_view::npos;
  std::string text =
      fmt::format("etcd server {} refuses {}: {}", serverName(call.server), call.path,
                  repeatsSecret ? "for a reason that is not shown" : message);
  if (call.isLogin) {
    text +=
        "; check members-user and the password in members-password-file, or leave both out if "
        "etcd has no users";
  } else if (options_.user.empty() && message.find("user name is empty") != message.npos) {
    text += "; give members-user and members-password-file";
  }
  endCall(id, Status(call.isLogin ? Code::kPermissionDenied : codeOf(code), std::move(text)));
}

// ---- The token ----

void EtcdClient::logIn() {
  SLUICE_DCHECK(loop_.inLoop());
  if (isLoggingIn_) return;
  isLoggingIn_ = true;
  // Checking a password takes etcd a tenth of a second.
  loginTimer_ = loop_.after(loginPause_, [this] {
    loginTimer_.reset();
    begin({.path = std::string(kLoginPath),
           .body = loginRequest(options_.user, options_.password),
           .got = [this](const Result<nlohmann::json>& answer) { loggedIn(answer); },
           .server = current_,
           .pauses = Pauses(options_.leastPause, options_.mostPause),
           .isLogin = true},
          loop_.now() + options_.lease);
  });
}

void EtcdClient::loggedIn(const Result<nlohmann::json>& answer) {
  isLoggingIn_ = false;
  if (answer.status().code() == Code::kCancelled) return;  // this object ends
  const auto token = answer.isOk() ? readToken(*answer) : Result<std::string>(answer.status());
  // Servers that cannot be reached may come back: each call goes on until its own deadline.
  const bool isRefused = !token.isOk() && token.status().code() != Code::kTimeout;
  if (token.isOk()) {
    token_ = *token;
    loginPauses_.reset();
  }
  loginPause_ = isRefused ? loginPauses_.next() : Duration::zero();
  if (isRefused) setHealth(token.status());
  std::vector<uint64_t> waiting;
  for (auto& [id, call] : calls_) {
    if (std::exchange(call.isWaiting, false)) waiting.push_back(id);
  }
  for (const uint64_t id : waiting) {
    if (!calls_.contains(id)) continue;
    if (isRefused) {
      endCall(id, token.status());
    } else {
      attempt(id);
    }
  }
  if (token.isOk() && onToken_) onToken_();
}

void EtcdClient::dropToken(const std::string& token) {
  if (token == token_) token_.clear();
}

void EtcdClient::tokenRefused(uint64_t id, std::string_view message) {
  // Tokens end by age, and with the server that gave them. A server that refuses the new one at once
  // is at fault itself.
  Call& call = calls_.at(id);
  dropToken(call.token);
  if (std::exchange(call.hasRenewed, true)) return failed(id, message);
  attempt(id);
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
