#include <tools/lab/lab.h>

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <numeric>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/options.h>
#include <tools/lab/namespaces.h>
#include <tools/lab/workshop.h>

namespace sluice::lab {
namespace {

using net::Fd;

// A fresh job key for one run, in a file that only the user can read: every process that a rank
// starts would inherit a key in the environment. The file is removed after the run.
class RunKey final {
 public:
  RunKey(const std::filesystem::path& directory, const std::string& lab)
      : path_(directory / fmt::format("{}.{}.key", lab, ::getpid())) {}
  ~RunKey() { ::unlink(path_.c_str()); }
  RunKey(const RunKey&) = delete;
  RunKey& operator=(const RunKey&) = delete;

  Result<std::string> write() const {
    std::array<unsigned char, 32> bytes{};
    SLUICE_CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    std::string hex;
    for (const unsigned char byte : bytes) hex += fmt::format("{:02x}", byte);
    ::unlink(path_.c_str());  // left by a killed process of the same id
    const Fd file(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid() ||
        ::write(file.get(), hex.data(), hex.size()) != static_cast<ssize_t>(hex.size()))
      return base::fromErrno(fmt::format("cannot write {}", path_.string()));
    return path_.string();
  }

 private:
  const std::filesystem::path path_;
};

}  // namespace

Result<Lab> Lab::up(const Layout& layout, const Progress& progress, int lifeline) {
  SLUICE_RETURN_IF_ERROR(layout.check());
  SLUICE_ASSIGN_OR_RETURN(Workshop shop, Workshop::open(layout.name));
  const StateStore& files = shop.files();
  if (const auto before = files.read(layout.name); before.isOk() && shop.isWhole(*before)) {
    return Status(
        Code::kAlreadyExists,
        fmt::format(
            "lab '{0}' is up already: take it down first (sluice lab down --name {0}), or choose "
            "another --name",
            layout.name));
  }
  const auto leftovers = shop.clear(progress);
  if (!leftovers.isOk()) return leftovers.status();

  State state{.layout = layout,
              .complete = false,
              .rates = std::vector<Rate>(layout.hosts, layout.rate),
              .faults = {}};
  SLUICE_RETURN_IF_ERROR(files.write(state));
  if (const Status built = shop.build(layout, lifeline, progress); !built.isOk()) {
    // Report the first error. If the removal fails too, `down` finds the recorded intent.
    if (shop.clear(progress).isOk()) {
      if (const Status removed = files.remove(layout.name); !removed.isOk()) return removed;
    }
    return built;
  }
  state.complete = true;
  SLUICE_RETURN_IF_ERROR(files.write(state));
  return Lab(layout.name);
}

Result<bool> Lab::down(const std::string& name, const Progress& progress) {
  SLUICE_ASSIGN_OR_RETURN(Workshop shop, Workshop::open(name));
  const bool wasKnown = shop.files().read(name).status().code() != Code::kNotFound;
  SLUICE_ASSIGN_OR_RETURN(const bool hadNamespaces, shop.clear(progress));
  SLUICE_RETURN_IF_ERROR(shop.files().remove(name));
  return wasKnown || hadNamespaces;
}

Result<Lab> Lab::open(const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(const Workshop shop, Workshop::open(name));
  SLUICE_ASSIGN_OR_RETURN(const State state, shop.files().read(name));
  if (!shop.isWhole(state)) {
    return Status(
        Code::kUnavailable,
        fmt::format(
            "lab '{0}' is there only in part: 'sluice lab up' or 'down' with --name {0} repairs it",
            name));
  }
  return Lab(name);
}

Result<std::vector<std::string>> Lab::names() {
  SLUICE_ASSIGN_OR_RETURN(const LockedStore store, lockStore());
  return store.files.labs();
}

Result<State> Lab::state() const {
  SLUICE_ASSIGN_OR_RETURN(const LockedStore store, lockStore());
  return store.files.read(name_);
}

Result<std::vector<Host>> Lab::hosts() const {
  SLUICE_ASSIGN_OR_RETURN(Workshop shop, Workshop::open(name_));
  SLUICE_ASSIGN_OR_RETURN(const State state, shop.files().read(name_));
  SLUICE_ASSIGN_OR_RETURN(const Realm realm, std::move(shop).leave());
  auto processes = processesIn(realm, namespacesOf(realm, name_));
  std::vector<Host> hosts;
  for (int host = 0; host < state.layout.hosts; ++host) {
    const std::string name = hostNamespace(name_, host);
    hosts.push_back({.network = realm.isMachine() ? name : (realm.names() / name).string(),
                     .processes = std::move(processes[name])});
  }
  return hosts;
}

Status Lab::setRate(const std::vector<int>& hosts, Rate rate) {
  SLUICE_ASSIGN_OR_RETURN(const Workshop shop, Workshop::open(name_));
  SLUICE_ASSIGN_OR_RETURN(State state, shop.files().read(name_));
  Layout asked = state.layout;
  asked.rate = rate;
  SLUICE_RETURN_IF_ERROR(asked.check());
  std::map<int, Rate> byHost;
  for (const int host : hosts) {
    byHost[host] = rate;
    state.rates.at(static_cast<size_t>(host)) = rate;
  }
  SLUICE_RETURN_IF_ERROR(shop.shape(byHost, state.layout.delay));
  return shop.files().write(state);
}

Status Lab::changeFaults(const std::function<Status(const State&, Faults&)>& change) {
  SLUICE_ASSIGN_OR_RETURN(const Workshop shop, Workshop::open(name_));
  SLUICE_ASSIGN_OR_RETURN(State state, shop.files().read(name_));
  Faults faults = state.faults;
  SLUICE_RETURN_IF_ERROR(change(state, faults));
  SLUICE_RETURN_IF_ERROR(shop.impose(faults));
  state.faults = faults;
  return shop.files().write(state);
}

Status Lab::cut(const std::vector<int>& hosts) {
  return changeFaults([&](const State&, Faults& faults) {
    faults.cutHosts.insert(hosts.begin(), hosts.end());
    return base::ok();
  });
}

Status Lab::cutBetween(int a, int b) {
  if (a == b)
    return {Code::kInvalidArgument, "a host cannot be cut off from itself: name two hosts"};
  return changeFaults([&](const State&, Faults& faults) {
    faults.cutPairs.insert(std::minmax(a, b));
    return base::ok();
  });
}

Status Lab::drop(const std::vector<int>& hosts, double percent) {
  if (!(percent >= 0 && percent <= 100)) {
    return {Code::kInvalidArgument,
            fmt::format("{} percent cannot be dropped: say 0 to 100", percent)};
  }
  return changeFaults([&](const State&, Faults& faults) {
    for (const int host : hosts) {
      faults.dropPercent.erase(host);
      if (percent > 0) faults.dropPercent[host] = percent;
    }
    return base::ok();
  });
}

Status Lab::heal() {
  return changeFaults([](const State&, Faults& faults) {
    faults = {};
    return base::ok();
  });
}

Result<int> Lab::run(RunOptions options) const {
  SLUICE_ASSIGN_OR_RETURN(Workshop shop, Workshop::open(name_));
  SLUICE_ASSIGN_OR_RETURN(const State state, shop.files().read(name_));
  if (options.hosts.empty()) {
    options.hosts.resize(static_cast<size_t>(state.layout.hosts - state.layout.etcd));
    std::iota(options.hosts.begin(), options.hosts.end(), 0);
  }
  if (options.perHost < 1)
    return Status(Code::kInvalidArgument, "at least one process per host is needed");
  const std::string interface(kHostInterface);
  std::map<std::string, std::string> common{
      {"WORLD_SIZE", std::to_string(options.hosts.size() * static_cast<size_t>(options.perHost))},
      {"LOCAL_WORLD_SIZE", std::to_string(options.perHost)},
      {"MASTER_ADDR", hostAddress(state.layout.subnet, options.hosts.front())},
      {"MASTER_PORT", std::to_string(options.masterPort)},
      {"GLOO_SOCKET_IFNAME", interface},
      {"UCX_NET_DEVICES", interface},
      {base::environmentName(option::kIface), interface},
  };
  const RunKey key(shop.files().directory(), name_);
  const std::string keyFile = base::environmentName(option::kJobKeyFile);
  if (::getenv(base::environmentName(option::kJobKey).c_str()) == nullptr &&
      ::getenv(keyFile.c_str()) == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(common[keyFile], key.write());
  }
  std::vector<Fd> networks;
  std::vector<Seat> seats;
  for (const int host : options.hosts) {
    SLUICE_ASSIGN_OR_RETURN(Fd network, shop.openHost(host));
    for (int local = 0; local < options.perHost; ++local) {
      Seat seat{network.get(), common};
      seat.environment["RANK"] = std::to_string(seats.size());
      seat.environment["LOCAL_RANK"] = std::to_string(local);
      seats.push_back(std::move(seat));
    }
    networks.push_back(std::move(network));
  }
  SLUICE_ASSIGN_OR_RETURN(const Realm realm, std::move(shop).leave());
  return launch(realm, seats, options);
}

Status Lab::enter(int host) const {
  SLUICE_ASSIGN_OR_RETURN(Workshop shop, Workshop::open(name_));
  SLUICE_ASSIGN_OR_RETURN(const Fd network, shop.openHost(host));
  SLUICE_ASSIGN_OR_RETURN(const Realm realm, std::move(shop).leave());
  if (!realm.enter() || !enterNamespace(network.get())) return base::fromErrno("entering the host");
  if (!mountOwnSys()) sayRefused("/sys");
  return base::ok();
}

Result<std::unique_ptr<TemporaryLab>> TemporaryLab::up(Layout layout) {
  static std::atomic<int> next{0};
  layout.name = fmt::format("tmp-{}-{}", ::getpid(), next++);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return base::fromErrno("pipe");
  const Fd keepersEnd(ends[0]);
  Fd lifeline(ends[1]);
  SLUICE_ASSIGN_OR_RETURN(Lab lab, Lab::up(layout, {}, keepersEnd.get()));
  return std::unique_ptr<TemporaryLab>(new TemporaryLab(std::move(lab), std::move(lifeline)));
}

TemporaryLab::~TemporaryLab() {
  const auto gone = Lab::down(lab_.name());
  if (!gone.isOk())
    log("lab").error("the lab {} stays behind: {}", lab_.name(), gone.status().message());
}

}  // namespace sluice::lab
