// A session as Python holds it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <sluice/join/rendezvous/rank_list.h>
#include <sluice/pytorch/device_entrance.h>
#include <sluice/pytorch/foreign_collective.h>
#include <sluice/pytorch/foreign_device.h>
#include <sluice/pytorch/module/conversions.h>
#include <sluice/pytorch/module/python_job.h>
#include <sluice/pytorch/wait_times.h>
#include <sluice/session/rank_comparison.h>
#include <sluice/session/session_parts.h>

namespace sluice::pytorch {

// Runs `call` on the session without the GIL: the loop that it waits for may need it.
template <typename Call>
auto waitFor(session::SessionParts& session, Call&& call) {
  return withoutGil([&] { return call(session); });
}

using TensorDescription = std::tuple<std::string, uint64_t, std::string>;  // name, elements, dtype

inline Model modelOf(const std::vector<TensorDescription>& tensors) {
  Model model;
  for (const auto& [tensor, elements, dtype] : tensors)
    model.tensors.push_back({tensor, elements, dtypeNamed(dtype)});
  return model;
}

// A session, and what is counted about it.
class Training final : public DeviceEntrance {
 public:
  // `update` with the addresses of the parameters, or "mean-gradient" without addresses.
  // `collective` and `device` are the addresses of a table::ProcessGroup and a table::Device that
  // outlive the session, or 0. `algorithm` may be empty: the job's.
  Training(const PythonJob& job, const std::string& name,
           const std::vector<TensorDescription>& tensors, const std::string& update,
           const std::vector<uintptr_t>& parameters, uintptr_t collective,
           const std::string& algorithm, uintptr_t device)
      : job_(job), waits_(tensors.size()) {
    session::JobParts& parts = job.parts();
    SessionOptions options;
    options.name = name;
    options.observer = &waits_;
    options.interruption = checkSignals;
    options.update = update;
    options.algorithm = algorithm;
    options.updatesWaitForWord = !parameters.empty();
    if (collective != 0) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): of sluice._c10d, which this module does not know
      const auto* group = reinterpret_cast<const table::ProcessGroup*>(collective);
      collective_.reset(new ForeignCollective(parts.loop(), *group));
    }
    if (device != 0) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): likewise
      options.device = &device_.emplace(*reinterpret_cast<const table::Device*>(device));
    }
    options.model = modelOf(tensors);
    for (size_t t = 0; t < parameters.size(); ++t) {
      const auto memory = memoryAt(parameters[t], options.model.tensors.at(t).bytes());
      options.memory.push_back({memory, memory});  // every gradient brings its own
    }
    session_ = valueOrThrow(withoutGil(
        [&] { return session::SessionParts::open(parts, std::move(options), collective_.get()); }));
  }
  ~Training() override { end(); }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void gradientReady(uint32_t tensor, uintptr_t address, uintptr_t result, size_t bytes) {
    throwIfError(trainer().gradientReady(TensorId{tensor},
                                         {memoryAt(address, bytes), memoryAt(result, bytes)}));
  }
  void gradientAbsent(uint32_t tensor, uintptr_t address, size_t bytes) {
    throwIfError(trainer().gradientAbsent(TensorId{tensor}, memoryAt(address, bytes)));
  }

  // Called by the module that knows Torch's C++. Any thread.
  Status gradientReady(TensorId tensor, DeviceMemory memory) override {
    return devicePath().gradientReady(tensor, std::move(memory));
  }
  Status gradientAbsent(TensorId tensor, DeviceMemory memory) override {
    return devicePath().gradientAbsent(tensor, std::move(memory));
  }
  Status handOutDelayed(TensorId tensor, DeviceMemory memory) override {
    return devicePath().handOutDelayed(tensor, std::move(memory));
  }
  Status waitBeforeResults(std::shared_ptr<const DeviceMark> mark) override {
    devicePath().waitBeforeResults(std::move(mark));
    return base::ok();
  }
  uintptr_t entrance() { return reinterpret_cast<uintptr_t>(static_cast<DeviceEntrance*>(this)); }

  // True iff the mean is there; false: no rank had a gradient.
  bool wait(uint32_t tensor) {
    const TensorId id{tensor};
    if (!session().isReady(id)) {
      throwIfError(waitFor(session(), [&](auto& session) { return session.wait(id); }));
    } else if (session().devicePath() != nullptr) {
      throwIfError(session().wait(id));  // at once, but the current stream has to wait
    }
    return !trainer().isEmpty(id);
  }
  void update(const std::vector<double>& values) { throwIfError(trainer().update(values)); }
  void drop() { trainer().drop(); }
  bool isReady(uint32_t tensor) const { return session().isReady(TensorId{tensor}); }

  size_t delayed() {
    return valueOrThrow(
        waitFor(session(), [](auto& session) { return session.trainer().delayed(); }));
  }
  void handOutDelayed(uint32_t tensor, uintptr_t address, size_t bytes) {
    throwIfError(trainer().handOutDelayed(TensorId{tensor}, memoryAt(address, bytes)));
  }
  py::bytes state() {
    return toPython(valueOrThrow(
        waitFor(session(), [](auto& session) { return session.trainer().takeState(); })));
  }
  void restore(const py::bytes& state) {
    const auto bytes = bytesOf(state);
    throwIfError(waitFor(session(), [&](auto& session) { return session.restore(bytes); }));
  }
  std::vector<py::bytes> gather(const std::string& key, const py::bytes& value) {
    return pytorch::gather(session(), key, value);
  }
  // The slices that this rank serves: tensor, first element, number of elements.
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> served() const {
    std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> slices;
    for (const SliceId id : session().plan().slicesOn(session().rank())) {
      const plan::Slice& slice = session().plan().slice(id);
      slices.emplace_back(index(slice.tensor), slice.offset, slice.count);
    }
    return slices;
  }

  void broadcast(uint32_t root, uintptr_t address, size_t bytes) {
    throwIfError(waitFor(session(), [&](auto& session) {
      return session.trainer().broadcast(Rank{root}, memoryAt(address, bytes));
    }));
  }

  // broadcast() for a call that is made again after an interruption: the same number is the same
  // broadcast, which is waited for again and never sent twice.
  void broadcastNumbered(uint32_t root, uintptr_t address, size_t bytes, uint64_t number) {
    const auto memory = memoryAt(address, bytes);
    if (!numbered_ || numbered_->number != number)
      numbered_ = {number,
                   withoutGil([&] { return trainer().beginBroadcast(Rank{root}, memory); })};
    const auto& underway = numbered_->underway;
    // A member may get another rank meanwhile, and others' bytes.
    const bool isRoot = session().rank() == Rank{root} && session().epochs() == nullptr;
    if (underway.root != Rank{root} || underway.bytes->size() != bytes ||
        (isRoot && !std::ranges::equal(*underway.bytes, memory))) {
      throw std::runtime_error(
          "a call was interrupted, and another one was made in its place; make the interrupted "
          "call again first");
    }
    throwIfError(withoutGil([&] { return trainer().endBroadcast(underway, memory); }));
  }

  void announceEnd(const std::string& reason) {
    throwIfError(waitFor(session(), [&](auto& session) { return session.announceEnd(reason); }));
  }

  // After an error the session is still there, for abandon().
  void leave() {
    throwIfError(waitFor(session(), [](auto& session) { return session.leave(); }));
    end();
  }

  // Raises no exception of its own, since the caller has one already. Does nothing once the session
  // has ended.
  void abandon(const std::string& why) {
    if (session_ == nullptr) return;
    waitFor(session(), [&](auto& session) { session.abandon(why); });
    end();
  }

  // All slices: tensor, first element, number of elements.
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> cut() const {
    std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> slices;
    for (const plan::Slice& slice : session().plan().slices())
      slices.emplace_back(index(slice.tensor), slice.offset, slice.count);
    return slices;
  }
  // The epochs in which steps were begun: number, first ranks of the members, and the first step of
  // each slice.
  std::vector<std::tuple<uint32_t, std::vector<uint32_t>, std::vector<uint64_t>>> epochs() const {
    std::vector<std::tuple<uint32_t, std::vector<uint32_t>, std::vector<uint64_t>>> all;
    if (session().epochs() == nullptr) return all;
    for (const session::EpochLog& epoch :
         session().epochs()->history().all(trainer().stepsBegun())) {
      all.emplace_back(index(epoch.view.epoch), numbersOf(epoch.view.members), epoch.firstSteps);
    }
    return all;
  }

  // The members that all have agreed on by this step: the number of the epoch, their first ranks, and
  // this member's rank.
  std::optional<std::tuple<uint32_t, std::vector<uint32_t>, uint32_t>> agreedMembers() const {
    if (session().epochs() == nullptr) return std::nullopt;
    const auto view = session().epochs()->history().agreedBy(trainer().stepsBegun());
    if (!view) return std::nullopt;
    return std::tuple(index(view->epoch), numbersOf(view->members), index(view->self));
  }

  std::string plan() const { return session().plan().toString(); }
  size_t slices() const { return session().plan().slices().size(); }
  std::vector<double> waited() const { return waits_.seconds(); }
  double secondsOnTheWay() const { return waits_.secondsOnTheWay(); }
  std::pair<uint64_t, uint64_t> bytesMoved() const {
    const auto counters = trainer().counters();
    return {counters.bytesSent, counters.bytesReceived};
  }

 private:
  struct Numbered {
    uint64_t number;
    session::Trainer::BroadcastUnderway underway;
  };

  // The loop that both wait for may need the GIL.
  struct DeleteWithoutGil {
    void operator()(ForeignCollective* collective) const {
      const py::gil_scoped_release release;
      delete collective;
    }
  };
  void end() {
    if (session_ != nullptr) {
      const py::gil_scoped_release release;
      session_.reset();
    }
    collective_.reset();
  }

  // Throws once the session has left, and in a forked child.
  session::SessionParts& session() const {
    (void)job_.parts();
    if (session_ == nullptr) throw std::runtime_error("the session has ended");
    return *session_;
  }
  session::Trainer& trainer() const { return session().trainer(); }
  session::DevicePath& devicePath() const {
    session::DevicePath* path = session().devicePath();
    if (path == nullptr) throw std::runtime_error("the session has no device");
    return *path;
  }

  const PythonJob& job_;
  WaitTimes waits_;
  std::optional<Numbered> numbered_;  // the last
  // Both outlive the session, which uses them.
  std::optional<ForeignDevice> device_;
  std::unique_ptr<ForeignCollective, DeleteWithoutGil> collective_;
  std::unique_ptr<session::SessionParts> session_;
};

