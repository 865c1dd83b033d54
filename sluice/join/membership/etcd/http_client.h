// HTTP requests by libcurl's multi interface, on an EpollLoop: no thread of its own but libcurl's for
// names that must be looked up. Belongs to the loop; the destructor ends all requests without a word.
// In a forked child the destructor does nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <sluice/base/clock.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/membership/etcd/socket_set.h>

namespace sluice::membership {

// Files in PEM for TLS with certificates of both ends; empty: the system's authorities, and no
// certificate of this end.
struct TlsFiles {
  std::string ca;
  std::string certificate;
  std::string key;
};

struct HttpRequest {
  std::string url;
  std::string body;
  Duration timeout{0};             // of the whole request; 0 for no limit
  size_t largestAnswer = 0;        // in bytes; 0: no limit, for streams
  std::string authorization = {};  // the header's value; empty: none
};

struct HttpAnswer {
  std::string error = {};  // why there is no answer; empty if there is one
  long status = 0;         // of HTTP
  bool isTooLarge = false;
};

enum class HttpRequestId : uint64_t {};

class HttpClient final {
 public:
  // REQUIRES: `loop` outlives this object; loadCurl() has returned ok.
  HttpClient(net::EpollLoop& loop, TlsFiles files);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Posts a request. `onBytes` runs for each piece of the answer's body, `onEnd` once at the end;
  // both on the loop and never inside a call of this class. Either may post and cancel requests, but
  // not destroy this object.
  HttpRequestId post(const HttpRequest& request, std::function<void(std::string_view)> onBytes,
                     std::function<void(const HttpAnswer&)> onEnd);

  // Ends a request: its callbacks do not run any more.
  void cancel(HttpRequestId request);

 private:
  struct Curl;  // the callbacks of libcurl, and its handles
  struct Transfer;

  void act(int socket, int events);
  void handOut();
  void handOutLater();
  void remove(HttpRequestId request);

  net::EpollLoop& loop_;
  const TlsFiles files_;
  SocketSet sockets_;
  void* multi_;  // CURLM*
  std::optional<TimerId> timer_;
  std::optional<TimerId> handingOut_;
  HttpRequestId handedOut_{};  // last
  std::map<HttpRequestId, std::shared_ptr<Transfer>> transfers_;
  uint64_t nextId_ = 1;
};

}  // namespace sluice::membership
