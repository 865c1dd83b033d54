#include <sluice/probe/crowd.h>

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <sluice/session/await.h>

namespace sluice::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kDrainWithin = 1500ms;
constexpr int kPiecesAhead = 2;  // for each peer, that the kernel has not taken
constexpr int kLooks = 4;        // at TCP's round trips, in the second half

using RoundTrips = std::map<std::string, std::vector<double>>;

class Crowd final : public std::enable_shared_from_this<Crowd> {
 public:
  Crowd(Loop& loop, Talker& talker, const CrowdOptions& options,
        std::shared_ptr<RoundTrips> roundTrips, std::function<void()> done)
      : loop_(loop),
        talker_(talker),
        options_(options),
        roundTrips_(std::move(roundTrips)),
        done_(std::move(done)) {}

  void start() {
    begun_ = loop_.now();
    talker_.countFloods(begun_ + options_.length / 4, begun_ + options_.length);
    for (const Rank peer : options_.peers) {
      for (int i = 0; i < kPiecesAhead; ++i) next(peer);
    }
    for (int look = 1; look <= kLooks; ++look) {
      loop_.after(options_.length / 2 + options_.length * look / (2 * kLooks + 1),
                  [self = shared_from_this()] { self->look(); });
    }
    loop_.after(options_.length, [self = shared_from_this()] { self->drain(); });
  }

 private:
  void next(Rank peer) {
    if (loop_.now() >= begun_ + options_.length) return;
    talker_.flood(peer, options_.pieceBytes,
                  [self = shared_from_this(), peer](const Status& status) {
                    if (status.isOk()) self->next(peer);
                  });
  }
  void look() {
    for (const auto& [address, figures] : ownConnections())
      (*roundTrips_)[address].push_back(figures.roundTrip);
  }
  // The answer to a last small question says that all before it has arrived.
  void drain() {
    open_ = options_.peers.size() + 1;
    for (const Rank peer : options_.peers) {
      talker_.ask(peer, fabric::Lane::kBulk, 0,
                  [self = shared_from_this()](const Result<Duration>&) { self->oneLess(); });
    }
    timer_ = loop_.after(kDrainWithin, [self = shared_from_this()] {
      self->timer_.reset();
      for (const Rank peer : self->options_.peers) self->talker_.forget(peer);
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
  const CrowdOptions options_;
  const std::shared_ptr<RoundTrips> roundTrips_;
  std::function<void()> done_;
  TimePoint begun_{};
  size_t open_ = 0;
  std::optional<TimerId> timer_;
};

}  // namespace

Result<CrowdResult> sendToAll(Loop& loop, Talker& talker, const CrowdOptions& options) {
  const auto roundTrips = std::make_shared<RoundTrips>();
  CrowdResult result;
  const auto ended = session::await<bool>(loop, [&](auto got) {
    std::make_shared<Crowd>(loop, talker, options, roundTrips, [&, got] {
      const double seconds = base::seconds(options.length - options.length / 4);
      for (const auto& [from, bytes] : talker.floods())
        result.inBits[index(from)] = static_cast<double>(bytes) * 8 / seconds;
      got(true);
    })->start();
  });
  SLUICE_RETURN_IF_ERROR(ended.status());
  result.roundTrips = *roundTrips;
  return result;
}

}  // namespace sluice::probe
