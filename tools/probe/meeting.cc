#include <tools/probe/meeting.h>

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/format.h>

#include <sluice/base/await.h>
#include <sluice/base/options.h>
#include <sluice/transport/fabric/common.h>
#include <tools/probe/own_sockets.h>

namespace sluice::probe {
namespace {

using namespace std::chrono_literals;

constexpr auto kLastAnswers = 3s;  // rank 0 stays this long for the others
constexpr auto kLookEvery = 500ms;
constexpr auto kStuckFor = 1500ms;
constexpr auto kConnectWithin = 4s;  // a peer that does not answer then is reported

bool hasLauncher(const base::Config::Values& environment) {
  constexpr std::array<std::string_view, 3> kRankNames{"RANK", "OMPI_COMM_WORLD_RANK",
                                                       "SLURM_PROCID"};
  return std::ranges::any_of(kRankNames, [&](auto name) { return environment.contains(name); });
}

// Ends a wait for rank 0 when TCP has sent it the same bytes in vain for a while: the store would
// wait for much longer.
class StuckWay final {
 public:
  Status check(const std::vector<Address>& master) {
    const TimePoint now = clock_.now();
    if (now - lookedAt_ < kLookEvery) return base::ok();
    lookedAt_ = now;
    const auto stuck = hostsWithStuckConnections();
    const bool isStuck = std::ranges::any_of(
        master, [&](const Address& address) { return stuck.contains(address.host()); });
    if (!isStuck) since_ = now;
    if (now - since_ < kStuckFor) return base::ok();
    return {Code::kTimeout, "what this rank sends to rank 0 does not arrive there"};
  }

 private:
  base::RealClock clock_;
  TimePoint since_ = clock_.now();
  TimePoint lookedAt_ = since_;
};

}  // namespace

Result<std::unique_ptr<Meeting>> Meeting::prepare(base::Config config,
                                                  const base::Config::Values& environment,
                                                  const MeetingOptions& options) {
  rendezvous::Launch launch;
  if (hasLauncher(environment)) {
    SLUICE_ASSIGN_OR_RETURN(launch, rendezvous::readLaunch(environment));
  }
  if (config.value(option::kRendezvousTimeout).source == base::Source::kDefault) {
    const Duration patience =
        launch.rank == Rank{0} ? options.patience : options.patience - options.patience / 4;
    SLUICE_RETURN_IF_ERROR(config.set(option::kRendezvousTimeout, base::formatDuration(patience),
                                      base::Source::kDefault));
  }
  std::unique_ptr<Meeting> meeting(
      new Meeting(std::move(config), std::move(launch), options.command));
  SLUICE_RETURN_IF_ERROR(meeting->thread_.status());
  return meeting;
}

Meeting::Meeting(base::Config config, rendezvous::Launch launch, std::string command)
    : config_(std::move(config)),
      launch_(std::move(launch)),
      command_(std::move(command)),
      interface_{"lo", Address::loopback(0)},
      thread_("sluice") {}

Meeting::~Meeting() {
  if (rendezvous_ == nullptr) return;
  if (hasMet_) {
    (void)base::await<bool>(loop(), [this](auto got) {
      rendezvous_->leave(kLastAnswers, [got = std::move(got)] { got(true); });
    });
  }
  fabric::runBeforeFreeing(loop(), [this] { rendezvous_.reset(); });
}

Status Meeting::open() {
  if (worldSize() == 1) return base::ok();
  SLUICE_ASSIGN_OR_RETURN(const auto found,
                          rendezvous::findMaster(launch_, loop().clock(),
                                                 config_.duration(option::kRendezvousTimeout)));
  master_ = found.addresses;
  // The settings of a training are compared by the command itself: ranks that differ must meet, so
  // that the difference can be named.
  rendezvous::Agreement agreement;
  agreement.add("command", command_);
  agreement.add("world size", fmt::to_string(worldSize()));
  Status started;
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(loop(), [&] {
    auto meeting = rendezvous::Rendezvous::start(loop(), config_, launch_, found, agreement);
    if (meeting.isOk()) {
      rendezvous_ = *std::move(meeting);
    } else {
      started = meeting.status();
    }
  }));
  SLUICE_RETURN_IF_ERROR(started);
  interface_ = rendezvous_->interface();
  SLUICE_ASSIGN_OR_RETURN(auto listener, fabric::TcpListener::open(interface_.address));
  listener_ = std::move(listener);
  return base::ok();
}

Result<std::vector<std::string>> Meeting::join(const std::string& note) {
  if (rendezvous_ == nullptr) return std::vector<std::string>{note};
  const std::string own = listener_->address().toString() + "\n" + note;
  const auto joined = base::await<std::vector<std::string>>(
      loop(), [&](auto got) { rendezvous_->join(own, std::move(got)); });
  SLUICE_RETURN_IF_ERROR(joined.status());
  std::vector<std::string> notes;
  for (const auto& each : *joined) {
    const auto end = std::min(each.find('\n'), each.size());
    SLUICE_ASSIGN_OR_RETURN(auto address, Address::parse(each.substr(0, end)));
    addresses_.push_back(std::move(address));
    notes.push_back(each.substr(std::min(end + 1, each.size())));
  }
  hasMet_ = true;
  return notes;
}

bool Meeting::hasReachedRank0() {
  if (rank() == Rank{0}) return true;
  if (rendezvous_ == nullptr) return false;
  const auto asked = base::await<std::string>(
      loop(), [&](auto got) { rendezvous_->store().get("nobody sets this", std::move(got)); });
  return asked.status().code() == Code::kNotFound;
}

void Meeting::lingerUntilRank0Leaves(Duration atMost) {
  if (rendezvous_ == nullptr || rank() == Rank{0}) return;
  (void)base::await<std::string>(loop(), [&](auto got) {
    rendezvous_->store().wait("nobody sets this", atMost, std::move(got));
  });
}

Result<std::vector<std::string>> Meeting::gather(const std::string& key, const std::string& value,
                                                 Duration atMost) {
  if (rendezvous_ == nullptr) return std::vector<std::string>{value};
  return base::await<std::vector<std::string>>(
      loop(), [&](auto got) { rendezvous_->store().gather(key, value, atMost, std::move(got)); },
      [this, ways = StuckWay()]() mutable { return ways.check(master_); });
}

Result<std::unique_ptr<fabric::Fabric>> Meeting::makeFabric(fabric::Receiver& receiver) {
  fabric::TcpMembership membership{.rank = rank(),
                                   .epoch = Epoch{0},
                                   .addresses = addresses_,
                                   .key = rendezvous_->jobKey(),
                                   .door = rendezvous_->door()};
  fabric::TcpOptions options = fabric::readTcpOptions(config_);
  options.connectDeadline = kConnectWithin;
  SLUICE_ASSIGN_OR_RETURN(
      auto fabric, fabric::makeTcpFabric(loop(), *std::move(listener_), std::move(membership),
                                         options, receiver));
  return std::unique_ptr<fabric::Fabric>(std::move(fabric));
}

bool Meeting::encryptsTo(Rank peer) const {
  const std::string& encrypt = config_.text(option::kEncrypt);
  return encrypt == "on" || (encrypt == "auto" && !addresses_.at(index(peer)).isLoopback());
}

}  // namespace sluice::probe
