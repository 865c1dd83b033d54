#include <sluice/lab/lab.h>

#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/random.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/lab/command_line_tool.h>
#include <sluice/lab/namespaces.h>
#include <sluice/lab/removal.h>
#include <sluice/net/fd.h>

namespace sluice::lab {
namespace {

using net::Fd;

const std::filesystem::path kStateDirectory = "/run/sluice/labs";

// Takes the lock: only one program changes labs at a time. Tools inherit the lock, so it is held
// until the last of them has ended, even if this process is killed.
Result<Fd> takeLock() {
  if (::geteuid() != 0) {
    return Status(Code::kPermissionDenied,
                  "a lab needs root, to make network namespaces: run it with sudo");
  }
  std::error_code error;
  std::filesystem::create_directories(kStateDirectory, error);
  const auto path = kStateDirectory / "lock";
  Fd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock.valid()) return base::fromErrno("open " + path.string());
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return base::fromErrno("lock " + path.string());
  // flock(2) has no time limit; flock(1) has.
  const auto waited =
      runTool({.command = {"flock", "--exclusive", "--timeout", "30", std::to_string(lock.get())},
               .inheritedFd = lock.get(),
               .limit = std::chrono::seconds(35)});
  if (!waited.isOk()) {
    return Status(Code::kTimeout,
                  "another 'sluice lab' command has been changing labs for 30 s; see to it first");
  }
  return lock;
}

// One lab and the lock that a change to it needs.
class Workshop final {
 public:
  Workshop(std::string lab, Fd lock) : lab_(std::move(lab)), lock_(std::move(lock)) {}

  static Result<Workshop> open(const std::string& lab) {
    SLUICE_RETURN_IF_ERROR(checkName(lab));
    SLUICE_ASSIGN_OR_RETURN(Fd lock, takeLock());
    return Workshop(lab, std::move(lock));
  }

  int lockFd() const { return lock_.get(); }

  Status atSwitch(std::vector<std::string> command, std::string input) const {
    return inside(switchNamespace(lab_), std::move(command), std::move(input));
  }
  Status inHost(int host, std::vector<std::string> command, std::string input) const {
    return inside(hostNamespace(lab_, host), std::move(command), std::move(input));
  }

  Status makeNamespaces(const Layout& layout) const {
    const auto made = runTool({.command = {"ip", "-batch", "-"},
                               .input = namespacesScript(layout),
                               .inheritedFd = lock_.get()});
    return made.isOk() ? base::ok() : made.status();
  }

  Status shape(const std::map<int, Rate>& byHost, Duration delay) const {
    for (const auto& [host, rate] : byHost) {
      SLUICE_RETURN_IF_ERROR(inHost(host, {"tc", "-batch", "-"}, hostShapingScript(rate, delay)));
    }
    return atSwitch({"tc", "-batch", "-"}, switchShapingScript(byHost));
  }

  Status impose(const Faults& faults) const {
    return atSwitch({"nft", "-f", "-"}, faultScript(faults));
  }

 private:
  Status inside(const std::string& network, std::vector<std::string> command,
                std::string input) const {
    SLUICE_ASSIGN_OR_RETURN(const Fd fd, openNamespace(network));
    const auto output = runTool({.command = std::move(command),
                                 .input = std::move(input),
                                 .networkNamespace = fd.get(),
                                 .inheritedFd = lock_.get()});
    return output.isOk() ? base::ok() : output.status().withContext(network);
  }

