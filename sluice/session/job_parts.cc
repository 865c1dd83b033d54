#include <sluice/session/job_parts.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include <sluice/base/await.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/secret/key_file.h>
#include <sluice/session/join_members.h>
#include <sluice/session/other_ranks.h>
#include <sluice/session/protection.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/tcp/tcp_fabric.h>

namespace sluice::session {
namespace {

// Rank 0 stays at most this long for the others' last words.
constexpr auto kLastWords = std::chrono::seconds(5);

// Goodbyes to the other ranks' pulses may take this long. It is short, since nobody waits for them.
constexpr auto kPulseGoodbye = std::chrono::milliseconds(500);

// The notes of the first rank that ends in bad order, and in good order.
constexpr std::string_view kFailureKey = "failed";
constexpr std::string_view kEndKey = "ended";

bool wasLaunched(const base::Config::Values& environment) {
  constexpr std::array<std::string_view, 3> kRankNames{"RANK", "OMPI_COMM_WORLD_RANK",
                                                       "SLURM_PROCID"};
  return std::ranges::any_of(kRankNames, [&](auto name) { return environment.contains(name); });
}

// Opens the metrics endpoint; null if metrics are off or there is no place for them. Ranks of one
// host listen on consecutive ports.
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
  auto endpoint = metrics::MetricsServer::open(config.text(option::kMetricsAddress),
                                               static_cast<uint16_t>(port));
  if (!endpoint.isOk()) {
    // Training does not need them. A job may have waited for its hosts for hours.
    log("session").warn("{}; this rank trains without metrics", endpoint.status().message());
    return std::unique_ptr<metrics::MetricsServer>();
  }
  log("session").info("metrics: {}", (*endpoint)->url());
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
  SLUICE_RETURN_IF_ERROR(job->startFlightRecorder(*everybody));
  job->listenForEnds();
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

Status JobParts::startFlightRecorder(const std::vector<std::string>& addresses) {
  flight::About about{.rank = launch_.rank, .worldSize = launch_.worldSize};
  about.job = config_.text(option::kJob);
  // torchrun's name of a launch without one is "none".
  for (const auto& [variable, id] : launch_.ids) {
    if (about.job.empty() && id != "none") about.job = id;
  }
  if (about.job.empty()) about.job = fmt::format("port{}", launch_.masterPort);
  // The ports of all ranks tell this job from the next one of the same name (FNV-1a).
  about.run = 0xcbf29ce484222325;
  for (const std::string& address : addresses) {
    for (const char c : address) about.run = (about.run ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  SLUICE_ASSIGN_OR_RETURN(flight_, flight::FlightRecorder::begin(config_, about));
  return base::ok();
}

// A note has the rank, the number of gatherings that it has begun, and the reason.
void JobParts::listenForEnds() {
  if (wantsMembers(config_)) return;
  const auto listen = [this](std::string_view key, const std::shared_ptr<base::Guarded<End>>& to) {
    whenSet(std::string(key), [self = rank(), to](const std::string& note) {
      std::istringstream words(note);
      uint32_t whose = 0;
      End end;
      std::string why;
      if (!(words >> whose >> end.gatherings) || !std::getline(words >> std::ws, why)) return;
      if (Rank{whose} == self) return;
      end.why = {Code::kPeerLost, fmt::format("rank {} {}", whose, base::printable(why))};
      to->with([&](End& known) { known = std::move(end); });
    });
  };
  listen(kFailureKey, failure_);
  listen(kEndKey, end_);
}

void JobParts::abandon(const std::string& why) {
  if (members_ != nullptr) return abandonMembers();
  if (!refusal(std::nullopt).isOk()) return;  // the others have heard of the first
  const Status said = set(std::string(kFailureKey),
                          fmt::format("{} {} {}", rank(), gatherings_, base::printable(why)));
  if (!said.isOk()) log("session").debug("the other ranks were not told: {}", said.toString());
}

Status JobParts::explained(const Status& error) const {
  constexpr auto kPeriod = std::chrono::milliseconds(20);
  constexpr int kLooks = 5;
  if (error.code() != Code::kPeerLost || members_ != nullptr) return error;
  for (int look = 0; look < kLooks; ++look) {
    if (look > 0) std::this_thread::sleep_for(kPeriod);
    const Status why = refusal(std::nullopt);
    if (!why.isOk()) return error.message().ends_with(why.message()) ? error : why;
  }
  return error;
}

Status JobParts::announceEnd() {
  SLUICE_RETURN_IF_ERROR(checkProcess());
  if (members_ != nullptr || !end_->with([](const End& end) { return end.why; }).isOk())
    return base::ok();
  return set(std::string(kEndKey), fmt::format("{} {} {}", rank(), gatherings_, describeGoodEnd()));
}

std::string_view JobParts::describeGoodEnd() const {
  return isAskedToLeave() ? "was told to end (SIGTERM) and has left" : "has ended its training";
}

Status JobParts::refusal(std::optional<uint64_t> number) const {
  SLUICE_RETURN_IF_ERROR(failure_->with([](const End& end) { return end.why; }));
  if (!number) return base::ok();
  return end_->with(
      [&](const End& end) { return end.gatherings < *number ? end.why : base::ok(); });
}

Status JobParts::startPulse(fabric::TcpListener listener,
                            const std::vector<std::string>& addresses) {
  SLUICE_ASSIGN_OR_RETURN(const auto liveness, fabric::readLivenessOptions(config_));
  fabric::TcpMembership membership{
      .rank = rank(), .epoch = Epoch{0}, .addresses = {}, .key = key_, .door = door()};
  SLUICE_ASSIGN_OR_RETURN(membership.addresses, net::parseAddresses(addresses));
  fabric::TcpOptions options = fabric::readTcpOptions(config_);
  options.closeDeadline = kPulseGoodbye;
  SLUICE_ASSIGN_OR_RETURN(pulse_, fabric::PulseThread::start(
                                      liveness, loop(), worldSize(),
                                      [&](net::EpollLoop& loop, fabric::Receiver& receiver) {
                                        return fabric::makeTcpFabric(loop, std::move(listener),
                                                                     std::move(membership), options,
                                                                     receiver);
                                      },
                                      &trainingThread_));
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
  return gatherNumbered(key, value, config_.duration(option::kRendezvousTimeout), {},
                        ++gatherings_);
}

Result<std::vector<std::string>> JobParts::gather(const std::string& key, const std::string& value,
                                                  Duration atMost,
                                                  const base::Interruption& refusal) {
  return gatherNumbered(key, value, atMost, refusal, std::nullopt);
}

Result<std::vector<std::string>> JobParts::gatherNumbered(const std::string& key,
                                                          const std::string& value, Duration atMost,
                                                          const base::Interruption& refused,
                                                          std::optional<uint64_t> number) {
  SLUICE_RETURN_IF_ERROR(checkProcess());
  if (rendezvous_ == nullptr) return std::vector<std::string>{value};
  const base::TrainingThread::Call call(&trainingThread_, base::Doing::kGather);
  const auto others = [this] {
    return describeOtherRanks(pulse_.get(), launch_.rank, launch_.worldSize, clock_.now());
  };
  // A rank that only serves waits here while the others train, which is no long wait.
  LongWait wait(clock_, config_.duration(option::kStallAfter), [&](Duration waited) {
    if (atMost >= base::kAsLongAsItTakes) return;
    const std::string text = others();
    log("session").warn("rank {} has been {} ('{}') for {}{}{}", launch_.rank,
                        base::describe(trainingThread_.now()), key, base::describeSince(waited),
                        text.empty() ? "" : ": ", text);
  });
  const auto ask = [&]() -> Status {
    wait.look();
    if (interruption_) SLUICE_RETURN_IF_ERROR(interruption_());
    SLUICE_RETURN_IF_ERROR(refusal(number));
    return refused ? refused() : base::ok();
  };
  const auto meeting = flight_ ? flight_->meetingBegins(key) : flight::FlightRecorder::Meeting{};
  auto got = base::await<std::vector<std::string>>(
      loop(), [&](auto all) { gatherOnLoop(key, value, atMost, std::move(all)); }, ask);
  if (flight_) flight_->meetingEnds(meeting, got.status());
  // A rank that says why it ends is missed next: its reason says more than that it is gone.
  if (got.status().code() == Code::kPeerLost) SLUICE_RETURN_IF_ERROR(refusal(number));
  if (got.status().code() == Code::kTimeout) {
    if (const std::string text = others(); !text.empty())
      return Status(Code::kTimeout, fmt::format("{}: {}", got.status().message(), text));
  }
  return got;
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
