#include <tools/lab/workshop.h>

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>

#include <fmt/format.h>

#include <sluice/base/log.h>
#include <tools/lab/command_line_tool.h>
#include <tools/lab/namespaces.h>
#include <tools/lab/removal.h>
#include <tools/lab/state_directory.h>

namespace sluice::lab {
namespace {

using net::Fd;

Result<Fd> takeLock(const std::filesystem::path& directory) {
  const auto path = directory / "lock";
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

std::filesystem::path keeperFile(const StateStore& files, const std::string& lab) {
  return files.directory() / (lab + ".keeper");
}

Result<std::optional<Realm>> realmOf(const StateStore& files, const std::string& lab) {
  if (worksAsRoot()) return std::optional<Realm>(Realm::ofMachine());
  return Realm::find(keeperFile(files, lab));
}

// A lab vanishes with its keeper; its files stay.
Status forgetLostLabs(const StateStore& files) {
  for (const std::string& lab : files.labs()) {
    const auto realm = realmOf(files, lab);
    if (realm.isOk() && !realm->has_value()) SLUICE_RETURN_IF_ERROR(files.remove(lab));
  }
  return base::ok();
}

}  // namespace

Result<LockedStore> lockStore() {
  SLUICE_ASSIGN_OR_RETURN(const std::filesystem::path directory, stateDirectory());
  SLUICE_ASSIGN_OR_RETURN(Fd lock, takeLock(directory));
  StateStore files(directory);
  SLUICE_RETURN_IF_ERROR(forgetLostLabs(files));
  return LockedStore{std::move(files), std::move(lock)};
}

Result<Workshop> Workshop::open(const std::string& lab) {
  SLUICE_RETURN_IF_ERROR(checkName(lab));
  SLUICE_ASSIGN_OR_RETURN(LockedStore store, lockStore());
  SLUICE_ASSIGN_OR_RETURN(std::optional<Realm> realm, realmOf(store.files, lab));
  return Workshop(lab, std::move(store), std::move(realm));
}

Status Workshop::gone() const {
  return {Code::kNotFound, fmt::format("the lab '{}' is gone", lab_)};
}

bool Workshop::isWhole(const State& state) const {
  return state.complete && realm_ &&
         namespacesOf(*realm_, lab_).size() == static_cast<size_t>(state.layout.hosts) + 1;
}

Result<Fd> Workshop::openHost(int host) const {
  if (!realm_) return gone();
  return openNamespace(*realm_, hostNamespace(lab_, host));
}

Result<Realm> Workshop::leave() && {
  store_.lock.reset();
  if (!realm_) return gone();
  return *std::move(realm_);
}

Status Workshop::inRealm(const Tool& tool) const {
  if (!realm_) return gone();
  return runTool({.command = tool.command,
                  .input = tool.input,
                  .realm = &*realm_,
                  .inheritedFd = store_.lock.get()})
      .status();
}

Status Workshop::inside(const std::string& network, const Tool& tool) const {
  if (!realm_) return gone();
  SLUICE_ASSIGN_OR_RETURN(const Fd fd, openNamespace(*realm_, network));
  const auto output = runTool({.command = tool.command,
                               .input = tool.input,
                               .realm = &*realm_,
                               .networkNamespace = fd.get(),
                               .inheritedFd = store_.lock.get()});
  return output.isOk() ? base::ok() : output.status().withContext(network);
}

Status Workshop::atSwitch(const Tool& tool) const {
  return inside(switchNamespace(lab_), tool);
}

Status Workshop::inHost(int host, const Tool& tool) const {
  return inside(hostNamespace(lab_, host), tool);
}

// Tries a delay in a private network namespace, which ends with the tool.
Status Workshop::checkDelayWorks() const {
  const Status tried = inRealm(
      {{"unshare", "--net", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"},
       {}});
  if (tried.isOk()) return tried;
  return {Code::kUnavailable,
          "--delay needs the kernel module sch_netem, which this kernel does not have: load it "
          "(modprobe sch_netem) or leave --delay out"};
}

Status Workshop::makeHost(const Layout& layout, int host) const {
  // TCP remembers what it learnt of a path and starts the next connection with it. In a lab a run
  // must not depend on the run before.
  const Status forgets = inHost(host, {{"tee", "/proc/sys/net/ipv4/tcp_no_metrics_save"}, "1"});
  if (!forgets.isOk() && realm_->isMachine()) return forgets;
  if (!forgets.isOk() && host == 0)  // a container's /proc/sys is read-only
    log("lab").warn("TCP remembers paths from one run to the next: {}", forgets.message());
  return inHost(host, {{"ip", "-batch", "-"}, hostScript(layout, host)});
}

Status Workshop::build(const Layout& layout, int lifeline, const Progress& progress) {
  if (!realm_) {
    SLUICE_ASSIGN_OR_RETURN(realm_, Realm::make(keeperFile(files(), lab_), lifeline));
  }
  if (layout.delay > Duration(0)) SLUICE_RETURN_IF_ERROR(checkDelayWorks());
  SLUICE_RETURN_IF_ERROR(inRealm({{"ip", "-batch", "-"}, namespacesScript(layout)}));
  SLUICE_RETURN_IF_ERROR(atSwitch({{"ip", "-batch", "-"}, switchScript(layout)}));
  SLUICE_RETURN_IF_ERROR(atSwitch({{"bridge", "-batch", "-"}, forwardingScript(layout)}));
  std::map<int, Rate> rates;
  for (int host = 0; host < layout.hosts; ++host) {
    if (progress) progress(host, layout.hosts, "making hosts");
    SLUICE_RETURN_IF_ERROR(makeHost(layout, host));
    rates[host] = layout.rate;
  }
  SLUICE_RETURN_IF_ERROR(shape(rates, layout.delay));
  return impose({});
}

Status Workshop::shape(const std::map<int, Rate>& byHost, Duration delay) const {
  for (const auto& [host, rate] : byHost) {
    SLUICE_RETURN_IF_ERROR(inHost(host, {{"tc", "-batch", "-"}, hostShapingScript(rate, delay)}));
  }
  return atSwitch({{"tc", "-batch", "-"}, switchShapingScript(byHost)});
}

Status Workshop::impose(const Faults& faults) const {
  return atSwitch({{"nft", "-f", "-"}, faultScript(faults)});
}

Result<bool> Workshop::clear(const Progress& progress) {
  if (!realm_) return false;
  SLUICE_ASSIGN_OR_RETURN(const bool hadAny,
                          removeNamespaces(*realm_, lab_, store_.lock.get(), progress));
  if (!realm_->isMachine()) realm_.reset();
  return hadAny;
}

}  // namespace sluice::lab
