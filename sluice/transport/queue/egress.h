// The way out of a rank: messages wait here until they are the most urgent that may go, and `next`
// hands them to the network one by one. Combines order (SendQueue) and credit (Credit); measures
// priority inversion.
//
// Belongs to its owner's loop: no threads, no callbacks. The owner calls next() until it gives
// nothing, after every push() and done(). Costs O(log) in messages and destinations.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/histogram.h>
#include <sluice/transport/queue/credit.h>
#include <sluice/transport/queue/inversion.h>
#include <sluice/transport/queue/send_queue.h>

namespace sluice::queue {

struct EgressOptions {
  SendOrder order = SendOrder::kPriority;
  uint64_t window = kUnlimited;       // bytes in flight per destination
  uint64_t totalWindow = kUnlimited;  // and over all destinations
};

// A message that is with the network: give it back to done() when the network is through with it.
struct Handed {
  Send send{};
  uint64_t ticket = 0;  // rises from one to the next
};

class Egress final {
 public:
  // `clock` must outlive this.
  Egress(const Clock& clock, const EgressOptions& options);

  void push(const Send& send);

  // Returns the most urgent message whose destination has credit. A destination's messages do not
  // overtake each other for credit: while its most urgent message does not fit, no message goes to
  // it. The total window binds all destinations in this way.
  std::optional<Handed> next();

  // Call it when the network is through with the message, well or badly. REQUIRES: exactly once for
  // each message that next() gave.
  void done(const Handed& handed);

  // Takes back all messages that still wait for this destination, because it is gone; most urgent
  // first. The caller owes each a completion. Messages that the network has must still come back
  // through done().
  std::vector<Send> drop(Rank to);

  size_t waiting() const { return waiting_; }
  const Credit& credit() const { return credit_; }
  // Returns the inversion time of every message done so far, zeros included.
  const Histogram& inversion() const { return inversion_; }

 private:
  struct Peer {
    SendQueue queue;
    Inversion inversion{};
    std::optional<SendKey> listed{};  // its key in eligible_, if it is there
  };
  Peer& at(Rank to);
  // Brings eligible_ up to date after anything about `to` has changed.
  void relist(Rank to);

  const Clock& clock_;
  const SendOrder order_;
  Credit credit_;
  std::vector<Peer> peers_;  // by rank; grows with the highest seen
  std::set<std::pair<SendKey, Rank>>
      eligible_;  // destinations whose most urgent message has credit
  Histogram inversion_;
  size_t waiting_ = 0;
  uint64_t arrivals_ = 0;
  uint64_t tickets_ = 0;
};

}  // namespace sluice::queue
