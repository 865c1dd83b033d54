#include <sluice/join/rendezvous/rendezvous.h>

#include <sys/socket.h>

#include <algorithm>

#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/join/rendezvous/find_master.h>
#include <sluice/join/rendezvous/local_store.h>
#include <sluice/join/rendezvous/remote_store.h>
#include <sluice/join/rendezvous/same_user.h>
#include <sluice/join/rendezvous/server.h>
#include <sluice/secret/key_file.h>

namespace sluice::rendezvous {
namespace {

// The time for the remaining work when finding rank 0 has taken nearly all the time.
constexpr Duration kLeastTime = std::chrono::seconds(1);

// With a job key, or if the user has said `insecure`, rank 0 listens everywhere: the name by which
// others know it may mean 127.0.1.1 on its own host. Otherwise it listens on the loopback address
// it was given and nowhere else.
Result<std::unique_ptr<Server>> startServer(net::EpollLoop& loop, ServerOptions options,
                                            const Address& master, bool everywhere) {
  if (!everywhere) {
    options.listen = master;
    return Server::start(loop, std::move(options));
  }
  options.listen = Address::wildcard(AF_INET6, master.port());
  auto server = Server::start(loop, options);
  if (server.isOk()) return server;
  options.listen = Address::wildcard(AF_INET, master.port());  // a kernel without IPv6
  return Server::start(loop, std::move(options));
}

}  // namespace

Result<std::unique_ptr<Rendezvous>> Rendezvous::start(net::EpollLoop& loop,
                                                      const base::Config& config,
                                                      const Launch& launch,
                                                      const FoundMaster& found,
                                                      Agreement agreement) {
  SLUICE_ASSIGN_OR_RETURN(const auto key, secret::loadJobKey(config));
  const Duration patience = config.duration(option::kRendezvousTimeout);
  const TimePoint begun = found.searchedSince;
  const std::vector<Address>& master = found.addresses;
  for (const Address& address : master) {
    SLUICE_RETURN_IF_ERROR(secret::checkKeyFor(key, config, address.host(), address.isLoopback()));
  }
  SLUICE_ASSIGN_OR_RETURN(const auto interfaces, listInterfaces());
  SLUICE_ASSIGN_OR_RETURN(auto interface,
                          chooseInterface(interfaces, master.front(), config.text(option::kIface)));
  SLUICE_RETURN_IF_ERROR(
      secret::checkKeyFor(key, config, interface.address.host(), interface.address.isLoopback()));
  const Duration timeout =
      std::max(patience - (loop.now() - begun), std::min(patience, kLeastTime));
  std::unique_ptr<Rendezvous> meeting(new Rendezvous(loop, timeout, std::move(interface)));
  SLUICE_RETURN_IF_ERROR(meeting->door_->status());
  for (const auto& [name, id] : launch.ids) agreement.addLaunchId(name, id);
  // If this is true, all addresses are of this host, as was checked above.
  const bool provesUser = !key.isSecret() && !config.isOn(option::kInsecure);
  if (launch.rank != Rank{0}) {
    meeting->remote_ = std::make_unique<RemoteStore>(
        loop, RemoteOptions{.master = master,
                            .key = key,
                            .keyFrom = provesUser ? std::optional(master.front()) : std::nullopt,
                            .rank = launch.rank,
                            .agreement = std::move(agreement),
                            .timeout = timeout,
                            .begun = begun});
    return meeting;
  }
  // Without a job key rank 0 draws one and hands it to processes of its own user, so that other
  // users of this host cannot join the job. With `insecure` the user has said that there are no
  // strangers, and no key is drawn.
  meeting->serverKey_ = provesUser ? secret::JobKey::random() : key;
  ServerOptions options;
  options.key = meeting->serverKey_;
  options.worldSize = launch.worldSize;
  options.begun = begun;
  options.door = meeting->door_;
  options.agreement = std::move(agreement);
  const bool everywhere = key.isSecret() || config.isOn(option::kInsecure);
  SLUICE_ASSIGN_OR_RETURN(meeting->server_,
                          startServer(loop, std::move(options), master.front(), everywhere));
  log("rendezvous")
      .info("rank 0 of {} listens on port {}; the job uses {} ({}), pin another with --iface",
            launch.worldSize, meeting->port(), meeting->interface_.name,
            meeting->interface_.address.host());
  if (provesUser) {
    SLUICE_ASSIGN_OR_RETURN(
        meeting->keyServer_,
        KeyServer::start(loop, master.front().withPort(meeting->port()), meeting->serverKey_));
  }
  meeting->local_ = std::make_unique<LocalStore>(loop, meeting->server_->table(), launch.rank);
  return meeting;
}

Rendezvous::Rendezvous(net::EpollLoop& loop, Duration timeout, Interface interface)
    : loop_(loop), timeout_(timeout), interface_(std::move(interface)) {}

Rendezvous::~Rendezvous() = default;

uint16_t Rendezvous::port() const {
  return server_ == nullptr ? 0 : server_->port();
}

Store& Rendezvous::store() {
  if (local_) return *local_;
  return *remote_;
}

secret::JobKey Rendezvous::jobKey() const {
  if (server_) return serverKey_.forJob(server_->jobNonce());
  return remote_->key().forJob(remote_->jobNonce());
}

void Rendezvous::join(std::string note, const Store::GotAll& got) {
  const auto gather = [this, note = std::move(note), got](Duration timeLeft) {
    store().gather("start", note, timeLeft, got);
  };
  // Rank 0 is its own member and needs no connection. The others join first, and what the join
  // has taken is missing from the time of the gather.
  if (local_) return gather(timeout_);
  remote_->join([this, gather, got, begun = loop_.now()](const Status& status) {
    if (!status.isOk()) return got(status);
    gather(std::max<Duration>(timeout_ - (loop_.now() - begun), kLeastTime));
  });
}

void Rendezvous::leave(Duration timeout, std::function<void()> done) {
  if (server_) return server_->whenAllLeft(timeout, std::move(done));
  loop_.post(std::move(done));
}

}  // namespace sluice::rendezvous
