#include <sluice/rendezvous/find_master.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/units.h>
#include <sluice/rendezvous/connection.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstPause = 100ms;
constexpr Duration kLongestPause = 2s;

}  // namespace

Result<std::vector<Address>> findMaster(const Search& search, Rank rank, Duration timeout) {
  const TimePoint begun = search.clock.now();
  TimePoint toldAt = begun;
  for (Duration pause = kFirstPause;; pause = std::min(pause * 3 / 2, kLongestPause)) {
    auto found = search.lookUp();
    if (found.isOk()) return found;
    const std::string& why = found.status().message();
    const TimePoint now = search.clock.now();
    const Duration left = timeout - (now - begun);
    if (left <= Duration(0)) {
      return Status(Code::kTimeout,
                    fmt::format("rank {} did not find rank 0 in {}: {}; is MASTER_ADDR right?", index(rank),
                                base::formatDuration(timeout), why));
    }
    if (now - toldAt >= kTellEvery) {
      toldAt = now;
      log("rendezvous")
          .info("rank 0 is not found yet ({}); trying for {:.0f}s more", why, base::seconds(left));
    }
    search.pause(std::min(pause, left));
  }
}

Result<std::vector<Address>> findMaster(const Launch& launch, const Clock& clock, Duration timeout) {
  // A resolver tells nobody when a name appears: asking again now and then is all there is.
  return findMaster({.clock = clock,
                     .lookUp = [&] { return Address::resolve(launch.masterHost, launch.masterPort); },
                     .pause = [](Duration pause) { std::this_thread::sleep_for(pause); }},
                    launch.rank, timeout);
}

}  // namespace sluice::rendezvous
