// Proves that the ranks of a job without a job key, which are all on one host, belong to one user.
// Rank 0 draws a key for the job and hands it to processes of its own user over an abstract Unix
// socket. The kernel tells each end the user of the other (SO_PEERCRED), and each end checks it.
// The socket is named after the user and rank 0's address, needs no file and disappears with the
// process. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <set>

#include <sluice/base/net/address.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/status.h>
#include <sluice/secret/job_key.h>

namespace sluice::rendezvous {

// Rank 0's end: hands the key to processes of its own user.
class KeyServer final {
 public:
  // `master` is the address on which rank 0 meets the others. Before loop.run(), or on the loop.
  static Result<std::unique_ptr<KeyServer>> start(net::EpollLoop& loop, const Address& master,
                                                  const secret::JobKey& key);
  ~KeyServer();
  KeyServer(const KeyServer&) = delete;
  KeyServer& operator=(const KeyServer&) = delete;

 private:
  KeyServer(net::EpollLoop& loop, net::Fd socket, secret::JobKey key);
  void acceptSome();

  net::EpollLoop& loop_;
  const net::Fd socket_;
  const secret::JobKey key_;
  std::set<uint32_t> refused_;  // users that the log has named already
};

// Asks rank 0 for the key, once. The error is kPermissionDenied if another user answers, or holds
// the name; asking again does not help then.
class KeyRequest final {
 public:
  using Got = std::function<void(Result<secret::JobKey>)>;  // may destroy the request

  KeyRequest(net::EpollLoop& loop, const Address& master) : loop_(loop), master_(master) {}
  ~KeyRequest();
  KeyRequest(const KeyRequest&) = delete;
  KeyRequest& operator=(const KeyRequest&) = delete;

  // Asks rank 0, or returns the reason that it cannot be asked now. After a success `got` runs
  // exactly once, from the loop, unless the request is destroyed first. REQUIRES: called once.
  Status start(Got got);

 private:
  Status connect();
  Result<secret::JobKey> read();

  net::EpollLoop& loop_;
  const Address master_;
  net::Fd socket_;
  Got got_;
};

}  // namespace sluice::rendezvous
