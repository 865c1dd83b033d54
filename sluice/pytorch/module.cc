// The Python module sluice._core: jobs and sessions for python/sluice, which holds all that knows
// of Torch. Tensors come as addresses and sizes; whoever calls keeps them alive until the wait for
// them has ended. Waits release the GIL, and end on Ctrl-C.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include <sluice/base/config.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/units.h>
#include <sluice/kernel/reduce.h>
#include <sluice/pytorch/wait_times.h>
#include <sluice/rendezvous/rank_list.h>
#include <sluice/secret/key_file.h>
#include <sluice/session/inside.h>
#include <sluice/session/rank_comparison.h>
#include <sluice/shard/served_state.h>
#include <sluice/strategy/algorithms/registry.h>
#include <sluice/timing/bounds.h>

namespace py = pybind11;

namespace sluice::pytorch {
namespace {

// The size of slices where nobody has chosen one. The core that handles them is one that
// computes: a few large ones leave it alone longer than many small ones, which a network of its own
// would prefer.
constexpr std::string_view kSliceElements = "50000";

PyObject* peerLost = nullptr;  // the exception class, made once with the module

// Python's idea of an error. A wait that Ctrl-C has ended has left its exception in Python already.
void throwIfError(const Status& status) {
  if (status.isOk()) return;
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  PyObject* kind = PyExc_RuntimeError;
  if (status.code() == Code::kPeerLost) kind = peerLost;
  if (status.code() == Code::kInvalidArgument) kind = PyExc_ValueError;
  if (status.code() == Code::kTimeout) kind = PyExc_TimeoutError;
  PyErr_SetString(kind, status.message().c_str());
  throw py::error_already_set();
}

template <typename T>
T valueOrThrow(Result<T> result) {
  throwIfError(result.status());
  return *std::move(result);
}

Status checkSignals() {
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? base::ok() : Status(Code::kCancelled, "interrupted");
}

std::span<std::byte> memoryAt(uintptr_t address, size_t bytes) {
  auto* first =
      reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): data_ptr()
  return {first, bytes};
}

DType dtypeNamed(const std::string& wanted) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    if (name(dtype) == wanted) return dtype;
  }
  throw py::value_error(fmt::format("no dtype '{}'", wanted));
}

// This process's place in the job, until close(): its thread must have ended before the process's
// static objects go, and Python alone does not see to that.
class Membership final {
 public:
  explicit Membership(std::unique_ptr<session::JobParts> job) : job_(std::move(job)) {}

  // The loop of a job may need the GIL (a process group that is written in Python), so nobody waits
  // for it with the GIL held.
  ~Membership() { close(); }
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  session::JobParts& job() const {
    if (job_ == nullptr) throw std::runtime_error("the job has ended");
    throwIfError(job_->checkProcess());
    return *job_;
  }

  // REQUIRES: every session has left or been abandoned.
  void close() {
    if (job_ == nullptr) return;
    const py::gil_scoped_release release;
    job_.reset();
  }

 private:
  std::unique_ptr<session::JobParts> job_;
};

// Calls Python. An exception there stays set, for throwIfError().
session::JobParts::Publish publishBy(const py::object& published) {
  if (published.is_none()) return {};
  return [&published](uint16_t port) -> Status {
    const py::gil_scoped_acquire gil;
    try {
      published(port);
      return base::ok();
    } catch (py::error_already_set& error) {
      error.restore();
      return {Code::kUnavailable, "the port of rank 0 could not be published"};
    }
  };
}

// `options` as Config's flags; `environment` as the launcher has set it; `published` as with
// Job::join().
std::unique_ptr<Membership> join(const base::Config::Values& options,
                                 const base::Config::Values& environment,
                                 const py::object& published) {
  base::Config config = valueOrThrow(base::Config::read(options, environment));
  throwIfError(base::setLogLevels(config.text(option::kLog)));
  if (config.integer(option::kSliceElements) == 0) {
    throwIfError(config.set(option::kSliceElements, kSliceElements));
  }
  for (const auto& warning : config.warnings()) log("session").warn("{}", warning);
  const auto publish = publishBy(published);
  const py::gil_scoped_release release;
  auto job = session::JobParts::join(std::move(config), environment, checkSignals, publish);
  const py::gil_scoped_acquire acquire;
  return std::make_unique<Membership>(valueOrThrow(std::move(job)));
}

