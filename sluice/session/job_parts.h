// The parts behind a Job (sluice/job.h): this process's rank, the way to the other ranks, and a
// loop for everything that waits on the network.
//
// Thread safety: after join(), any thread but the loop's own.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/await.h>
#include <sluice/base/config.h>
#include <sluice/base/fork.h>
#include <sluice/base/ids.h>
#include <sluice/base/mutex.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/whereabouts.h>
#include <sluice/join/membership/talk/member_channel.h>
#include <sluice/join/rendezvous/rendezvous.h>
#include <sluice/observe/flight/flight_recorder.h>
#include <sluice/observe/metrics/endpoint.h>
#include <sluice/secret/job_key.h>
#include <sluice/session/term_request.h>
#include <sluice/transport/fabric/tcp/listener.h>
#include <sluice/transport/fabric/watch/pulse_thread.h>

namespace sluice::session {

class JobParts final {
 public:
  using Publish = std::function<Status(uint16_t port)>;

  // Meets the other ranks that the launcher (torchrun, mpirun, srun) has started, as `environment`
  // says; without any launcher the job is this one process. Returns the job when every rank is
  // here, or an error that says why not. `interruption` is called while a thread waits for other
  // ranks, here and later, so that Ctrl-C ends the wait. `published` is for a rank 0 whose
  // MASTER_PORT is 0: it listens on a free port, and `published` receives that port before rank 0
  // waits for other ranks.
  static Result<std::unique_ptr<JobParts>> join(base::Config config,
                                                const base::Config::Values& environment,
                                                base::Interruption interruption = {},
                                                const Publish& published = {});
  ~JobParts();

  // Returns an error in a forked child of the process that has joined: that child is no rank, and
  // all its calls end with this error.
  Status checkProcess() const;

  // True iff SIGTERM has come and the option leave-on-term is on: after its step the rank is to
  // leave its sessions, which tells the others why.
  bool isAskedToLeave() const { return term_ && term_->hasSignal() && TermRequest::came(); }
  // Says how this rank ends in good order: "has ended its training".
  std::string_view describeGoodEnd() const;

  // Return rank and world size; those of the present epoch, if members may be lost.
  Rank rank() const { return members_ ? members_->view().self : launch_.rank; }
  uint32_t worldSize() const {
    return members_ ? static_cast<uint32_t>(members_->view().size()) : launch_.worldSize;
  }
  // Returns how many ranks have met at the start.
  uint32_t firstWorldSize() const { return launch_.worldSize; }
  // Makes this process's end a loss to the other members, not a goodbye: they need not wait for it.
  void abandonMembers() { isAbandoned_ = true; }

  // Tells the other ranks that this one ends in bad order: every gathering of theirs, now and later,
  // ends with `why` and this rank's name. The first rank that says so is the one they hear of. If
  // members may be lost, the others go on without this rank instead.
  void abandon(const std::string& why);
  // Returns the error of a wait, with the reason of the rank that has ended in bad order if it has
  // said one: its words and its loss come at the same moment, in any order. Not on the loop.
  Status explained(const Status& error) const;
  // Tells the others that this rank ends in good order and comes to no gathering without a time of
  // its own: those that it has not begun end with its name. The first rank is heard.
  Status announceEnd();
  // Returns this rank's way to the other members; null if the loss of a rank ends what it takes part
  // in. Used on the loop, but for its view().
  membership::MemberChannel* members() const { return members_.get(); }
  const base::Config& config() const { return config_; }
  net::EpollLoop& loop() { return thread_.loop(); }
  // Returns a key derived from the job key and from data that tells this job from all others; see
  // Rendezvous::jobKey().
  const secret::JobKey& key() const { return key_; }

  // Knows how busy the other ranks' loops are, and what they do; null in a job of one.
  fabric::Pulse* pulse() { return pulse_.get(); }

  // Holds what this rank's training thread does, for the other ranks. Thread-safe.
  base::TrainingThread& trainingThread() { return trainingThread_; }

