// Finds rank 0's addresses by the name that the launcher gave. In a cluster that name often exists
// only once rank 0's host is up, so a name that is not found is looked up again until the time is
// up. Any thread but a loop's: the calling thread waits.
#pragma once

#include <functional>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/net/address.h>
#include <sluice/base/status.h>
#include <sluice/join/rendezvous/launch.h>

namespace sluice::rendezvous {

// The clock, the resolver and the pauses of a search; a test brings its own.
struct Search {
  const Clock& clock;
  // Looks the name up, for at most the given time.
  std::function<Result<std::vector<Address>>(Duration atMost)> lookUp;
  std::function<void(Duration)> pause;
  std::function<Status()> interruption{};  // asked after every try; an error ends the search
};

struct FoundMaster {
  std::vector<Address> addresses;  // not empty
  TimePoint searchedSince;
};

// Logs every few seconds why it still searches; the error says why it never found anything.
Result<std::vector<Address>> findMaster(const Search& search, Rank rank, Duration timeout);

// Searches with the resolver of this host, and `clock` in real time. `interruption` is asked ten
// times a second, so that Ctrl-C ends the search even while a name server does not answer.
Result<FoundMaster> findMaster(const Launch& launch, const Clock& clock, Duration timeout,
                               const std::function<Status()>& interruption = {});

}  // namespace sluice::rendezvous