  std::string lab_;
  Fd lock_;
};

StateStore store() {
  return StateStore(kStateDirectory);
}

// TCP remembers what it learnt of a path and starts the next connection with it. In a lab a run
// must not depend on the run before.
Status forgetPathsBetweenRuns(const std::string& network) {
  SLUICE_ASSIGN_OR_RETURN(const Fd fd, openNamespace(network));
  return runInside(fd.get(), [] {
    std::ofstream file("/proc/sys/net/ipv4/tcp_no_metrics_save");
    file << 1 << std::flush;
    return file ? base::ok() : base::fromErrno("set net.ipv4.tcp_no_metrics_save");
  });
}

// Tries a delay in a private network namespace, which ends with the thread.
Status checkDelayWorks() {
  Status status;
  std::thread([&] {
    if (::unshare(CLONE_NEWNET) != 0) {
      status = base::fromErrno("unshare");
      return;
    }
    const auto tried =
        runTool({.command = {"tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"}});
    if (!tried.isOk()) {
      status = Status(Code::kUnavailable,
                      "--delay needs the kernel module sch_netem, which this kernel does not have: "
                      "load it (modprobe sch_netem) or leave --delay out");
    }
  }).join();
  return status;
}

Status build(const Workshop& shop, const Layout& layout, const Progress& progress) {
  SLUICE_RETURN_IF_ERROR(shop.makeNamespaces(layout));
  SLUICE_RETURN_IF_ERROR(shop.atSwitch({"ip", "-batch", "-"}, switchScript(layout)));
  SLUICE_RETURN_IF_ERROR(shop.atSwitch({"bridge", "-batch", "-"}, forwardingScript(layout)));
  std::map<int, Rate> rates;
  for (int host = 0; host < layout.hosts; ++host) {
    if (progress) progress(host, layout.hosts, "making hosts");
    SLUICE_RETURN_IF_ERROR(forgetPathsBetweenRuns(hostNamespace(layout.name, host)));
    SLUICE_RETURN_IF_ERROR(shop.inHost(host, {"ip", "-batch", "-"}, hostScript(layout, host)));
    rates[host] = layout.rate;
  }
  SLUICE_RETURN_IF_ERROR(shop.shape(rates, layout.delay));
  return shop.impose({});
}

bool isWhole(const State& state) {
  return state.complete &&
         namespacesOf(state.layout.name).size() == static_cast<size_t>(state.layout.hosts) + 1;
}

// A fresh job key for one run, in a file that only root can read: every process that a rank starts
// would inherit a key in the environment. The file is removed after the run.
class RunKey final {
 public:
  explicit RunKey(const std::string& lab)
      : path_(kStateDirectory / fmt::format("{}.{}.key", lab, ::getpid())) {}
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

Result<Lab> Lab::up(const Layout& layout, const Progress& progress) {
  SLUICE_RETURN_IF_ERROR(layout.check());
  SLUICE_ASSIGN_OR_RETURN(const Workshop shop, Workshop::open(layout.name));
  if (const auto before = store().read(layout.name); before.isOk() && isWhole(*before)) {
    return Status(
        Code::kAlreadyExists,
        fmt::format(
            "lab '{0}' is up already: take it down first (sluice lab down --name {0}), or choose "
            "another --name",
            layout.name));
  }
  if (layout.delay > Duration(0)) SLUICE_RETURN_IF_ERROR(checkDelayWorks());
  const auto leftovers = removeNamespaces(layout.name, shop.lockFd(), progress);
  if (!leftovers.isOk()) return leftovers.status();

  State state{.layout = layout,
              .complete = false,
              .rates = std::vector<Rate>(layout.hosts, layout.rate),
              .faults = {}};
  SLUICE_RETURN_IF_ERROR(store().write(state));
  if (const Status built = build(shop, layout, progress); !built.isOk()) {
    // Report the first error. If the removal fails too, `down` finds the recorded intent.
    if (removeNamespaces(layout.name, shop.lockFd(), progress).isOk()) {
      if (const Status removed = store().remove(layout.name); !removed.isOk()) return removed;
    }
    return built;
  }
  state.complete = true;
  SLUICE_RETURN_IF_ERROR(store().write(state));
  return Lab(layout.name);
}

Result<bool> Lab::down(const std::string& name, const Progress& progress) {
  SLUICE_ASSIGN_OR_RETURN(const Workshop shop, Workshop::open(name));
  const bool wasKnown = store().read(name).status().code() != Code::kNotFound;
  SLUICE_ASSIGN_OR_RETURN(const bool hadNamespaces,
                          removeNamespaces(name, shop.lockFd(), progress));
  SLUICE_RETURN_IF_ERROR(store().remove(name));
  return wasKnown || hadNamespaces;
}

Result<Lab> Lab::open(const std::string& name) {
  SLUICE_ASSIGN_OR_RETURN(const Workshop shop, Workshop::open(name));
  SLUICE_ASSIGN_OR_RETURN(const State state, store().read(name));
  if (!isWhole(state)) {
    return Status(
        Code::kUnavailable,
        fmt::format(
            "lab '{0}' is there only in part: 'sluice lab up' or 'down' with --name {0} repairs it",
            name));
  }
  return Lab(name);
}

Result<std::vector<std::string>> Lab::names() {
  SLUICE_ASSIGN_OR_RETURN(const Fd lock, takeLock());
  return store().labs();
}

Result<State> Lab::state() const {
  SLUICE_ASSIGN_OR_RETURN(const Fd lock, takeLock());
  return store().read(name_);
}

Result<std::map<int, std::vector<pid_t>>> Lab::processes() const {
  SLUICE_ASSIGN_OR_RETURN(const State state, this->state());
  const auto byNamespace = processesIn(namespacesOf(name_));
  std::map<int, std::vector<pid_t>> byHost;
  for (int host = 0; host < state.layout.hosts; ++host) {
    const auto found = byNamespace.find(hostNamespace(name_, host));
    if (found != byNamespace.end()) byHost[host] = found->second;
  }
  return byHost;
}

Status Lab::setRate(const std::vector<int>& hosts, Rate rate) {
  SLUICE_ASSIGN_OR_RETURN(const Workshop shop, Workshop::open(name_));
  SLUICE_ASSIGN_OR_RETURN(State state, store().read(name_));
  Layout asked = state.layout;
  asked.rate = rate;
  SLUICE_RETURN_IF_ERROR(asked.check());
  std::map<int, Rate> byHost;
  for (const int host : hosts) {
    byHost[host] = rate;
    state.rates.at(static_cast<size_t>(host)) = rate;
  }
  SLUICE_RETURN_IF_ERROR(shop.shape(byHost, state.layout.delay));
  return store().write(state);
}

Status Lab::changeFaults(const std::function<Status(const State&, Faults&)>& change) {
  SLUICE_ASSIGN_OR_RETURN(const Workshop shop, Workshop::open(name_));
  SLUICE_ASSIGN_OR_RETURN(State state, store().read(name_));
  Faults faults = state.faults;
  SLUICE_RETURN_IF_ERROR(change(state, faults));
  SLUICE_RETURN_IF_ERROR(shop.impose(faults));
  state.faults = faults;
  return store().write(state);
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
  SLUICE_ASSIGN_OR_RETURN(const State state, this->state());
  if (options.hosts.empty()) {
    options.hosts.resize(static_cast<size_t>(state.layout.hosts));
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
  const RunKey key(name_);
  const std::string keyFile = base::environmentName(option::kJobKeyFile);
  if (::getenv(base::environmentName(option::kJobKey).c_str()) == nullptr &&
      ::getenv(keyFile.c_str()) == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(common[keyFile], key.write());
  }
  std::vector<Fd> networks;
  std::vector<Seat> seats;
  for (const int host : options.hosts) {
    SLUICE_ASSIGN_OR_RETURN(Fd network, openNamespace(hostNamespace(name_, host)));
    for (int local = 0; local < options.perHost; ++local) {
      Seat seat{network.get(), common};
      seat.environment["RANK"] = std::to_string(seats.size());
      seat.environment["LOCAL_RANK"] = std::to_string(local);
      seats.push_back(std::move(seat));
    }
    networks.push_back(std::move(network));
  }
  return launch(seats, options);
}

Status Lab::enter(int host) const {
  SLUICE_ASSIGN_OR_RETURN(const Fd network, openNamespace(hostNamespace(name_, host)));
  return enterNamespace(network.get()) ? base::ok() : base::fromErrno("entering the host");
}

Result<std::unique_ptr<TemporaryLab>> TemporaryLab::up(Layout layout) {
  static std::atomic<int> next{0};
  layout.name = fmt::format("tmp-{}-{}", ::getpid(), next++);
  SLUICE_ASSIGN_OR_RETURN(Lab lab, Lab::up(layout));
  return std::unique_ptr<TemporaryLab>(new TemporaryLab(std::move(lab)));
}

TemporaryLab::~TemporaryLab() {
  const auto gone = Lab::down(lab_.name());
  if (!gone.isOk())
    log("lab").error("the lab {} stays behind: {}", lab_.name(), gone.status().message());
}

}  // namespace sluice::lab
