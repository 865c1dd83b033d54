// Listens, and keeps strangers out: a connection becomes a stream of the fabric only after it has proved the
// job key; until then nothing it sends is looked at beyond the handshake. Who stays silent is cut off after a
// while, and when too many wait the oldest goes. Loop thread only.
#pragma once

#include <functional>
#include <list>
#include <memory>

#include <sluice/base/epoll_loop.h>
#include <sluice/base/fd.h>
#include <sluice/base/mutex.h>
#include <sluice/fabric/fabric.h>
#include <sluice/fabric/tcp/stream.h>
#include <sluice/fabric/tcp/stream_maker.h>
#include <sluice/fabric/tcp/tcp_options.h>

namespace sluice::fabric {

class Acceptor final {
 public:
  // Called with a stream whose handshake is done.
  using Proved = std::function<void(std::unique_ptr<Stream>)>;

  Acceptor(base::EpollLoop& loop, base::Fd listener, const StreamMaker& maker, const TcpOptions& options,
           base::Guarded<Counters>& counters, Proved proved);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

 private:
  struct Stranger {
    std::unique_ptr<Stream> stream;
    TimerId deadline{};
  };
  using Strangers = std::list<Stranger>;

  void acceptSome();
  void rest();  // for a moment: the process has no descriptor left
  void listen();
  void greet(base::Fd socket);
  void advance(Strangers::iterator stranger);
  void turnAway(Strangers::iterator stranger, const Status& why);
  std::unique_ptr<Stream> release(Strangers::iterator stranger);

  base::EpollLoop& loop_;
  const base::Fd listener_;
  const StreamMaker& maker_;
  const TcpOptions options_;
  base::Guarded<Counters>& counters_;
  const Proved proved_;
  Strangers strangers_;  // oldest first
  std::optional<TimerId> resting_;
};

}  // namespace sluice::fabric
