// The Python module sluice._core: jobs and sessions for python/sluice, which holds all that knows
// of Torch. Tensors come as addresses and sizes; whoever calls keeps them alive until the wait for
// them has ended. Waits release the GIL, and end on Ctrl-C.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <span>
#include <vector>

#include <fmt/format.h>

#include <sluice/algorithms/catalogue/registry.h>
#include <sluice/base/config.h>
#include <sluice/base/log.h>
#include <sluice/base/options.h>
#include <sluice/base/version.h>
#include <sluice/data/kernel/reduce.h>
#include <sluice/data/shard/served_state.h>
#include <sluice/data/timing/bounds.h>
#include <sluice/pytorch/core_table.h>
#include <sluice/pytorch/module/conversions.h>
#include <sluice/pytorch/module/python_job.h>
#include <sluice/pytorch/module/training.h>
#include <sluice/pytorch/wait_times.h>
#include <sluice/secret/key_file.h>
#include <sluice/session/rank_comparison.h>

namespace sluice::pytorch {
namespace {

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

// Returns the bytes of up to ten elements: the first, the last, and those at equal distances between
// them. A write to all of a tensor changes some of them.
py::bytes peek(uintptr_t address, size_t elements, size_t elementSize) {
  constexpr size_t kPlaces = 10;
  const auto memory = memoryAt(address, elements * elementSize);
  std::vector<std::byte> seen;
  const size_t places = std::min(elements, kPlaces);
  for (size_t n = 0; n < places; ++n) {
    const size_t element = places == 1 ? 0 : n * (elements - 1) / (places - 1);
    std::ranges::copy(memory.subspan(element * elementSize, elementSize), std::back_inserter(seen));
  }
  return toPython(seen);
}

py::bytes noteKey(const base::Config::Values& options, const base::Config::Values& environment) {
  const base::Config config = valueOrThrow(base::Config::read(options, environment));
  const secret::Key key =
      valueOrThrow(secret::loadJobKey(config)).derive(secret::Purpose::kStoreNote);
  return toPython(key.bytes());
}

// A slice of a tensor at a server: name, first element, number of elements, steps made, buffers
// (empty if never used), in the order of the optimizer.
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

// A slice to write: as SliceRead, with the parameters' dtype for the number of elements.
using SliceToWrite =
    std::tuple<std::string, uint64_t, std::string, uint64_t, std::vector<std::optional<py::bytes>>>;

py::bytes writeServerState(const std::string& optimizer, const std::vector<SliceToWrite>& slices) {
  std::vector<shard::ServedState> states;
  for (const auto& [tensor, offset, dtype, steps, buffers] : slices) {
    const DType parameters = dtypeNamed(dtype);
    const size_t bytesEach = sizeOf(kernel::accumulatorOf(parameters));
    // All buffers of a slice have as many elements as the slice, so any of them says how many
    // there are. One of another length is refused below.
    size_t elements = 0;
    for (const auto& buffer : buffers) {
      if (buffer) elements = bytesOf(*buffer).size() / bytesEach;
    }
    optimizer::OptimizerState state(optimizer, parameters, elements);
    state.setSteps(steps);
    for (size_t b = 0; b < buffers.size(); ++b) {
      if (!buffers[b]) continue;
      if (bytesOf(*buffers[b]).size() != elements * bytesEach)
        throw py::value_error("the buffers have different sizes");
      std::ranges::copy(bytesOf(*buffers[b]), state.buffer(b).begin());
    }
    states.push_back({tensor, offset, std::move(state)});
  }
  return toPython(shard::toBytes(states));
}

}  // namespace

PYBIND11_MODULE(_core, module) {
  module.doc() = "sluice's sessions; use the package sluice instead";
  module.attr("__version__") = std::string(base::version());
  module.attr("table") = reinterpret_cast<uintptr_t>(&coreTable());
  peerLost = PyErr_NewExceptionWithDoc("sluice.PeerLostError",
                                       "Another rank has ended or failed; the text names it.",
                                       PyExc_RuntimeError, nullptr);
  module.attr("PeerLostError") = py::handle(peerLost);

  module.def(
      "say", [](const std::string& text) { log("pytorch").info("{}", text); }, py::arg("text"));
  module.def(
      "warn", [](const std::string& text) { log("pytorch").warn("{}", text); }, py::arg("text"));
  module.def("peek", &peek, py::arg("address"), py::arg("elements"), py::arg("element_size"));
  module.def("take_variable", &takeVariable, py::arg("name"));
  module.def(
      "is_secret",
      [](const std::string& name) {
        const base::Option* option = base::findOption(name);
        return option != nullptr && option->secret;
      },
      py::arg("option"));
  module.def("note_key", &noteKey, py::arg("options"), py::arg("environment"));

  using algorithms::Algorithm;
  py::class_<Algorithm>(module, "Algorithm")
      .def_property_readonly("name", [](const Algorithm& a) { return std::string(a.name); })
      .def_readonly("keeps_ranks_equal", &Algorithm::keepsRanksEqual)
      .def_readonly("takes_process_group", &Algorithm::takesProcessGroup)
      .def_readonly("delays_results", &Algorithm::delaysResults)
      .def_readonly("reads_parameters", &Algorithm::readsParameters)
      .def_readonly("checkpoint_holds_model", &Algorithm::checkpointHoldsModel);
  module.def(
      "algorithm",
      [](const std::string& nameOrAlias) {
        return valueOrThrow(algorithms::findAlgorithm(nameOrAlias));
      },
      py::arg("name_or_alias"), py::return_value_policy::reference);
  module.def(
      "algorithms",
      [] {
        const auto all = algorithms::algorithms();
        return std::vector<const Algorithm*>(all.begin(), all.end());
      },
      py::return_value_policy::reference);
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

  using base::Doing;
  py::enum_<Doing>(module, "Doing")
      .value("FORWARD", Doing::kForward)
      .value("EVALUATION", Doing::kEvaluation)
      .value("BACKWARD", Doing::kBackward)
      .value("STEP", Doing::kStep)
      .value("MEAN", Doing::kMean)
      .value("BARRIER", Doing::kBarrier)
      .value("BUFFERS", Doing::kBuffers)
      .value("PLAN", Doing::kPlan);

  py::class_<PythonJob>(module, "Job")
      .def(py::init(&join), py::arg("options"), py::arg("environment"),
           py::arg("published") = py::none())
      .def("enter", &PythonJob::enter, py::arg("doing"), py::arg("step") = 0)
      .def("leave", &PythonJob::leave, py::arg("before"))
      .def("announce_end", &PythonJob::announceEnd)
      .def("abandon", &PythonJob::abandon, py::arg("why"))
      .def("close", &PythonJob::close)
      .def_property_readonly("rank", [](const PythonJob& job) { return index(job.parts().rank()); })
      .def_property_readonly("world_size",
                             [](const PythonJob& job) { return job.parts().worldSize(); })
      .def_property_readonly("may_lose_members",
                             [](const PythonJob& job) { return job.parts().members() != nullptr; })
      .def_property_readonly("is_asked_to_leave",
                             [](const PythonJob& job) { return job.parts().isAskedToLeave(); })
      .def_property_readonly("address",
                             [](const PythonJob& job) { return job.parts().address().host(); })
      .def_property_readonly("interface",
                             [](const PythonJob& job) { return job.parts().interfaceName(); })
      .def("option",
           [](const PythonJob& job, const std::string& name) {
             const base::Option* option = base::findOption(name);
             if (option == nullptr) throw py::key_error(name);
             if (option->secret)
               throw py::value_error(
                   fmt::format("the option '{}' is a secret and cannot be read", name));
             return job.parts().config().value(*option).text;
           })
      .def("gather", [](const PythonJob& job, const std::string& key, const py::bytes& value) {
        return gather(job.parts(), key, value);
      });

  py::class_<Compared>(module, "Comparison")
      .def(py::init<const PythonJob&, const std::string&,
                    const std::vector<std::pair<uintptr_t, size_t>>&, const py::bytes&,
                    const py::bytes&>(),
           py::arg("job"), py::arg("key"), py::arg("tensors"), py::arg("settings"),
           py::arg("detail"))
      .def("ends", &Compared::ends, py::arg("seconds"))
      .def("difference", &Compared::difference);

  py::class_<Training>(module, "Session")
      .def(py::init<const PythonJob&, const std::string&, const std::vector<TensorDescription>&,
                    const std::string&, const std::vector<uintptr_t>&, uintptr_t,
                    const std::string&, uintptr_t>(),
           py::arg("job"), py::arg("name"), py::arg("tensors"), py::arg("update") = "mean-gradient",
           py::arg("parameters") = std::vector<uintptr_t>(), py::arg("collective") = 0,
           py::arg("algorithm") = "", py::arg("device") = 0, py::keep_alive<1, 2>())
      .def_property_readonly("entrance", &Training::entrance)
      .def("gradient_ready",
           py::overload_cast<uint32_t, uintptr_t, uintptr_t, size_t>(&Training::gradientReady),
           py::arg("tensor"), py::arg("address"), py::arg("result"), py::arg("bytes"))
      .def("update", &Training::update, py::arg("values"))
      .def("drop", &Training::drop)
      .def("gradient_absent",
           py::overload_cast<uint32_t, uintptr_t, size_t>(&Training::gradientAbsent),
           py::arg("tensor"), py::arg("address"), py::arg("bytes"))
      .def("wait", &Training::wait, py::arg("tensor"))
      .def("is_ready", &Training::isReady, py::arg("tensor"))
      .def("hand_out_delayed",
           py::overload_cast<uint32_t, uintptr_t, size_t>(&Training::handOutDelayed),
           py::arg("tensor"), py::arg("address"), py::arg("bytes"))
      .def("state", &Training::state)
      .def("restore", &Training::restore, py::arg("state"))
      .def("gather", &Training::gather, py::arg("key"), py::arg("value"))
      .def("broadcast", &Training::broadcast, py::arg("root"), py::arg("address"), py::arg("bytes"))
      .def("broadcast_numbered", &Training::broadcastNumbered, py::arg("root"), py::arg("address"),
           py::arg("bytes"), py::arg("number"))
      .def("announce_end", &Training::announceEnd, py::arg("reason") = "")
      .def("leave", &Training::leave)
      .def("abandon", &Training::abandon, py::arg("why"))
      .def_property_readonly("delayed", &Training::delayed)
      .def_property_readonly("plan", &Training::plan)
      .def_property_readonly("slices", &Training::slices)
      .def_property_readonly("served", &Training::served)
      .def_property_readonly("cut", &Training::cut)
      .def_property_readonly("epochs", &Training::epochs)
      .def_property_readonly("agreed_members", &Training::agreedMembers)
      .def_property_readonly("waited", &Training::waited)
      .def_property_readonly("seconds_on_the_way", &Training::secondsOnTheWay)
      .def_property_readonly("bytes_moved", &Training::bytesMoved);
}

}  // namespace sluice::pytorch
