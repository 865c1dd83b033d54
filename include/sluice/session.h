/// @file
/// One model, trained together with the other ranks of the job.
///
/// @code
///   auto session = sluice::Session::open(
///       *job, {.model = model, .memory = memory, .update = "sgd:lr=0.1"}).value();
///   for (...) {
///     for (TensorId t : forwardOrder) { session->wait(t); forward(t); }  // waits for layer t
///     for (TensorId t : backwardOrder) { backward(t); session->gradientReady(t); }
///   }
///   session->leave();
/// @endcode
///
/// gradientReady() returns at once. wait(t) returns when the next forward pass can use tensor t:
/// with an optimizer on the servers the new parameters are there, with "mean-gradient" the mean
/// over all workers.
///
/// Memory: a wait() that ends with an error says nothing about the tensors' memory, since other
/// ranks may still be sending into it. Give memory an owner (TensorMemory::owner), or keep it until
/// the session is gone.
///
/// Threads: calls may come from any thread. In a child that was forked from a rank every call is an
/// error.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sluice/device.h>
#include <sluice/job.h>
#include <sluice/model.h>
#include <sluice/observer.h>
#include <sluice/status.h>

namespace sluice {

namespace session {
class SessionParts;
}

/// The options of a session: its model, its memory, and how it trains.
struct SessionOptions {
  Model model;  ///< Lists the tensors in the order of the forward pass; the same on every rank.
  /// Says where each tensor lies. Leave it empty at a rank that only serves, or if every gradient
  /// brings its own memory.
  std::vector<TensorMemory> memory{};
  /// Says what servers do with the mean: "mean-gradient" hands it out; "sgd:lr=0.1,momentum=0.9"
  /// and "adamw:lr=0.001" update the parameters, which every rank then gets.
  std::string update = "mean-gradient";
  std::string name = "model";  ///< Tells several sessions of one job apart.
  std::string algorithm{};     ///< Names the algorithm; empty: the job's option `algorithm`.
  /// Observes the path of slices, if it is not null; outlives the session.
  StageObserver* observer = nullptr;
  /// Holds the tensors that are not in host memory, if it is not null; outlives the session.
  Device* device = nullptr;
  bool updatesWaitForWord = false;  ///< Makes servers wait for update() or drop() after each step.
  Interruption interruption{};  ///< Called while a thread waits for this session; empty: the job's.
  /// Gives options this session's own values, in the place of the job's: slice-elements, credit,
  /// and those of the algorithm. The same on every rank.
  Config::Values settings{};
};

/// A session begins with open() and ends with leave(). All ranks make the same calls.
class SLUICE_API Session final {
 public:
  /// Returns a session when every rank has opened its own and all agree on how to train; otherwise
  /// an error that says why not. REQUIRES: the job, the observer and memory without an owner
  /// outlive the session.
  static Result<std::unique_ptr<Session>> open(Job& job, SessionOptions options);

  /// Ends the session. Other ranks see this one as lost, unless it has called leave() before.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Hands over the gradient of the tensor's next step, which lies in its memory until wait()
  /// returns. Refuses if the result of the tensor's last step is not here yet.
  Status gradientReady(TensorId tensor);
  /// Does the same for a gradient that lies in `memory` in this step.
  Status gradientReady(TensorId tensor, const TensorMemory& memory);
  /// Does the same for a tensor on the session's device. `memory` is kept until it is not needed
  /// any more. REQUIRES: the gradient does not change before wait() has returned.
  Status gradientReady(TensorId tensor, DeviceMemory memory);
  /// Says that this rank has no gradient for the tensor in its next step; it counts as zeros. The
  /// result of the others' gradients comes to `result`, which `owner` keeps alive.
  Status gradientAbsent(TensorId tensor, std::span<std::byte> result,
                        std::shared_ptr<const void> owner = nullptr);
  /// Does the same for a tensor on the session's device.
  Status gradientAbsent(TensorId tensor, DeviceMemory memory);

  /// Waits until the result of the tensor's last step is in its memory. Returns an error if it
  /// never will be. For a tensor on a device it waits until the copy there is queued, and makes the
  /// calling thread's stream wait for the copy.
  Status wait(TensorId tensor);
  /// Waits for all tensors.
  Status waitAll();
  /// Returns true iff wait() would return at once.
  bool isReady(TensorId tensor) const;
  /// Returns true after a wait() iff no rank had a gradient for the tensor: its memory has not
  /// changed.
  bool isEmpty(TensorId tensor) const;

  /// Sets the hyperparameters of the servers' optimizer from the next step on. Every worker sets
  /// the same values.
  Status setHyperparameters(std::vector<double> values);
  /// Lets the servers update with the gradients of this step, if updatesWaitForWord.
  Status update(std::vector<double> values);
  /// Lets the servers forget the gradients of this step, if updatesWaitForWord.
  void drop();

  /// Returns how many results are still late with the algorithm pipe; 0 with any other algorithm.
  Result<size_t> delayed();
  /// Puts the oldest late result of the tensor into `result`, in a step without gradients. Call
  /// wait() afterwards.
  Status handOutDelayed(TensorId tensor, std::span<std::byte> result,
                        std::shared_ptr<const void> owner = nullptr);
  /// Does the same for a tensor on the session's device.
  Status handOutDelayed(TensorId tensor, DeviceMemory memory);
  /// Hands out all late results into the tensors' memory, after the last step.
  Status drain();

  /// Returns what this rank keeps in a checkpoint besides the parameters. Call it between two
  /// steps. With asp and ssp this worker's parameters become the servers' model, which is the one
  /// to save.
  Result<std::vector<std::byte>> takeState();
  /// Puts back what takeState() returned on this rank. Every rank calls it, between two steps.
  Status restore(std::span<const std::byte> state);

  /// Copies the root's bytes to every rank's `data`. Every rank calls it, in the same order.
  Status broadcast(Rank root, std::span<std::byte> data);
  /// Does what Job::gather() does, between two steps: a rank that went on to the next step is named
  /// at once.
  Result<std::vector<std::string>> gather(const std::string& key, const std::string& value);

  /// Ends the session in good order: every rank calls it after its last step, and it returns when
  /// all have. A rank that only serves calls it at once, and serves until the workers are done.
  Status leave();
  /// Tells the others that this rank takes part in no further step; leave() does so, too.
  Status announceEnd();
  /// Ends the session in bad order: the other ranks' waits end with this rank's name and `why`.
  void abandon(const std::string& why);

  /// Returns which rank this process is.
  Rank rank() const;
  /// Returns true iff this rank has gradients; false: it only serves.
  bool isWorker() const;
  /// Returns the name of the algorithm that trains the model.
  std::string algorithm() const;

 private:
  friend struct session::Inside;
  explicit Session(std::unique_ptr<session::SessionParts> inside);
  std::unique_ptr<session::SessionParts> inside_;
};

}  // namespace sluice
