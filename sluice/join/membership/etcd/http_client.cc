#include <sluice/join/membership/etcd/http_client.h>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/join/membership/etcd/curl_library.h>

namespace sluice::membership {
namespace {

// Does not wait for a name server at the end of a request. CURLOPT_QUICK_EXIT by its number, which
// headers before 7.87 do not have; such a libcurl ignores it.
constexpr auto kQuickExit = static_cast<CURLoption>(322);
constexpr Duration kLongestConnect = std::chrono::seconds(1);

long millisecondsOf(Duration duration) {
  return static_cast<long>(std::chrono::ceil<std::chrono::milliseconds>(duration).count());
}

}  // namespace

struct HttpClient::Transfer {
  HttpRequestId id{};
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  size_t largestAnswer = 0;
  size_t received = 0;
  bool isTooLarge = false;
  std::string bytes;  // that came and are not handed out yet
  std::array<char, CURL_ERROR_SIZE> error{};
  std::function<void(std::string_view)> onBytes;
  std::function<void(const HttpAnswer&)> onEnd;
  std::optional<HttpAnswer> ended;
};

// libcurl must not be called from inside its callbacks, so these only note what is to be done.
struct HttpClient::Curl {
  static int eventsOf(uint32_t ready) {
    int events = 0;
    if ((ready & EPOLLIN) != 0) events |= CURL_CSELECT_IN;
    if ((ready & EPOLLOUT) != 0) events |= CURL_CSELECT_OUT;
    if ((ready & (EPOLLERR | EPOLLHUP)) != 0) events |= CURL_CSELECT_ERR;
    return events;
  }

  static std::string whyFailed(const Transfer& transfer, CURLcode code) {
    long error = 0;
    curl().curl_easy_getinfo(transfer.easy, CURLINFO_OS_ERRNO, &error);
    // libcurl says only that it could not connect.
    if (code == CURLE_COULDNT_CONNECT && error != 0)
      return std::generic_category().message(static_cast<int>(error));
    if (transfer.error.front() != '\0') return transfer.error.data();
    return curl().curl_easy_strerror(code);
  }

  static int onSocket(CURL*, curl_socket_t socket, int what, void* self, void*) {
    auto& client = *static_cast<HttpClient*>(self);
    if (what == CURL_POLL_REMOVE) {
      client.sockets_.remove(socket);
      return 0;
    }
    uint32_t events = 0;
    if (what == CURL_POLL_IN || what == CURL_POLL_INOUT) events |= EPOLLIN;
    if (what == CURL_POLL_OUT || what == CURL_POLL_INOUT) events |= EPOLLOUT;
    client.sockets_.add(socket, events);
    return 0;
  }

  static int onTimer(CURLM*, long milliseconds, void* self) {
    auto& client = *static_cast<HttpClient*>(self);
    if (client.timer_) client.loop_.cancel(*client.timer_);
    client.timer_.reset();
    if (milliseconds < 0) return 0;
    client.timer_ = client.loop_.after(std::chrono::milliseconds(milliseconds), [&client] {
      client.timer_.reset();
      client.act(CURL_SOCKET_TIMEOUT, 0);
    });
    return 0;
  }

  static size_t onWrite(const char* bytes, size_t one, size_t count, void* of) {
    auto& transfer = *static_cast<Transfer*>(of);
    const size_t size = one * count;
    transfer.received += size;
    if (transfer.largestAnswer != 0 && transfer.received > transfer.largestAnswer) {
      transfer.isTooLarge = true;
      return 0;  // ends the transfer
    }
    transfer.bytes.append(bytes, size);
    return size;
  }

  // Older versions of libcurl let sockets live on in the programs that the process starts.
  static curl_socket_t onOpen(void*, curlsocktype, curl_sockaddr* address) {
    const int socket =
        ::socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return socket < 0 ? CURL_SOCKET_BAD : socket;
  }

  static int onClose(void* self, curl_socket_t socket) {
    static_cast<HttpClient*>(self)->sockets_.remove(socket);
    return ::close(socket);
  }
};

HttpClient::HttpClient(net::EpollLoop& loop, TlsFiles files)
    : loop_(loop),
      files_(std::move(files)),
      sockets_(loop, [this](int socket, uint32_t ready) { act(socket, Curl::eventsOf(ready)); }),
      multi_(curl().curl_multi_init()) {
  if (multi_ == nullptr) return;
  curl().curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &Curl::onSocket);
  curl().curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl().curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &Curl::onTimer);
  curl().curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
}

HttpClient::~HttpClient() {
  if (loop_.isInherited()) return;
  SLUICE_DCHECK(loop_.inLoop());
  while (!transfers_.empty()) remove(transfers_.begin()->first);
  if (multi_ != nullptr) curl().curl_multi_cleanup(multi_);
  if (timer_) loop_.cancel(*timer_);
  if (handingOut_) loop_.cancel(*handingOut_);
}