py::bytes toPython(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::byte> bytesOf(const py::bytes& bytes) {
  return std::as_bytes(std::span(static_cast<std::string_view>(bytes)));
}

// A call that may wait for other ranks lets Python's other threads run meanwhile. REQUIRES: `call`
// touches nothing of Python's.
template <typename Call>
auto withoutGil(Call&& call) {
  const py::gil_scoped_release release;
  return call();
}

// As Job::gather() and Session::gather().
template <typename Gatherer>
std::vector<py::bytes> gather(Gatherer& from, const std::string& key, const py::bytes& value) {
  const std::string own = value;
  const auto brought = valueOrThrow(withoutGil([&] { return from.gather(key, own); }));
  return std::vector<py::bytes>(brought.begin(), brought.end());
}

// Takes a variable out of this process's environment, and overwrites its value there: programs that
// this one starts do not inherit it, and /proc does not show it. None if it is not set.
std::optional<std::string> takeVariable(const std::string& name) {
  char* value = ::getenv(name.c_str());
  if (value == nullptr) return std::nullopt;
  std::string taken(value);
  ::explicit_bzero(value, taken.size());
  ::unsetenv(name.c_str());
  return taken;
}

py::bytes noteKey(const base::Config::Values& options, const base::Config::Values& environment) {
  const base::Config config = valueOrThrow(base::Config::read(options, environment));
  const secret::Key key =
      valueOrThrow(secret::loadJobKey(config)).derive(secret::Purpose::kStoreNote);
  return toPython(key.bytes());
}

// A slice of a tensor at a server: name, first element, number of elements, steps made, buffers
// (none: not there), in the order of the optimizer.
using SliceRead =
    std::tuple<std::string, uint64_t, size_t, uint64_t, std::vector<std::optional<py::bytes>>>;

std::vector<SliceRead> readServerState(const py::bytes& state) {
  std::vector<SliceRead> slices;
  for (const auto& [tensor, offset, content] :
       valueOrThrow(shard::servedStatesFromBytes(bytesOf(state)))) {
    std::vector<std::optional<py::bytes>> buffers;
    for (size_t b = 0; b < content.bufferCount(); ++b) {
      buffers.emplace_back();
      if (content.hasBuffer(b)) buffers.back() = toPython(content.buffer(b));
    }
    slices.emplace_back(tensor, offset, content.elements(), content.steps(), std::move(buffers));
  }
  return slices;
}

// The same, with the parameters' dtype for the number of elements.
using SliceToWrite =
    std::tuple<std::string, uint64_t, std::string, uint64_t, std::vector<std::optional<py::bytes>>>;

py::bytes writeServerState(const std::string& optimizer, const std::vector<SliceToWrite>& slices) {
  std::vector<shard::ServedState> states;
  for (const auto& [tensor, offset, dtype, steps, buffers] : slices) {
    const DType parameters = dtypeNamed(dtype);
    const size_t bytesEach = sizeOf(kernel::accumulatorOf(parameters));
    size_t elements = 0;
    for (const auto& buffer : buffers) {
      if (buffer) elements = bytesOf(*buffer).size() / bytesEach;
    }
    optimizer::OptimizerState state(optimizer, parameters, elements);
    state.setSteps(steps);
    for (size_t b = 0; b < buffers.size(); ++b) {
      if (!buffers[b]) continue;
      if (bytesOf(*buffers[b]).size() != elements * bytesEach)
        throw py::value_error("buffers of different sizes");
      std::ranges::copy(bytesOf(*buffers[b]), state.buffer(b).begin());
    }
    states.push_back({tensor, offset, std::move(state)});
  }
  return toPython(shard::toBytes(states));
}

// Runs `call` on the session without the GIL: the loop that it waits for may need it.
template <typename Call>
auto waitFor(Session& training, Call&& call) {
  return withoutGil([&] { return call(training); });
}

using TensorDescription = std::tuple<std::string, uint64_t, std::string>;  // name, elements, dtype

// A session, and what is counted about it.
class Training final {
 public:
  // `update` with the addresses of the parameters, or "mean-gradient" with none. `collective` is
  // the address of an engine that outlives this, or 0. `algorithm` may be empty: the job's.
  Training(const Membership& member, const std::string& name,
           const std::vector<TensorDescription>& tensors, const std::string& update,
           const std::vector<uintptr_t>& parameters, uintptr_t collective,
           const std::string& algorithm)
      : member_(member), waits_(tensors.size()) {
    session::JobParts& job = member.job();
    SessionOptions options;
    options.name = name;
    options.observer = &waits_;
    options.interruption = checkSignals;
    options.update = update;
    options.algorithm = algorithm;
    options.updatesWaitForWord = !parameters.empty();
    // NOLINTNEXTLINE(performance-no-int-to-ptr): of sluice._c10d, which this module does not know
    auto* engine = reinterpret_cast<collective::Collective*>(collective);
    for (const auto& [tensor, elements, dtype] : tensors)
      options.model.tensors.push_back({tensor, elements, dtypeNamed(dtype)});
    for (size_t t = 0; t < parameters.size(); ++t) {
      const auto memory = memoryAt(parameters[t], options.model.tensors.at(t).bytes());
      options.memory.push_back({memory, memory});  // every gradient brings its own
    }
    session_ = valueOrThrow(
        withoutGil([&] { return session::Inside::open(job, std::move(options), engine); }));
  }
  ~Training() {
    if (session_ == nullptr) return;
    const py::gil_scoped_release release;
    session_.reset();
  }
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;

  void gradientReady(uint32_t tensor, uintptr_t address, uintptr_t result, size_t bytes) {
    throwIfError(session().gradientReady(TensorId{tensor},
                                         {memoryAt(address, bytes), memoryAt(result, bytes)}));
  }
  void gradientAbsent(uint32_t tensor, uintptr_t address, size_t bytes) {
    throwIfError(session().gradientAbsent(TensorId{tensor}, memoryAt(address, bytes)));
  }

  // True iff the mean is there; false: no rank had a gradient.
  bool wait(uint32_t tensor) {
    const TensorId id{tensor};
    if (!session().isReady(id))
      throwIfError(waitFor(session(), [&](auto& training) { return training.wait(id); }));
    return !session().isEmpty(id);
  }
  void update(const std::vector<double>& values) { throwIfError(session().update(values)); }
  void drop() { session().drop(); }
  bool isReady(uint32_t tensor) const { return session().isReady(TensorId{tensor}); }

  size_t delayed() {
    return valueOrThrow(waitFor(session(), [](auto& training) { return training.delayed(); }));
  }
  void handOutDelayed(uint32_t tensor, uintptr_t address, size_t bytes) {
    throwIfError(session().handOutDelayed(TensorId{tensor}, memoryAt(address, bytes)));
  }
  py::bytes state() {
    return toPython(
        valueOrThrow(waitFor(session(), [](auto& training) { return training.takeState(); })));
  }
  void restore(const py::bytes& state) {
    const auto bytes = bytesOf(state);
    throwIfError(waitFor(session(), [&](auto& training) { return training.restore(bytes); }));
  }
  std::vector<py::bytes> gather(const std::string& key, const py::bytes& value) {
    return pytorch::gather(session(), key, value);
  }
  // The slices that this rank serves: tensor, first element, number of elements.
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> served() const {
    std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> slices;
    for (const SliceId id : inside().plan().slicesOn(session().rank())) {
      const plan::Slice& slice = inside().plan().slice(id);
      slices.emplace_back(index(slice.tensor), slice.offset, slice.count);
    }
    return slices;
  }

  void broadcast(uint32_t root, uintptr_t address, size_t bytes) {
    throwIfError(waitFor(session(), [&](auto& training) {
      return training.broadcast(Rank{root}, memoryAt(address, bytes));
    }));
  }

  // The same for a call that is made again if it is interrupted: the same number is the same
  // broadcast, which is waited for again and never sent twice.
  void broadcastNumbered(uint32_t root, uintptr_t address, size_t bytes, uint64_t number) {
    const auto memory = memoryAt(address, bytes);
    if (!numbered_ || numbered_->number != number)
      numbered_ = {number, withoutGil([&] {
                     return inside().trainer().beginBroadcast(Rank{root}, memory);
                   })};
    const auto& underway = numbered_->underway;
    const bool isRoot = session().rank() == Rank{root};
    if (underway.root != Rank{root} || underway.bytes->size() != bytes ||
        (isRoot && !std::ranges::equal(*underway.bytes, memory))) {
      throw std::runtime_error("a call was interrupted, and another one was made in its place");
    }
    throwIfError(withoutGil([&] { return inside().trainer().endBroadcast(underway, memory); }));
  }

  void announceEnd() {
    throwIfError(waitFor(session(), [](auto& training) { return training.announceEnd(); }));
  }

  void leave() {
    throwIfError(waitFor(session(), [&](auto& training) {
      const Status status = training.leave();
      session_.reset();
      return status;
    }));
  }

  // Without an exception of its own: there is one already.
  void abandon(const std::string& why) {
    waitFor(session(), [&](auto& training) {
      training.abandon(why);
      session_.reset();
    });
  }

  std::string plan() const { return inside().plan().toString(); }
  size_t slices() const { return inside().plan().slices().size(); }
  std::vector<double> waited() const { return waits_.seconds(); }
  double secondsOnTheWay() const { return waits_.secondsOnTheWay(); }
  std::pair<uint64_t, uint64_t> bytesMoved() const {
    const auto counters = inside().trainer().counters();
    return {counters.bytesSent, counters.bytesReceived};
  }

 private:
  struct Numbered {
    uint64_t number;
    session::Trainer::BroadcastUnderway underway;
  };

  // An error once it has left, and in a forked child.
  Session& session() const {
    (void)member_.job();
    if (session_ == nullptr) throw std::runtime_error("the session has ended");
    return *session_;
  }
  session::SessionParts& inside() const { return session::Inside::of(session()); }

  const Membership& member_;
  WaitTimes waits_;
  std::optional<Numbered> numbered_;  // the last
  std::unique_ptr<Session> session_;
};

// A comparison between ranks, as Python asks for it.
class Compared final {
 public:
  Compared(const Membership& member, const std::string& key,
           const std::vector<std::pair<uintptr_t, size_t>>& tensors)
      : comparison_(withoutGil([&] {
          std::vector<uint64_t> hashes;
          for (const auto& [address, bytes] : tensors)
            hashes.push_back(session::hashOf(memoryAt(address, bytes)));
          return session::compareRanks(member.job(), key, std::move(hashes));
        })) {}

  bool hasEnded() const {
    return comparison_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }

  // The first tensor that differs, how many it may be from there on, and in words where; none if
  // all are alike, or if they could not be compared. REQUIRES: hasEnded()
  std::optional<std::tuple<size_t, size_t, std::string>> difference() const {
    const auto& result = comparison_.get();
    if (!result.isOk())
      log("pytorch").debug("ranks were not compared: {}", result.status().toString());
    if (!result.isOk() || !result->has_value()) return std::nullopt;
    const session::RankDifference& found = **result;
    return std::tuple(found.first, found.count,
                      fmt::format("{} from {}", rendezvous::describeRanks(found.ranks),
                                  rendezvous::describeRanks(found.others)));
  }

 private:
  const session::Comparison comparison_;
};

}  // namespace

