#include <sluice/join/rendezvous/find_master.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/thread.h>
#include <sluice/base/units.h>
#include <sluice/join/rendezvous/connection.h>

namespace sluice::rendezvous {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFirstPause = 100ms;
constexpr Duration kLongestPause = 2s;
constexpr Duration kAskEvery = 100ms;  // soon, for a person who waits

// getaddrinfo() cannot be called off, and may take as long as name servers stay silent. So it runs
// on a thread of its own, which is left alone with its own copy of the name once nobody waits for
// it any more.
Result<std::vector<Address>> lookUpAside(const Launch& launch, Duration atMost,
                                         const std::function<Status()>& interruption) {
  using Found = Result<std::vector<Address>>;
  auto promise = std::make_shared<std::promise<Found>>();
  auto found = promise->get_future();
  try {
    base::startThread("resolver", [promise, host = launch.masterHost, port = launch.masterPort] {
      promise->set_value(Address::resolve(host, port));
    }).detach();
  } catch (const std::system_error& error) {
    return base::fromErrno("cannot start a thread that looks up MASTER_ADDR", error.code().value());
  }
  const auto end = std::chrono::steady_clock::now() + std::min<Duration>(atMost, 1h);
  while (found.wait_for(kAskEvery) != std::future_status::ready) {
    SLUICE_RETURN_IF_ERROR(interruption());
    if (std::chrono::steady_clock::now() >= end) {
      return Status(Code::kTimeout,
                    fmt::format("the lookup of '{}' has not been answered", launch.masterHost));
    }
  }
  return found.get();
}

}  // namespace

Result<std::vector<Address>> findMaster(const Search& search, Rank rank, Duration timeout) {
  const TimePoint begun = search.clock.now();
  TimePoint toldAt = begun;
  for (Duration pause = kFirstPause;; pause = std::min(pause * 3 / 2, kLongestPause)) {
    auto found = search.lookUp(timeout - (search.clock.now() - begun));
    if (found.isOk()) return found;
    if (search.interruption) SLUICE_RETURN_IF_ERROR(search.interruption());
    const std::string& why = found.status().message();
    const TimePoint now = search.clock.now();
    const Duration left = timeout - (now - begun);
    if (left <= Duration(0)) {
      return Status(Code::kTimeout,
                    fmt::format("rank {} did not find rank 0 in {}: {}; is MASTER_ADDR right?",
                                index(rank), base::formatDuration(timeout), why));
    }
    if (now - toldAt >= kTellEvery) {
      toldAt = now;
      log("rendezvous")
          .info("rank 0 is not found yet ({}); trying for {:.0f}s more", why, base::seconds(left));
    }
    search.pause(std::min(pause, left));
  }
}

Result<FoundMaster> findMaster(const Launch& launch, const Clock& clock, Duration timeout,
                               const std::function<Status()>& interruption) {
  const TimePoint begun = clock.now();
  // An interruption sticks here: it is told once, and every part of the search must see it.
  Status interrupted;
  const auto ask = [&]() -> Status {
    if (interrupted.isOk() && interruption) interrupted = interruption();
    return interrupted;
  };
  const auto pause = [&](Duration length) {
    const auto end = std::chrono::steady_clock::now() + length;
    while (std::chrono::steady_clock::now() < end && ask().isOk()) {
      std::this_thread::sleep_for(
          std::min<Duration>(kAskEvery, end - std::chrono::steady_clock::now()));
    }
  };
  // A resolver tells nobody when a name appears, so the search asks again now and then.
  SLUICE_ASSIGN_OR_RETURN(
      auto addresses,
      findMaster({.clock = clock,
                  .lookUp = [&](Duration atMost) { return lookUpAside(launch, atMost, ask); },
                  .pause = pause,
                  .interruption = ask},
                 launch.rank, timeout));
  return FoundMaster{std::move(addresses), begun};
}

}  // namespace sluice::rendezvous