// A comparison between ranks, as Python asks for it.
class Compared final {
 public:
  // `tensors` are pieces of memory, each with its size; `settings` are bytes that are compared like
  // one more piece before them.
  Compared(const PythonJob& job, const std::string& key,
           const std::vector<std::pair<uintptr_t, size_t>>& tensors, const py::bytes& settings,
           const py::bytes& detail)
      : comparison_([&] {
          const std::string words(settings);
          const std::string details(detail);
          if (details.size() > session::kMostDetailBytes)
            throw py::value_error("the detail is too long for a note");
          return withoutGil([&] {
            std::vector<uint64_t> hashes = {session::hashOf(std::as_bytes(std::span(words)))};
            for (const auto& [address, bytes] : tensors)
              hashes.push_back(session::hashOf(memoryAt(address, bytes)));
            return session::compareRanks(job.parts(), key, std::move(hashes), details);
          });
        }()) {}

  // Returns true once the comparison has ended, and waits for that at most so long.
  bool ends(double seconds) const {
    return withoutGil([&] {
      return comparison_.wait_for(std::chrono::duration<double>(seconds)) ==
             std::future_status::ready;
    });
  }

  // Returns the number of the first piece that differs (0: the settings), how many it may be from there on, the ranks
  // in words, and every rank's detail; empty if all are alike, or if they could not be compared.
  // REQUIRES: ends()
  std::optional<std::tuple<size_t, size_t, std::string, std::vector<py::bytes>>> difference()
      const {
    const auto& result = comparison_.get();
    if (!result.isOk())
      log("pytorch").debug("ranks were not compared: {}", result.status().toString());
    if (!result.isOk() || !result->has_value()) return std::nullopt;
    const session::RankDifference& found = **result;
    return std::tuple(found.first, found.count,
                      fmt::format("{} from {}", rendezvous::describeRanks(found.ranks),
                                  rendezvous::describeRanks(found.others)),
                      std::vector<py::bytes>(found.details.begin(), found.details.end()));
  }

 private:
  const session::Comparison comparison_;
};

}  // namespace sluice::pytorch
