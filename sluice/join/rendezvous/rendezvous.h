// Brings the ranks of a job together: rank 0 listens, the others come, and every rank learns what
// each rank brought (its fabric address). A session calls this; the parts behind it are server.h
// and remote_store.h.
//
// Call findMaster on a thread that may wait, and Rendezvous::start before loop.run():
//
//   auto master = findMaster(launch, loop.clock(), timeout);
//   auto meeting = Rendezvous::start(loop, config, launch, *master, agreement);
//   loop.post([&] { meeting->join("10.0.0.3:4711", [](auto everyonesNotes) { ... }); });
#pragma once

#include <memory>
#include <string>

#include <sluice/base/config.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/join/rendezvous/agreement.h>
#include <sluice/join/rendezvous/find_master.h>
#include <sluice/join/rendezvous/interface.h>
#include <sluice/join/rendezvous/launch.h>
#include <sluice/join/rendezvous/store.h>
#include <sluice/secret/door/doorman.h>
#include <sluice/secret/job_key.h>

namespace sluice::rendezvous {

class Server;
class RemoteStore;
class LocalStore;
class KeyServer;

class Rendezvous final {
 public:
  // Reads the job key (in a job without one on one host, rank 0 makes one for ranks of its user)
  // and chooses the network interface; rank 0 listens from here on. The time that finding the
  // master has taken counts as part of rendezvous-timeout. Before loop.run(), or on the loop.
  static Result<std::unique_ptr<Rendezvous>> start(net::EpollLoop& loop, const base::Config& config,
                                                   const Launch& launch, const FoundMaster& master,
                                                   Agreement agreement);
  ~Rendezvous();  // on the loop, or after it has ended
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Returns the address (port 0) at which the other ranks reach this one. A fabric listens on it.
  const Interface& interface() const { return interface_; }

  // Returns the port on which rank 0 listens; 0 on the others. Any thread.
  uint16_t port() const;

  // Waits until every rank is here; the answer is the note of each rank, in rank order. Loop thread
  // only.
  void join(std::string note, const Store::GotAll& got);

  // Returns the key of this very job (JobKey::forJob), for everything but the rendezvous itself.
  // REQUIRES: join() has completed well.
  secret::JobKey jobKey() const;

  // The thread that holds strangers off, for the doormen of this process.
  const door::DoorThread& door() const { return door_; }

  // The store for later notes. REQUIRES: join() has completed well.
  Store& store();

  // Rank 0 runs `done` when all others are gone, or after `timeout`; the others run it at once.
  // Loop thread only.
  void leave(Duration timeout, std::function<void()> done);

 private:
  Rendezvous(net::EpollLoop& loop, Duration timeout, Interface interface);

  net::EpollLoop& loop_;
  const Duration timeout_;
  const Interface interface_;
  const door::DoorThread door_ = door::makeDoorThread();
  secret::JobKey serverKey_ = secret::JobKey::none();
  std::unique_ptr<KeyServer> keyServer_;  // rank 0, if the user gave no key
  std::unique_ptr<Server> server_;        // rank 0
  std::unique_ptr<LocalStore> local_;
  std::unique_ptr<RemoteStore> remote_;  // the others
};

}  // namespace sluice::rendezvous
