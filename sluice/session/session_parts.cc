#include <sluice/session/session_parts.h>

#include <sstream>

#include <fmt/format.h>

#include <sluice/base/await.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>
#include <sluice/join/rendezvous/rank_list.h>
#include <sluice/session/make_fabric.h>
#include <sluice/session/session_plan.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::session {
namespace {

// The note of the first rank that has stopped training.
struct End {
  Rank rank{};
  // The steps that it has taken part in; empty if it left in the middle of something.
  std::optional<uint64_t> steps;
  uint64_t broadcasts = 0;  // that it has taken part in
  std::string why;          // "has ended its training after 12 steps"
};

std::string endKey(const std::string& name) {
  return "end/" + name;
}
std::string failureKey(const std::string& session) {
  return "failure/" + session;
}

std::string doneKey(const std::string& name, Rank rank) {
  return fmt::format("done/{}/{}", name, rank);
}

std::string toNote(const End& end) {
  return fmt::format("{} {} {} {}", end.rank, end.steps ? std::to_string(*end.steps) : "-",
                     end.broadcasts,
                     base::printable(end.why));  // one line
}

Result<End> parseEnd(const std::string& note) {
  std::istringstream words(note);
  std::string rankText;
  std::string steps;
  std::string broadcastsText;
  std::string why;
  if (!(words >> rankText >> steps >> broadcastsText) || !std::getline(words >> std::ws, why))
    return Status(Code::kDataLoss, "a rank's note about its end is malformed");
  SLUICE_ASSIGN_OR_RETURN(const int64_t rank, base::parseInteger(rankText));
  SLUICE_ASSIGN_OR_RETURN(const int64_t broadcasts, base::parseInteger(broadcastsText));
  End end{Rank{static_cast<uint32_t>(rank)}, std::nullopt, static_cast<uint64_t>(broadcasts),
          base::printable(why)};
  if (steps != "-") {
    SLUICE_ASSIGN_OR_RETURN(const int64_t number, base::parseInteger(steps));
    end.steps = static_cast<uint64_t>(number);
  }
  return end;
}

Status checkMemory(const SessionOptions& options, const plan::Plan& plan,
                   optimizer::Publishes publishes, Rank rank) {
  if (!plan.roles().isWorker(rank)) return base::ok();
  if (options.memory.empty() && publishes == optimizer::Publishes::kMeanGradient) return base::ok();
  if (options.memory.size() != options.model.tensors.size()) {
    return {Code::kInvalidArgument,
            fmt::format("the model has {} tensors, but memory was given for {}",
                        options.model.tensors.size(), options.memory.size())};
  }
  for (size_t t = 0; t < options.memory.size(); ++t) {
    const auto& tensor = options.model.tensors[t];
    for (const size_t bytes :
         {options.memory[t].gradient.size(), options.memory[t].result.size()}) {
      if (bytes == tensor.bytes()) continue;
      return {Code::kInvalidArgument, fmt::format("tensor {} needs {} bytes, but its memory has {}",
                                                  tensor.toString(), tensor.bytes(), bytes)};
    }
  }
  return base::ok();
}

// Refuses what cannot go on without a lost member; the algorithm itself is asked later.
Status checkOutlives(const SessionOptions& options, const plan::Plan& plan,
                     optimizer::Publishes publishes, const collective::Collective* collective) {
  const auto refuse = [](std::string_view what) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} cannot go on without a lost member; leave out --members", what));
  };
  if (publishes == optimizer::Publishes::kParameters || options.updatesWaitForWord)
    return refuse("an optimizer on the servers");
  if (collective != nullptr) return refuse("another process group");
  if (plan.roles().workers.size() != plan.roles().world) return refuse("a rank that only serves");
  return base::ok();
}

EpochsJob epochsJob(JobParts& job) {
  return {.loop = job.loop(),
          .config = job.config(),
          .members = *job.members(),
          .pulse = job.pulse(),
          .interruption = job.interruption(),
          .openPort = [&job, address = job.address()]() -> Result<EpochPort> {
            SLUICE_ASSIGN_OR_RETURN(auto opened, fabric::TcpListener::open(address));
            const auto listener = std::make_shared<fabric::TcpListener>(std::move(opened));
            return EpochPort{
                .address = listener->address().toString(),
                .connect = [&job, listener](const EpochPlace& place, fabric::Receiver& receiver,
                                            fabric::Pulse* pulse) {
                  return makeEpochFabric(job, place, std::move(*listener), receiver, pulse);
                }};
          }};
}

}  // namespace

