#include <sluice/join/membership/etcd/etcd_watch.h>

#include <algorithm>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/join/membership/etcd/etcd_json.h>

namespace sluice::membership {
namespace {

// An event holds one record in base64. A watch that was cut may get several in a line.
constexpr size_t kMostUnread = kLargestEtcdAnswer;
// The loop has other work, and a server may send lines without an end.
constexpr size_t kReadAtOnce = size_t{64} << 10;

}  // namespace

EtcdWatch::EtcdWatch(net::EpollLoop& loop, HttpClient& http, EtcdClient& client,
                     const EtcdOptions& options, KeyRange range,
                     std::function<void(const Entry&)> onPut, std::function<void()> onGap)
    : loop_(loop),
      http_(http),
      client_(client),
      range_(std::move(range)),
      onPut_(std::move(onPut)),
      onGap_(std::move(onGap)),
      patience_(2 * options.attempt),
      server_(client.currentServer()),
      pauses_(options.leastPause, options.mostPause) {
  begin();
}

EtcdWatch::~EtcdWatch() {
  if (!loop_.isInherited()) end();
}

void EtcdWatch::begin() {
  SLUICE_DCHECK(!request_ && !timer_ && !reading_);
  unread_.clear();
  searched_ = 0;
  if (client_.lacksToken()) {
    client_.logIn();  // retryNow() comes with the token
    return pause();
  }
  token_ = client_.token();
  request_ = http_.post(
      {.url = client_.urlOf(server_, "/v3/watch"),
       .body = watchRequest(range_, next_),
       .authorization = token_},
      [this](std::string_view bytes) { take(bytes); },
      [this](const HttpAnswer& answer) {
        request_.reset();
        log("membership")
            .debug("etcd server {} has ended the watch: {}", client_.serverName(server_),
                   answer.error);
        endAndPause();
      });
  // A server that accepts the request and does not confirm it would leave the member blind
  // while everything looks well. After the confirmation there is no limit: a quiet watch is the
  // normal case.
  timer_ = loop_.after(patience_, [this] {
    timer_.reset();
    endAndPause();
  });
}

void EtcdWatch::end() {
  if (request_) http_.cancel(*request_);
  if (timer_) loop_.cancel(*timer_);
  if (reading_) loop_.cancel(*reading_);
  request_.reset();
  timer_.reset();
  reading_.reset();
}

void EtcdWatch::endAndPause() {
  end();
  ++server_;
  pause();
}

void EtcdWatch::pause() {
  timer_ = loop_.after(pauses_.next(), [this] {
    timer_.reset();
    begin();
  });
}

void EtcdWatch::restart() {
  next_ = 0;
  end();
  ++server_;
  begin();
}

void EtcdWatch::retryNow() {
  if (request_) return;
  end();
  begin();
}

void EtcdWatch::storeIsAt(uint64_t revision) {
  // An answer of a server that lags behind may show a lower revision once. Twice in a row means
  // that the store went back, and the watch would then wait for revisions that come only much
  // later.
  lowerRevisions_ = next_ > revision + 1 ? lowerRevisions_ + 1 : 0;
  if (lowerRevisions_ < 2) return;
  lowerRevisions_ = 0;
  restart();
}

void EtcdWatch::take(std::string_view bytes) {
  // The peer is outside the job. Without a bound, a line that never ends would fill this process's
  // memory, and so would more lines than can be read.
  if (unread_.size() + bytes.size() > kMostUnread) {
    log("membership")
        .debug("etcd server {} sends too much to a watch", client_.serverName(server_));
    next_ = 0;  // the owner reads the range instead
    return endAndPause();
  }
  unread_ += bytes;
  if (!reading_) readSome();
}

void EtcdWatch::readSome() {
  size_t read = 0;
  const auto request = request_;
  while (read < kReadAtOnce) {
    const auto newline = unread_.find('\n', std::max(searched_, read));
    if (newline == std::string::npos) {
      unread_.erase(0, read);
      searched_ = unread_.size();
      return;
    }
    // A callback may begin the watch anew, and with it these bytes.
    const std::string line = unread_.substr(read, newline - read);
    read = newline + 1;
    takeLine(line);
    if (request_ != request) return;  // the line ended the watch, or its callback did
  }
  unread_.erase(0, read);
  searched_ = 0;
  reading_ = loop_.after(Duration::zero(), [this] {
    reading_.reset();
    readSome();
  });
}

void EtcdWatch::takeLine(std::string_view text) {
  if (text.empty()) return;
  const auto line = readWatchLine(text);
  if (!line.isOk()) return endAndPause();
  if (!line->ended.empty()) {
    // After a compaction the events since then are gone.
    log("membership")
        .debug("etcd server {} has ended the watch: {}", client_.serverName(server_), line->ended);
    if (line->mayNeedToken) {
      client_.dropToken(token_);
    } else {
      next_ = 0;
    }
    return endAndPause();
  }
  const bool isFromNow = next_ == 0;
  // The confirmation of a watch that begins now says from where on its events come. What was
  // put before is not in them, so the owner fills the gap by a listing. A watch that goes on
  // from a revision has no gap.
  if (line->isCreated) {
    if (timer_) loop_.cancel(*timer_);
    timer_.reset();
    pauses_.reset();
    if (!isFromNow) return;  // the events since next_ are still to come
    next_ = line->revision + 1;
    return onGap_();
  }
  next_ = std::max(next_, line->revision + 1);
  for (const Entry& entry : line->puts) {
    // Should the watch break here, it goes on behind the last event that was reported. An event
    // may then come twice (after a server's change), but none is skipped.
    next_ = std::max(next_, entry.revision + 1);
    onPut_(entry);
  }
}

}  // namespace sluice::membership
