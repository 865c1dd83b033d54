// Keeps strangers out of a listening port: accepts connections, goes through the handshake with
// each, and hands over those that have proved the job key. All of it runs on a loop of its own, so
// that a flood of strangers costs the loop that trains nothing.
//
// A connection is a *stranger* until its first message shows the key, then a *guest* until its
// handshake is done. Both must be done by a deadline. When too many strangers wait, the oldest
// stranger is dropped; a guest is never dropped for a stranger. Guests have a limit of their own,
// since a recorded first message makes a guest. Source addresses play no part: ranks on one host or
// behind one router share an address.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/net/fd.h>
#include <sluice/secret/door/candidate.h>

namespace sluice::door {

// A thread for the doormen of a process.
using DoorThread = std::shared_ptr<net::LoopThread>;
DoorThread makeDoorThread();

struct DoorOptions {
  Duration deadline = std::chrono::seconds(5);  // for the whole handshake
  size_t maxStrangers = 256;
  size_t maxGuests = 4096;
};

class Doorman final {
 public:
  // The handlers run on the doorman's thread, one at a time, and never after the destructor has
  // returned.
  struct Handlers {
    std::function<std::unique_ptr<Applicant>(net::Fd socket, const Address& peer)> greet;
    std::function<void(std::unique_ptr<Applicant>)> proved;
    // The status is kTimeout (too slow), kUnavailable (crowded out), kPeerLost (it hung up), or the
    // error of the handshake.
    std::function<void(const Address& peer, const Status& why)> turnedAway;
  };

  Doorman(DoorThread thread, net::Fd listener, const DoorOptions& options, Handlers handlers);
  // Closes the listener and all connections that have not been handed over. REQUIRES: not on the
  // doorman's thread.
  ~Doorman();
  Doorman(const Doorman&) = delete;
  Doorman& operator=(const Doorman&) = delete;

  // Expects hardly any connections from now on: lets in few strangers at a time, and a limited
  // number each second. Any thread.
  void narrow();

 private:
  class Door;

  const DoorThread thread_;
  std::shared_ptr<Door> door_;  // belongs to the thread's loop
};

}  // namespace sluice::door