Result<std::unique_ptr<SessionParts>> SessionParts::open(JobParts& job, SessionOptions options,
                                                         collective::Collective* collective) {
  SLUICE_ASSIGN_OR_RETURN(auto update, optimizer::parseOptimizerSpec(options.update));
  SLUICE_ASSIGN_OR_RETURN(auto made, makePlan(options, update, job));
  plan::Plan plan = std::move(made.plan);
  if (job.members() != nullptr)
    SLUICE_RETURN_IF_ERROR(checkOutlives(options, plan, update.optimizer->publishes(), collective));
  // The worker beside each server decides if a step counts. A server without a worker would have
  // nobody to ask.
  if (options.updatesWaitForWord && plan.roles().workers.size() != job.firstWorldSize()) {
    return Status(Code::kInvalidArgument,
                  "updates that wait for step() need a worker beside every server; use servers=all "
                  "or servers=K");
  }
  SLUICE_RETURN_IF_ERROR(checkMemory(options, plan, update.optimizer->publishes(), job.rank()));
  // Nothing that other ranks see has been done until here: a rank with other settings is found
  // before any of them opens a fabric or allocates servers.
  SLUICE_RETURN_IF_ERROR(agreeOn(plan, options.name, job));
  if (job.rank() == Rank{0}) {
    log("session").info("{}", plan.toString());
    if (job.members() != nullptr) {
      log("session").info(
          "members may be lost: every rank keeps the last result of each slice, {} of memory",
          base::formatBytes(plan.model().bytes()));
    }
  }
  const bool isWorker = plan.roles().isWorker(job.rank());
  std::unique_ptr<SessionParts> session(
      new SessionParts(job, options.name, std::move(made.config)));
  SLUICE_ASSIGN_OR_RETURN(session->tracing_,
                          Tracing::begin(job.config(), plan.model(), options.name, job.rank()));
  if (job.metrics() != nullptr) {
    session->metering_ =
        std::make_unique<Metering>(*job.metrics(), options.name, plan.model().tensors.size());
    session->observers_.add(session->metering_->observer());
  }
  if (options.observer != nullptr) session->observers_.add(*options.observer);
  if (session->tracing_) session->observers_.add(session->tracing_->observer());
  if (job.flight() != nullptr) {
    session->flight_ = std::make_unique<FlightLog>(*job.flight(), job.loop(), plan, options.name);
    session->observers_.add(*session->flight_);
  }
  if (!options.interruption) options.interruption = job.interruption();
  if (options.device != nullptr && isWorker) {
    SLUICE_ASSIGN_OR_RETURN(session->devicePath_, DevicePath::make(*options.device, job.config(),
                                                                   session->observers_.orNull()));
  }
  if (job.members() != nullptr)
    session->epochs_ = std::make_unique<Epochs>(epochsJob(job), options.name, plan);
  TrainingSpec training{std::move(plan),
                        std::move(update),
                        isWorker ? std::move(options.memory) : std::vector<TensorMemory>{},
                        std::move(options.interruption),
                        options.updatesWaitForWord,
                        collective,
                        session->epochs_ ? session->epochs_->pulse() : job.pulse(),
                        session->devicePath_.get(),
                        session->epochs_.get(),
                        session->flight_.get(),
                        &job.trainingThread()};
  SLUICE_ASSIGN_OR_RETURN(
      session->trainer_,
      Trainer::start(std::move(training), session->config_, session->observers_.orNull(),
                     [&](Trainer& trainer) { return session->connect(trainer); }));
  if (session->devicePath_) SLUICE_RETURN_IF_ERROR(session->devicePath_->begin(*session->trainer_));
  session->listenForTheEnd();
  log("session").debug("rank {}: session '{}' has begun", job.rank(), options.name);
  if (session->metering_) session->metering_->begin(*session->trainer_, *session->fabric_);
  return session;
}

Result<std::unique_ptr<fabric::Fabric>> SessionParts::connect(Trainer& trainer) {
  const auto keep = [this](auto fabric) {
    fabric_ = fabric.get();
    if (flight_) flight_->setFabric(*fabric_);
    return std::unique_ptr<fabric::Fabric>(std::move(fabric));
  };
  if (epochs_ == nullptr) {
    SLUICE_ASSIGN_OR_RETURN(auto fabric, makeFabric(job_, name_, trainer));
    return keep(std::move(fabric));
  }
  SLUICE_ASSIGN_OR_RETURN(
      auto fabric,
      epochs_->connect(trainer, {.onEntered =
                                     [this, &trainer] {
                                       const auto& view = job_.members()->view();
                                       if (flight_) flight_->enter(view.epoch, view.members);
                                       trainer.onNewRanks();
                                     },
                                 .onEnd = [&trainer](const Status& why) { trainer.fail(why); },
                                 .nextStep = [&trainer] { return Step{trainer.stepsBegun()}; }}));
  return keep(std::move(fabric));
}

SessionParts::~SessionParts() {
  if (!isHere()) return;  // a forked child says no goodbye in its parent's name
  // Notes of other ranks may come at any time, until the job ends. So the callbacks hold a
  // pointer that is cleared on the loop before the trainer goes.
  fabric::runBeforeFreeing(job_.loop(), [this] { *listener_ = nullptr; });
  if (trainer_ == nullptr) return;  // it never began
  if (metering_) metering_->end();
  if (tracing_) tracing_->noteClocks(*fabric_);
  // The stager stops before the trainer does, since it calls the trainer from its own thread.
  // The trace is written last: the trainer reports to it until the end.
  if (devicePath_) devicePath_->end();
  trainer_.reset();
  if (tracing_) tracing_->write();
  if (flight_) flight_->end({Code::kCancelled, "the session has ended without leave()"});
}