// NOLINTNEXTLINE: the macro is pybind11's
PYBIND11_MODULE(_core, module) {
  module.doc() = "sluice's sessions; use the package sluice instead";
  peerLost = PyErr_NewExceptionWithDoc("sluice.PeerLostError",
                                       "Another rank has ended or failed; the text names it.",
                                       PyExc_RuntimeError, nullptr);
  module.attr("PeerLostError") = py::handle(peerLost);

  module.def(
      "say", [](const std::string& text) { log("pytorch").info("{}", text); }, py::arg("text"));
  module.def("take_variable", &takeVariable, py::arg("name"));
  module.def(
      "is_secret",
      [](const std::string& name) {
        const base::Option* option = base::findOption(name);
        return option != nullptr && option->secret;
      },
      py::arg("option"));
  module.def("note_key", &noteKey, py::arg("options"), py::arg("environment"));

  module.def(
      "algorithm_name",
      [](const std::string& nameOrAlias) {
        return std::string(valueOrThrow(strategy::findAlgorithm(nameOrAlias))->name);
      },
      py::arg("name_or_alias"));
  module.def(
      "keeps_ranks_equal",
      [](const std::string& algorithm) {
        return valueOrThrow(strategy::findAlgorithm(algorithm))->keepsRanksEqual;
      },
      py::arg("algorithm"));
  module.def("read_server_state", &readServerState, py::arg("state"));
  module.def("write_server_state", &writeServerState, py::arg("optimizer"), py::arg("slices"));

  module.def(
      "p3_bound",
      [](const std::vector<std::tuple<double, double, double>>& layers, double secondsPerByte) {
        std::vector<timing::Layer> described;
        for (const auto& [forward, backward, bytes] : layers)
          described.push_back({forward, backward, bytes});
        return timing::p3Bound(described, {.start = 0, .perByte = secondsPerByte});
      },
      py::arg("layers"), py::arg("seconds_per_byte"));

  py::class_<Membership>(module, "Job")
      .def(py::init(&join), py::arg("options"), py::arg("environment"),
           py::arg("published") = py::none())
      .def("close", &Membership::close)
      .def_property_readonly("rank",
                             [](const Membership& member) { return index(member.job().rank()); })
      .def_property_readonly("world_size",
                             [](const Membership& member) { return member.job().worldSize(); })
      .def_property_readonly("is_asked_to_leave",
                             [](const Membership& member) { return member.job().isAskedToLeave(); })
      .def_property_readonly("address",
                             [](const Membership& member) { return member.job().address().host(); })
      .def_property_readonly(
          "loop",
          [](const Membership& member) {
            return reinterpret_cast<uintptr_t>(static_cast<Loop*>(&member.job().loop()));
          })
      .def_property_readonly("interface",
                             [](const Membership& member) { return member.job().interfaceName(); })
      .def(
          "option",
          [](const Membership& member, const std::string& name) {
            const base::Option* option = base::findOption(name);
            if (option == nullptr) throw py::key_error(name);
            if (option->secret)
              throw py::value_error(fmt::format("the option {} is a secret and is not told", name));
            return member.job().config().value(*option).text;
          })
      .def("gather", [](const Membership& member, const std::string& key, const py::bytes& value) {
        return gather(member.job(), key, value);
      });

  py::class_<Compared>(module, "Comparison")
      .def(py::init<const Membership&, const std::string&,
                    const std::vector<std::pair<uintptr_t, size_t>>&>(),
           py::arg("job"), py::arg("key"), py::arg("tensors"))
      .def_property_readonly("has_ended", &Compared::hasEnded)
      .def("difference", &Compared::difference);

  py::class_<Training>(module, "Session")
      .def(py::init<const Membership&, const std::string&, const std::vector<TensorDescription>&,
                    const std::string&, const std::vector<uintptr_t>&, uintptr_t,
                    const std::string&>(),
           py::arg("job"), py::arg("name"), py::arg("tensors"), py::arg("update") = "mean-gradient",
           py::arg("parameters") = std::vector<uintptr_t>(), py::arg("collective") = 0,
           py::arg("algorithm") = "", py::keep_alive<1, 2>())
      .def("gradient_ready", &Training::gradientReady, py::arg("tensor"), py::arg("address"),
           py::arg("result"), py::arg("bytes"))
      .def("update", &Training::update, py::arg("values"))
      .def("drop", &Training::drop)
      .def("gradient_absent", &Training::gradientAbsent, py::arg("tensor"), py::arg("address"),
           py::arg("bytes"))
      .def("wait", &Training::wait, py::arg("tensor"))
      .def("is_ready", &Training::isReady, py::arg("tensor"))
      .def("hand_out_delayed", &Training::handOutDelayed, py::arg("tensor"), py::arg("address"),
           py::arg("bytes"))
      .def("state", &Training::state)
      .def("restore", &Training::restore, py::arg("state"))
      .def("gather", &Training::gather, py::arg("key"), py::arg("value"))
      .def("broadcast", &Training::broadcast, py::arg("root"), py::arg("address"), py::arg("bytes"))
      .def("broadcast_numbered", &Training::broadcastNumbered, py::arg("root"), py::arg("address"),
           py::arg("bytes"), py::arg("number"))
      .def("announce_end", &Training::announceEnd)
      .def("leave", &Training::leave)
      .def("abandon", &Training::abandon, py::arg("why"))
      .def_property_readonly("delayed", &Training::delayed)
      .def_property_readonly("plan", &Training::plan)
      .def_property_readonly("slices", &Training::slices)
      .def_property_readonly("served", &Training::served)
      .def_property_readonly("waited", &Training::waited)
      .def_property_readonly("seconds_on_the_way", &Training::secondsOnTheWay)
      .def_property_readonly("bytes_moved", &Training::bytesMoved);
}

}  // namespace sluice::pytorch