HttpRequestId HttpClient::post(const HttpRequest& request,
                               std::function<void(std::string_view)> onBytes,
                               std::function<void(const HttpAnswer&)> onEnd) {
  SLUICE_DCHECK(loop_.inLoop());
  const HttpRequestId id{nextId_++};
  const auto transfer = std::make_shared<Transfer>();
  transfers_.emplace(id, transfer);
  transfer->id = id;
  transfer->largestAnswer = request.largestAnswer;
  transfer->onBytes = std::move(onBytes);
  transfer->onEnd = std::move(onEnd);
  transfer->easy = multi_ == nullptr ? nullptr : curl().curl_easy_init();
  // The callbacks must never run inside post(), not even for a failure at once: the caller has
  // not stored the id yet. The weak pointer covers a cancel() before the task runs.
  if (transfer->easy == nullptr) {
    transfer->ended = HttpAnswer{.error = "libcurl cannot be started"};
    loop_.post([this, weak = std::weak_ptr(transfer)] {
      if (!weak.expired()) handOut();
    });
    return id;
  }
  // An empty "Expect:" keeps libcurl from waiting for a 100-continue before larger bodies,
  // which is a round trip. "hasleader" makes an etcd server that lost its cluster refuse a
  // request rather than let it hang.
  for (const char* header :
       {"Content-Type: application/json", "Expect:", "Grpc-Metadata-hasleader: true"})
    transfer->headers = curl().curl_slist_append(transfer->headers, header);
  if (!request.authorization.empty()) {
    const std::string header = "Authorization: " + request.authorization;
    transfer->headers = curl().curl_slist_append(transfer->headers, header.c_str());
  }
  const auto set = [&](CURLoption option, auto value) {
    curl().curl_easy_setopt(transfer->easy, option, value);
  };
  set(CURLOPT_URL, request.url.c_str());
  set(CURLOPT_PROXY, "");  // not even that of http_proxy
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_HTTPHEADER, transfer->headers);
  set(CURLOPT_POST, 1L);
  set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  set(CURLOPT_COPYPOSTFIELDS, request.body.data());
  set(CURLOPT_NOSIGNAL, 1L);
  set(kQuickExit, 1L);
  set(CURLOPT_CONNECTTIMEOUT_MS, millisecondsOf(kLongestConnect));
  set(CURLOPT_TIMEOUT_MS, millisecondsOf(request.timeout));
  set(CURLOPT_TCP_NODELAY, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, 5L);
  set(CURLOPT_TCP_KEEPINTVL, 2L);
  set(CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  if (!files_.ca.empty()) set(CURLOPT_CAINFO, files_.ca.c_str());
  if (!files_.certificate.empty()) set(CURLOPT_SSLCERT, files_.certificate.c_str());
  if (!files_.key.empty()) set(CURLOPT_SSLKEY, files_.key.c_str());
  set(CURLOPT_ERRORBUFFER, transfer->error.data());
  set(CURLOPT_WRITEFUNCTION, &Curl::onWrite);
  set(CURLOPT_WRITEDATA, transfer.get());
  set(CURLOPT_OPENSOCKETFUNCTION, &Curl::onOpen);
  set(CURLOPT_CLOSESOCKETFUNCTION, &Curl::onClose);
  set(CURLOPT_CLOSESOCKETDATA, this);
  set(CURLOPT_PRIVATE, transfer.get());
  curl().curl_multi_add_handle(multi_, transfer->easy);
  return id;
}

void HttpClient::cancel(HttpRequestId request) {
  SLUICE_DCHECK(loop_.inLoop());
  remove(request);
}

void HttpClient::remove(HttpRequestId request) {
  const auto node = transfers_.extract(request);
  if (node.empty()) return;
  Transfer& transfer = *node.mapped();
  if (transfer.easy != nullptr) {
    curl().curl_multi_remove_handle(multi_, transfer.easy);
    curl().curl_easy_cleanup(transfer.easy);
  }
  curl().curl_slist_free_all(transfer.headers);
  transfer.easy = nullptr;
  transfer.headers = nullptr;
}

void HttpClient::act(int socket, int events) {
  int running = 0;
  curl().curl_multi_socket_action(multi_, socket, events, &running);
  int left = 0;
  while (const CURLMsg* message = curl().curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Transfer* transfer = nullptr;
    curl().curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    HttpAnswer answer;
    curl().curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &answer.status);
    answer.isTooLarge = transfer->isTooLarge;
    if (transfer->isTooLarge) {
      answer.error = fmt::format("the answer has more than {} bytes", transfer->largestAnswer);
    } else if (message->data.result != CURLE_OK) {
      // The reason is read here, while the handle exists; handOut() destroys it before it calls
      // back.
      answer.error = Curl::whyFailed(*transfer, message->data.result);
    }
    transfer->ended = std::move(answer);
  }
  handOut();
}

void HttpClient::handOut() {
  const auto isBusy = [](const auto& each) {
    return !each.second->bytes.empty() || each.second->ended.has_value();
  };
  // One in a task: each answer may take milliseconds to read, and the loop has other work. They take
  // turns, since a stream may never end.
  if (std::ranges::count_if(transfers_, isBusy) > 1) handOutLater();
  auto busy = std::find_if(transfers_.upper_bound(handedOut_), transfers_.end(), isBusy);
  if (busy == transfers_.end()) busy = std::ranges::find_if(transfers_, isBusy);
  if (busy == transfers_.end()) return;
  handedOut_ = busy->first;
  // A callback may cancel this transfer or others, hence the shared pointer and the look into the
  // map. The transfer is removed before its end is reported, so that onEnd may post the next
  // request at once.
  const std::shared_ptr<Transfer> transfer = busy->second;
  const std::string bytes = std::exchange(transfer->bytes, {});
  if (!bytes.empty()) transfer->onBytes(bytes);
  if (!transfer->ended || !transfers_.contains(transfer->id)) return;
  remove(transfer->id);
  transfer->onEnd(*transfer->ended);
}

void HttpClient::handOutLater() {
  if (handingOut_) return;
  handingOut_ = loop_.after(Duration::zero(), [this] {
    handingOut_.reset();
    handOut();
  });
}

}  // namespace sluice::membership
