#include <tools/probe/crowd.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <sluice/base/await.h>
#include <tools/probe/own_sockets.h>

namespace sluice::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kDrainWithin = 1500ms;
constexpr size_t kFloodPiece = kLargestPiece / 2;
constexpr int kPiecesAhead = 2;  // for each peer, that the kernel has not taken
constexpr int kLooks = 4;        // at TCP's round trips, in the second half

class Crowd final : public std::enable_shared_from_this<Crowd> {
 public:
  Crowd(Loop& loop, Talker& talker, std::vector<Rank> peers, Duration length,
        std::shared_ptr<RoundTrips> roundTrips, std::function<void()> done)
      : loop_(loop),
        talker_(talker),
        peers_(std::move(peers)),
        length_(length),
        roundTrips_(std::move(roundTrips)),
        done_(std::move(done)) {}

  void start() {
    begun_ = loop_.now();
    for (const Rank peer : peers_) {
      for (int i = 0; i < kPiecesAhead; ++i) next(peer);
    }
    for (int look = 1; look <= kLooks; ++look) {
      loop_.after(length_ / 2 + length_ * look / (2 * kLooks + 1),
                  [self = shared_from_this()] { self->look(); });
    }
    loop_.after(length_, [self = shared_from_this()] { self->drain(); });
  }

 private:
  void next(Rank peer) {
    if (loop_.now() >= begun_ + length_) return;
    talker_.flood(peer, kFloodPiece, [self = shared_from_this(), peer](const Status& status) {
      if (status.isOk()) self->next(peer);
    });
  }
  void look() {
    for (const auto& [address, figures] : ownConnections())
      (*roundTrips_)[address].push_back(figures.roundTrip);
  }
  // The answer to a last small question says that all before it has arrived.
  void drain() {
    open_ = peers_.size() + 1;
    for (const Rank peer : peers_) {
      talker_.ask(peer, fabric::Lane::kBulk, 0,
                  [self = shared_from_this()](const Result<Duration>&) { self->oneLess(); });
    }
    timer_ = loop_.after(kDrainWithin, [self = shared_from_this()] {
      self->timer_.reset();
      for (const Rank peer : self->peers_) self->talker_.forget(peer);
    });
    oneLess();
  }
  void oneLess() {
    if (--open_ > 0) return;
    if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
    done_();
  }

  Loop& loop_;
  Talker& talker_;
  const std::vector<Rank> peers_;
  const Duration length_;
  const std::shared_ptr<RoundTrips> roundTrips_;
  std::function<void()> done_;
  TimePoint begun_{};
  size_t open_ = 0;
  std::optional<TimerId> timer_;
};

}  // namespace

Result<RoundTrips> crowdTheNetwork(Loop& loop, Talker& talker, const std::vector<Rank>& peers,
                                   Duration length) {
  const auto roundTrips = std::make_shared<RoundTrips>();
  const auto ended = base::await<bool>(loop, [&](const auto& got) {
    std::make_shared<Crowd>(loop, talker, peers, length, roundTrips, [got] { got(true); })->start();
  });
  SLUICE_RETURN_IF_ERROR(ended.status());
  return *roundTrips;
}

}  // namespace sluice::probe
