#include <sluice/session/job_parts.h>

#include <algorithm>
#include <array>
#include <chrono>

#include <fmt/format.h>

#include <sluice/base/await.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/secret/key_file.h>
#include <sluice/session/join_members.h>
#include <sluice/session/protection.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>

namespace sluice::session {
namespace {

// Rank 0 stays at most this long for the others' last words.
constexpr auto kLastWords = std::chrono::seconds(5);

// Goodbyes to the other ranks' pulses may take this long. It is short, since nobody waits for them.
constexpr auto kPulseGoodbye = std::chrono::milliseconds(500);

bool wasLaunched(const base::Config::Values& environment) {
  constexpr std::array<std::string_view, 3> kRankNames{"RANK", "OMPI_COMM_WORLD_RANK",
                                                       "SLURM_PROCID"};
  return std::ranges::any_of(kRankNames, [&](auto name) { return environment.contains(name); });
}

// Opens the metrics endpoint; null if metrics are off. Ranks of one host listen on consecutive
// ports.
Result<std::unique_ptr<metrics::MetricsServer>> openMetrics(const base::Config& config,
                                                            uint32_t localRank) {
  constexpr int64_t kLastPort = 65535;
  const std::string& text = config.text(option::kMetricsPort);
  if (text == "off") return std::unique_ptr<metrics::MetricsServer>();
  const auto first = base::parseInteger(text);
  const int64_t port = !first.isOk() || *first == 0 ? 0 : *first + localRank;
  if (!first.isOk() || *first < 0 || port > kLastPort) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("metrics-port '{}' is not a port for local rank {}; give a number or off", text,
                    localRank));
  }
  SLUICE_ASSIGN_OR_RETURN(auto endpoint,
                          metrics::MetricsServer::open(config.text(option::kMetricsAddress),
                                                       static_cast<uint16_t>(port)));
  log("session").info("metrics: {}", endpoint->url());
  return endpoint;
}

}  // namespace

Result<std::unique_ptr<JobParts>> JobParts::join(base::Config config,
                                                 const base::Config::Values& environment,
                                                 base::Interruption interruption,
                                                 const Publish& published) {
  rendezvous::Launch launch;
  // Without a launcher's variables this process is a job of one, so a script runs unchanged on
  // a laptop.
  if (wasLaunched(environment)) {
    SLUICE_ASSIGN_OR_RETURN(launch, rendezvous::readLaunch(environment));
  }
  SLUICE_ASSIGN_OR_RETURN(auto key, secret::loadJobKey(config));
  std::unique_ptr<JobParts> job(
      new JobParts(std::move(config), std::move(launch), std::move(key), std::move(interruption)));
  SLUICE_RETURN_IF_ERROR(job->thread_.status());
  if (job->config_.isOn(option::kLeaveOnTerm)) {
    job->term_.emplace();
    if (!job->term_->hasSignal())
      log("session").warn("leave-on-term does nothing: SIGTERM has a handler already, which stays");
  }
  SLUICE_ASSIGN_OR_RETURN(job->metrics_, openMetrics(job->config_, job->launch_.localRank));
  if (job->worldSize() == 1) return job;

  SLUICE_ASSIGN_OR_RETURN(const auto master,
                          rendezvous::findMaster(job->launch_, job->loop().clock(),
                                                 job->config_.duration(option::kRendezvousTimeout),
                                                 job->interruption_));
  Status started;
  // The rendezvous belongs to the loop and is made there. Rank 0 listens from here on, so its
  // port can be told to others before anybody waits for anybody.
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(job->loop(), [&] {
    auto meeting =
        rendezvous::Rendezvous::start(job->loop(), job->config_, job->launch_, master,
                                      rendezvous::Agreement(job->config_, job->worldSize()));
    if (meeting.isOk()) {
      job->rendezvous_ = *std::move(meeting);
    } else {
      started = meeting.status();
    }
  }));
  SLUICE_RETURN_IF_ERROR(started);
  if (published && job->rank() == Rank{0})
    SLUICE_RETURN_IF_ERROR(published(job->rendezvous_->port()));
  SLUICE_ASSIGN_OR_RETURN(auto listener, fabric::TcpListener::open(job->address()));
  const std::string note = listener.address().toString();
  const auto everybody = base::await<std::vector<std::string>>(
      job->loop(), [&](auto got) { job->rendezvous_->join(note, std::move(got)); },
      job->interruption_);
  SLUICE_RETURN_IF_ERROR(everybody.status());
  // From here on the job has a key of its own. The user's key opens doors only; what travels is
  // protected by keys that die with the job, so a leftover of an earlier job cannot take part.
  job->hasMet_ = true;
  const secret::JobKey usersKey = std::exchange(job->key_, job->rendezvous_->jobKey());
  SLUICE_RETURN_IF_ERROR(job->startPulse(std::move(listener), *everybody));
  if (wantsMembers(job->config_)) SLUICE_RETURN_IF_ERROR(job->startMembers(usersKey));
  if (job->rank() == Rank{0}) {
    const auto protection =
        describeProtection(job->config_, job->address().isLoopback(), job->key_.isSecret());
    log("session").info("payloads between ranks are {}", protection.words);
    if (!protection.warning.empty()) log("session").warn("{}", protection.warning);
  }
  return job;
}

