// Brings the ranks of a command together (sluice doctor, sluice plan), as the ranks of a training
// would meet: same variables, same key, same interface. Used by the main thread of a command; the
// loop has a thread of its own.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sluice/base/config.h>
#include <sluice/base/ids.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/rendezvous/rendezvous.h>
#include <sluice/transport/fabric/fabric.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>

namespace sluice::probe {

struct MeetingOptions {
  std::string command;  // ranks of another command are refused
  // The time until all ranks are here, unless the user has set rendezvous-timeout. Ranks other than
  // 0 have less, so that they report why they cannot reach rank 0 before the launcher ends them.
  Duration patience = std::chrono::seconds(13);
};

class ProbeMeeting final {
 public:
  // Reads who this rank is; without a launcher, it is the only one. Opens nothing.
  static Result<std::unique_ptr<ProbeMeeting>> prepare(base::Config config,
                                                       const base::Config::Values& environment,
                                                       const MeetingOptions& options);
  ~ProbeMeeting();
  ProbeMeeting(const ProbeMeeting&) = delete;
  ProbeMeeting& operator=(const ProbeMeeting&) = delete;

  // Looks for rank 0, chooses the interface and opens this rank's port.
  Status open();

  // Waits until every rank is here. Returns the note of each, in rank order. REQUIRES: open() has
  // succeeded.
  Result<std::vector<std::string>> join(const std::string& note);

  // True iff rank 0 has let this rank in, even if others are still missing.
  bool hasReachedRank0();

  // Waits until rank 0 is gone, or for this long. A rank that leaves early would be named as lost
  // in place of the one that is missing.
  void lingerUntilRank0Leaves(Duration atMost);

  // Contributes `value`, and returns every rank's value for this key. Every rank calls it.
  Result<std::vector<std::string>> gather(const std::string& key, const std::string& value,
                                          Duration atMost = std::chrono::seconds(10));

  // Makes the fabric of all ranks. `receiver` must outlive it. REQUIRES: join() has succeeded, and
  // this is the first call.
  Result<std::unique_ptr<fabric::Fabric>> makeFabric(fabric::Receiver& receiver);

  const base::Config& config() const { return config_; }
  const rendezvous::Launch& launch() const { return launch_; }
  Rank rank() const { return launch_.rank; }
  uint32_t worldSize() const { return launch_.worldSize; }
  net::EpollLoop& loop() { return thread_.loop(); }
  // The addresses that the name of rank 0 has on this host. REQUIRES: open() found rank 0.
  const std::vector<Address>& master() const { return master_; }
  const rendezvous::Interface& interface() const { return interface_; }
  // The listening address of each rank. REQUIRES: join() has succeeded.
  const std::vector<Address>& addresses() const { return addresses_; }
  // True iff payloads to `peer` are encrypted, by this job's settings.
  bool encryptsTo(Rank peer) const;

 private:
  ProbeMeeting(base::Config config, rendezvous::Launch launch, std::string command);

  const base::Config config_;
  const rendezvous::Launch launch_;
  const std::string command_;
  std::vector<Address> master_;
  rendezvous::Interface interface_;
  std::vector<Address> addresses_;
  net::LoopThread thread_;
  std::optional<fabric::TcpListener> listener_;
  std::unique_ptr<rendezvous::Rendezvous> rendezvous_;  // on the loop; null in a world of one
  bool hasMet_ = false;
};

}  // namespace sluice::probe