void SessionParts::listenForTheEnd() {
  *listener_ = trainer_.get();
  // A rank that fails may do so after another has left the note of a good end.
  for (const std::string& key : {endKey(name_), failureKey(name_)}) {
    job_.whenSet(key, [listener = listener_, self = job_.rank()](const std::string& note) {
      const auto end = parseEnd(note);
      if (*listener == nullptr || !end.isOk() || end->rank == self) return;
      const Status why{Code::kPeerLost, fmt::format("rank {} {}", end->rank, end->why)};
      if (end->steps.has_value()) {
        (*listener)->endAfter(*end->steps, end->broadcasts, why);
      } else {
        (*listener)->fail(why);
      }
    });
  }
}

Status SessionParts::wait(TensorId tensor) {
  return job_.explained(devicePath_ ? devicePath_->wait(tensor) : trainer_->wait(tensor));
}

Status SessionParts::waitAll() {
  return job_.explained(devicePath_ ? devicePath_->waitAll() : trainer_->waitAll());
}

bool SessionParts::isReady(TensorId tensor) const {
  return devicePath_ ? devicePath_->isReady(tensor) : trainer_->isReady(tensor);
}

Status SessionParts::restore(std::span<const std::byte> state) {
  // A result that is not copied to a device yet may lie in memory that the state comes to.
  SLUICE_RETURN_IF_ERROR(waitAll());
  return trainer_->restore(state);
}

bool SessionParts::isWorker() const {
  return plan().roles().isWorker(job_.rank());
}

Status SessionParts::leave() {
  SLUICE_RETURN_IF_ERROR(job_.checkProcess());
  // A rank that only serves cannot know how long training takes, so its wait has no real limit. A
  // lost rank ends it with an error that names the rank.
  const Duration atMost =
      isWorker() ? job_.config().duration(option::kWaitTimeout) : Duration(base::kAsLongAsItTakes);
  if (devicePath_) SLUICE_RETURN_IF_ERROR(devicePath_->waitAll());  // results reach the device
  const Status left = trainer_->leave([&]() -> Status {
    if (tracing_) tracing_->noteClocks(*fabric_);  // all ranks are still there
    Status done = isWorker() ? announceEnd() : base::ok();
    // A rank that cannot come to this meeting has said so: nobody waits for it.
    const auto refusal = [this] { return trainer_->failure(); };
    if (done.isOk()) done = job_.gather("leave/" + name_, "", atMost, refusal).status();
    if (done.code() == Code::kPeerLost) exchangeDone();
    return done;
  });
  if (flight_) flight_->end(left);
  return job_.explained(left);
}

// Once a rank is lost, the gathering at the end cannot tell when the ranks that go on without it
// are done. So each worker leaves a note of its own.
void SessionParts::exchangeDone() {
  if (isWorker()) {
    const Status said = job_.set(doneKey(name_, job_.rank()), "done");
    if (!said.isOk()) log("session").debug("the other ranks were not told: {}", said.toString());
  }
  for (const Rank worker : plan().roles().workers) {
    if (worker == job_.rank()) continue;
    job_.whenSet(doneKey(name_, worker),
                 [listener = listener_, worker](const std::string& /*note*/) {
                   if (*listener != nullptr) (*listener)->noteDone(worker);
                 });
  }
}

Result<std::vector<std::string>> SessionParts::gather(const std::string& key,
                                                      const std::string& value) {
  SLUICE_RETURN_IF_ERROR(job_.checkProcess());
  return job_.gather(key, value, job_.config().duration(option::kWaitTimeout), [this]() -> Status {
    SLUICE_ASSIGN_OR_RETURN(const std::set<Rank> ahead, trainer_->ahead());
    if (ahead.empty()) return base::ok();
    const std::vector<Rank> ranks(ahead.begin(), ahead.end());
    return {Code::kRefused,
            fmt::format("{} went on to the next step instead", rendezvous::describeRanks(ranks))};
  });
}

Status SessionParts::announceEnd(const std::string& reason) {
  SLUICE_RETURN_IF_ERROR(job_.checkProcess());
  const uint64_t steps = trainer_->stepsBegun();
  std::string why(reason.empty() ? job_.describeGoodEnd() : reason);
  if (steps > 0) why += fmt::format(" after {} steps", steps);
  if (!reason.empty()) why += "; do so on all ranks, between the same two steps";
  SLUICE_ASSIGN_OR_RETURN(const uint64_t broadcasts, trainer_->broadcastsBegun());
  return job_.set(endKey(name_), toNote({job_.rank(), steps, broadcasts, std::move(why)}));
}

void SessionParts::abandon(const std::string& why) {
  if (flight_) flight_->end({Code::kCancelled, "this rank " + why});
  if (epochs_ != nullptr) return job_.abandonMembers();  // the others go on without this rank
  const Status said = job_.set(failureKey(name_), toNote({job_.rank(), std::nullopt, 0, why}));
  if (!said.isOk()) log("session").debug("the other ranks were not told: {}", said.toString());
}

}  // namespace sluice::session