Status JobParts::startMembers(const secret::JobKey& usersKey) {
  const JoiningMember joining{
      .loop = loop(),
      .config = config_,
      .rank = launch_.rank,
      .address = address(),
      .storeKey = usersKey,
      .fabricKey = key_,
      .door = door(),
      .pulse = pulse(),
      .gather = [this](const auto& key, const auto& value) { return gather(key, value); },
      .interruption = interruption_};
  SLUICE_ASSIGN_OR_RETURN(members_, joinMembers(joining));
  return base::ok();
}

Status JobParts::startPulse(fabric::TcpListener listener,
                            const std::vector<std::string>& addresses) {
  SLUICE_ASSIGN_OR_RETURN(const auto liveness, fabric::readLivenessOptions(config_));
  fabric::TcpMembership membership{
      .rank = rank(), .epoch = Epoch{0}, .addresses = {}, .key = key_, .door = door()};
  SLUICE_ASSIGN_OR_RETURN(membership.addresses, net::parseAddresses(addresses));
  fabric::TcpOptions options = fabric::readTcpOptions(config_);
  options.closeDeadline = kPulseGoodbye;
  SLUICE_ASSIGN_OR_RETURN(
      pulse_, fabric::PulseThread::start(liveness, loop(), worldSize(),
                                         [&](net::EpollLoop& loop, fabric::Receiver& receiver) {
                                           return fabric::makeTcpFabric(loop, std::move(listener),
                                                                        std::move(membership),
                                                                        options, receiver);
                                         }));
  return base::ok();
}

JobParts::JobParts(base::Config config, rendezvous::Launch launch, secret::JobKey key,
                   base::Interruption interruption)
    : config_(std::move(config)),
      launch_(std::move(launch)),
      key_(std::move(key)),
      interruption_(std::move(interruption)),
      thread_("sluice") {}

JobParts::~JobParts() {
  if (process_.isInherited()) return;
  // The order is that of need: members say goodbye over their own connections, the pulse over
  // its own, and rank 0 stays for the others' last questions until all are gone or time is up.
  // A job that never met has nobody to take leave of.
  if (members_ != nullptr) {
    if (!isAbandoned_) {
      (void)base::await<bool>(loop(), [this](auto got) {
        members_->leave(kLastWords, [got = std::move(got)] { got(true); });
      });
    }
    fabric::runBeforeFreeing(loop(), [this] { members_.reset(); });
  }
  pulse_.reset();
  if (rendezvous_ == nullptr) return;
  if (hasMet_) {
    (void)base::await<bool>(loop(), [this](auto got) {
      rendezvous_->leave(kLastWords, [got = std::move(got)] { got(true); });
    });
  }
  fabric::runBeforeFreeing(loop(), [this] { rendezvous_.reset(); });
}

