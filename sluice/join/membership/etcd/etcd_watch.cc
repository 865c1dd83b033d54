#include <sluice/join/membership/etcd/etcd_watch.h>

#include <algorithm>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/join/membership/etcd/etcd_json.h>

namespace sluice::membership {
namespace {

// An event holds one record in base64.
constexpr size_t kLongestWatchLine = size_t{16} << 20;

}  // namespace

EtcdWatch::EtcdWatch(net::EpollLoop& loop, HttpClient& http, const EtcdClient& client,
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
  SLUICE_DCHECK(!request_ && !timer_);
  line_.clear();
  request_ = http_.post(
      {.url = client_.urlOf(server_, "/v3/watch"), .body = watchRequest(range_, next_)},
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
  request_.reset();
  timer_.reset();
}

void EtcdWatch::endAndPause() {
  end();
  ++server_;
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
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    line_ += bytes.substr(0, newline);
    // The peer is outside the job. Without a bound, a line that never ends would fill this
    // process's memory.
    if (line_.size() > kLongestWatchLine) return endAndPause();
    if (newline == std::string_view::npos) return;
    bytes.remove_prefix(newline + 1);
    const auto request = request_;
    takeLine(std::exchange(line_, {}));
    if (request_ != request) return;  // the line ended the watch, or its callback did
  }
}

void EtcdWatch::takeLine(std::string_view text) {
  if (text.empty()) return;
  const auto line = readWatchLine(text);
  if (!line.isOk()) return endAndPause();
  if (!line->ended.empty()) {
    // After a compaction the events since then are gone.
    log("membership")
        .debug("etcd server {} has ended the watch: {}", client_.serverName(server_), line->ended);
    next_ = 0;
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
