#include <tools/probe/contact.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include <sluice/base/await.h>
#include <sluice/base/median.h>

namespace sluice::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kSmallWithin = 4500ms;  // longer than the fabric's own limit for a connection
constexpr auto kPingsWithin = 2s;
constexpr auto kLargeWithin = 2500ms;
constexpr size_t kSmallBytes = 16;
constexpr size_t kLargeBytes = 32 << 10;
constexpr int kPings = 15;
constexpr size_t kWarmUpPings = 3;

using Each = std::function<void(size_t peer, const Result<Duration>& roundTrip)>;

// Asks all peers that have no problem, at the same time, and waits until each has answered or the
// time is up.
Status askAll(Loop& loop, Talker& talker, const std::vector<PairFacts>& pairs, fabric::Lane lane,
              size_t bytes, Duration within, const Each& each) {
  return base::await<bool>(loop,
                           [&](const auto& got) {
                             struct State {
                               size_t open = 1;
                               std::optional<TimerId> timer;
                             };
                             auto state = std::make_shared<State>();
                             const auto oneLess = [state, got, &loop] {
                               if (--state->open > 0) return;
                               if (state->timer) loop.cancel(*state->timer);
                               got(true);
                             };
                             for (size_t i = 0; i < pairs.size(); ++i) {
                               if (!pairs[i].problem.empty()) continue;
                               ++state->open;
                               talker.ask(Rank{pairs[i].to}, lane, bytes,
                                          [i, &each, oneLess](const Result<Duration>& answer) {
                                            each(i, answer);
                                            oneLess();
                                          });
                             }
                             state->timer = loop.after(within, [state, &talker, &pairs] {
                               state->timer.reset();
                               for (const PairFacts& pair : pairs) talker.forget(Rank{pair.to});
                             });
                             oneLess();
                           })
      .status();
}

// Asks the peers one after another, several times each: a question at a time sees the idle network.
class Pings final : public std::enable_shared_from_this<Pings> {
 public:
  Pings(Talker& talker, std::vector<PairFacts>& pairs, std::function<void()> done)
      : talker_(talker), pairs_(pairs), done_(std::move(done)) {}

  void next() {
    while (peer_ < pairs_.size() && (!pairs_[peer_].problem.empty() || times_.size() == kPings)) {
      times_.erase(times_.begin(),
                   times_.begin() + static_cast<long>(std::min(times_.size(), kWarmUpPings)));
      if (!times_.empty()) pairs_[peer_].roundTrip = base::median(std::exchange(times_, {}));
      ++peer_;
    }
    if (peer_ == pairs_.size()) return done_();
    talker_.ask(Rank{pairs_[peer_].to}, fabric::Lane::kControl, kSmallBytes,
                [self = shared_from_this()](const Result<Duration>& answer) {
                  if (!answer.isOk())
                    self->pairs_[self->peer_].problem = answer.status().message();
                  else
                    self->times_.push_back(base::seconds(*answer));
                  self->next();
                });
  }

 private:
  Talker& talker_;
  std::vector<PairFacts>& pairs_;
  std::function<void()> done_;
  size_t peer_ = 0;
  std::vector<double> times_;
};

Status pingAll(Loop& loop, Talker& talker, std::vector<PairFacts>& pairs) {
  return base::await<bool>(loop,
                           [&](const auto& got) {
                             auto timer = std::make_shared<std::optional<TimerId>>();
                             std::make_shared<Pings>(talker, pairs, [got, timer, &loop] {
                               if (*timer) loop.cancel(**timer);
                               got(true);
                             })->next();
                             *timer = loop.after(kPingsWithin, [timer, &talker, &pairs] {
                               timer->reset();
                               for (const PairFacts& pair : pairs) talker.forget(Rank{pair.to});
                             });
                           })
      .status();
}

}  // namespace

Result<std::vector<PairFacts>> contact(Loop& loop, Talker& talker, const std::vector<Rank>& peers) {
  std::vector<PairFacts> pairs(peers.size());
  for (size_t i = 0; i < peers.size(); ++i) pairs[i].to = index(peers[i]);
  SLUICE_RETURN_IF_ERROR(askAll(loop, talker, pairs, fabric::Lane::kControl, kSmallBytes,
                                kSmallWithin, [&](size_t i, const Result<Duration>& answer) {
                                  if (!answer.isOk()) pairs[i].problem = answer.status().message();
                                }));
  SLUICE_RETURN_IF_ERROR(pingAll(loop, talker, pairs));
  SLUICE_RETURN_IF_ERROR(askAll(
      loop, talker, pairs, fabric::Lane::kBulk, kLargeBytes, kLargeWithin,
      [&](size_t i, const Result<Duration>& answer) { pairs[i].largePasses = answer.isOk(); }));
  return pairs;
}

}  // namespace sluice::probe