Status JobParts::checkProcess() const {
  if (!process_.isInherited()) return base::ok();
  return base::forkedStatus(fmt::format("rank {} of a sluice job", rank()));
}

Address JobParts::address() const {
  return rendezvous_ == nullptr ? Address::loopback(0) : rendezvous_->interface().address;
}

std::string JobParts::interfaceName() const {
  return rendezvous_ == nullptr ? "lo" : rendezvous_->interface().name;
}

Result<std::vector<std::string>> JobParts::gather(const std::string& key,
                                                  const std::string& value) {
  return gather(key, value, config_.duration(option::kRendezvousTimeout));
}

Result<std::vector<std::string>> JobParts::gather(const std::string& key, const std::string& value,
                                                  Duration atMost,
                                                  const base::Interruption& refusal) {
  SLUICE_RETURN_IF_ERROR(checkProcess());
  if (rendezvous_ == nullptr) return std::vector<std::string>{value};
  const auto ask = [&]() -> Status {
    if (interruption_) SLUICE_RETURN_IF_ERROR(interruption_());
    return refusal ? refusal() : base::ok();
  };
  return base::await<std::vector<std::string>>(
      loop(), [&](auto got) { gatherOnLoop(key, value, atMost, std::move(got)); },
      refusal ? base::Interruption(ask) : interruption_);
}

void JobParts::gatherLater(const std::string& key, const std::string& value, Duration atMost,
                           std::function<void(Result<std::vector<std::string>>)> got) {
  loop().post(
      [this, key, value, atMost, got = std::move(got)] { gatherOnLoop(key, value, atMost, got); });
}

void JobParts::gatherOnLoop(const std::string& key, const std::string& value, Duration atMost,
                            std::function<void(Result<std::vector<std::string>>)> got) {
  if (members_ == nullptr) return rendezvous_->store().gather(key, value, atMost, std::move(got));
  members_->gather(
      key, value.size(), [value](const membership::EpochView&) { return value; }, atMost,
      std::move(got));
}

Status JobParts::set(const std::string& key, const std::string& value) {
  SLUICE_RETURN_IF_ERROR(checkProcess());
  if (rendezvous_ == nullptr) return base::ok();
  if (members_ != nullptr)
    return fabric::runAndWait(loop(), [&] { members_->leaveNote(key, value); });
  return base::awaitStatus(
      loop(), [&](auto done) { rendezvous_->store().set(key, value, std::move(done)); },
      interruption_);
}

void JobParts::whenSet(const std::string& key, std::function<void(const std::string&)> then) {
  if (rendezvous_ == nullptr) return;
  loop().post([this, key, then = std::move(then)] {
    if (members_ != nullptr) return members_->whenNoted(key, then);
    rendezvous_->store().wait(key, base::kAsLongAsItTakes, [then](const Result<std::string>& note) {
      if (note.isOk()) then(*note);
    });
  });
}

Result<std::string> JobParts::get(const std::string& key) {
  SLUICE_RETURN_IF_ERROR(checkProcess());
  // With members there is no store of rank 0: the note may come from any member, and nothing
  // but this deadline ends the wait.
  const TimePoint deadline = loop().now() + config_.duration(option::kRendezvousTimeout);
  const auto ask = [&]() -> Status {
    if (loop().now() > deadline)
      return {Code::kTimeout, fmt::format("no member has left the note '{}'", key)};
    return interruption_ ? interruption_() : base::ok();
  };
  return base::await<std::string>(
      loop(),
      [&](auto got) {
        if (members_ != nullptr)
          return members_->whenNoted(key, [got](const std::string& note) { got(note); });
        rendezvous_->store().wait(key, config_.duration(option::kRendezvousTimeout),
                                  std::move(got));
      },
      members_ != nullptr ? base::Interruption(ask) : interruption_);
}

}  // namespace sluice::session