  // Returns the thread that holds strangers off the ports of this process. REQUIRES: worldSize() >
  // 1
  const door::DoorThread& door() const { return rendezvous_->door(); }

  // Returns the endpoint at which this process serves metrics; null if it serves none.
  metrics::MetricsServer* metrics() { return metrics_.get(); }

  // Returns the recorder of the job's latest events; null in a job of one, and if flight-bytes is 0.
  flight::FlightRecorder* flight() { return flight_.get(); }

  // Returns the address, without a port, at which the others reach this rank; loopback in a job of
  // one.
  Address address() const;
  std::string interfaceName() const;  // of that address

  // Contributes `value`, and returns every rank's value for this key, in rank order. Every rank
  // calls it. `refusal` is called meanwhile; its error ends the wait.
  Result<std::vector<std::string>> gather(const std::string& key, const std::string& value,
                                          Duration atMost, const base::Interruption& refusal = {});
  Result<std::vector<std::string>> gather(const std::string& key, const std::string& value);

  // Does the same without waiting: `got` runs on the loop. REQUIRES: not in a job of one.
  void gatherLater(const std::string& key, const std::string& value, Duration atMost,
                   std::function<void(Result<std::vector<std::string>>)> got);

  // set() leaves a note for the other ranks; get() waits for one.
  Status set(const std::string& key, const std::string& value);
  Result<std::string> get(const std::string& key);

  // Runs `then` on the loop when a rank has left the note, however late; never in a job of one.
  void whenSet(const std::string& key, std::function<void(const std::string&)> then);

  // Returns the interruption given to join(), for sessions that wait in the same thread.
  const base::Interruption& interruption() const { return interruption_; }

 private:
  Status startMembers(const secret::JobKey& usersKey);
  // How the first other rank ends, as far as it has said so.
  struct End {
    Status why;
    uint64_t gatherings = 0;  // that it has begun
  };
  void listenForEnds();
  // Returns why a gathering cannot end well; `number` counts those without a time of their own.
  Status refusal(std::optional<uint64_t> number) const;
  Result<std::vector<std::string>> gatherNumbered(const std::string& key, const std::string& value,
                                                  Duration atMost,
                                                  const base::Interruption& refused,
                                                  std::optional<uint64_t> number);
  // `addresses` are the same on all ranks.
  Status startFlightRecorder(const std::vector<std::string>& addresses);
  void gatherOnLoop(const std::string& key, const std::string& value, Duration atMost,
                    std::function<void(Result<std::vector<std::string>>)> got);
  // `addresses` holds the addresses of all ranks' listeners for pulses, by rank.
  Status startPulse(fabric::TcpListener listener, const std::vector<std::string>& addresses);

  JobParts(base::Config config, rendezvous::Launch launch, secret::JobKey key,
           base::Interruption interruption);

  const base::Config config_;
  const rendezvous::Launch launch_;
  secret::JobKey key_;  // constant after join()
  const base::Interruption interruption_;
  std::atomic<bool> isAbandoned_{false};
  // In bad and in good order; shared with handlers that may come late.
  const std::shared_ptr<base::Guarded<End>> failure_ = std::make_shared<base::Guarded<End>>();
  const std::shared_ptr<base::Guarded<End>> end_ = std::make_shared<base::Guarded<End>>();
  std::atomic<uint64_t> gatherings_{0};  // begun here, without a time of their own
  bool hasMet_ = false;                  // true iff everybody was here once
  const base::ProcessMark process_;
  const base::RealClock clock_;
  base::TrainingThread trainingThread_{clock_};
  std::optional<TermRequest> term_;  // with leave-on-term only
  base::HomePtr<metrics::MetricsServer> metrics_;
  base::HomePtr<flight::FlightRecorder> flight_;  // the loop reports to it
  net::LoopThread thread_;
  base::HomePtr<rendezvous::Rendezvous> rendezvous_;  // on the loop; null in a job of one
  base::HomePtr<fabric::PulseThread> pulse_;          // null in a job of one
  base::HomePtr<membership::MemberChannel> members_;  // on the loop; null if no member may be lost
};

}  // namespace sluice::session
