// The Python module sluice._c10d.torch_X_Y: the backend "sluice" of torch.distributed, for
// python/sluice/_backend/groups.py. Unlike sluice._core it is built against one Torch, and fits only
// that. It holds nothing of the engine, which it reaches through a table of C functions (core.h).
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <sluice/pytorch/backend/backend.h>
#include <sluice/pytorch/backend/core.h>
#include <sluice/pytorch/backend/process_group.h>
#include <sluice/pytorch/backend/python_device.h>

namespace sluice::pytorch {
namespace {

using Values = CoreGroup::Values;

constexpr int kMajor = TORCH_VERSION_MAJOR;
constexpr int kMinor = TORCH_VERSION_MINOR;

// c10d's classes change in every minor release, so a call through another release's tables of
// virtual functions would go anywhere. Refuses to load there.
void checkTorch() {
  const std::string own = std::to_string(kMajor) + "." + std::to_string(kMinor);
  const auto torch = py::module_::import("torch").attr("__version__").cast<std::string>();
  if (torch.substr(0, torch.find('.', torch.find('.') + 1)) == own) return;
  throw py::import_error("this module is for Torch " + own + ", and this is Torch " + torch);
}

void attach(uintptr_t table) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the engine's
  const Status status = attachCore(*reinterpret_cast<const table::CoreTable*>(table));
  if (!status.isOk()) throw py::import_error(status.message());
}

Status checkSignals() {
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? Status() : Status(Code::kCancelled, "interrupted");
}

// Raises Ctrl-C in a thread that waits without the GIL.
void throwIfInterrupted() {
  if (Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// A wait that Ctrl-C has ended has left its exception in Python already.
void throwIfError(const Status& status) {
  if (status.isOk()) return;
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  TORCH_CHECK_VALUE(status.code() != Code::kInvalidArgument, "sluice: ", status.message());
  TORCH_CHECK_WITH(DistBackendError, false, "sluice: ", status.message());
}

std::chrono::nanoseconds nanoseconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

// `published` is as in GroupCommunicator::join(). An exception in it stays set, for throwIfError().
std::shared_ptr<BackendLink> connect(const Values& options, const Values& environment,
                                     double seconds, const py::object& published) {
  const auto publish = [&](uint16_t port) -> Status {
    const py::gil_scoped_acquire gil;
    try {
      if (!published.is_none()) published(port);
      return {};
    } catch (py::error_already_set& error) {
      error.restore();
      return {Code::kUnavailable, "the port of rank 0 could not be published"};
    }
  };
  std::optional<Result<std::shared_ptr<CoreGroup>>> group;
  {
    const py::gil_scoped_release release;
    group = CoreGroup::join(options, environment, nanoseconds(seconds), checkSignals, publish);
  }
  throwIfError(group->status());
  return std::make_shared<BackendLink>(**std::move(group));
}

std::string ownAddress(const Values& options, const Values& environment) {
  std::optional<Result<std::string>> address;
  {
    const py::gil_scoped_release release;
    address = CoreGroup::ownAddress(options, environment, checkSignals);
  }
  throwIfError(address->status());
  return **std::move(address);
}

// Closes without the GIL, since callbacks on a future may be waiting for Python.
void closeWithoutGil(BackendLink& connection) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return connection.close();
  const py::gil_scoped_release release;
  connection.close();
}

c10::intrusive_ptr<c10d::Backend> makeBackend(const std::shared_ptr<BackendLink>& connection,
                                              double seconds) {
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(nanoseconds(seconds));
  return c10::make_intrusive<SluiceBackend>(connection, timeout, closeWithoutGil,
                                            throwIfInterrupted);
}

// A process group, as a session of the engine is given it.
class PythonGroup final {
 public:
  explicit PythonGroup(GroupPtr group)
      : group_(std::move(group)), given_(giveProcessGroup(group_)) {}
  PythonGroup(const PythonGroup&) = delete;
  PythonGroup& operator=(const PythonGroup&) = delete;

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(&given_); }

 private:
  const GroupPtr group_;
  const table::ProcessGroup given_;
};

}  // namespace

// NOLINTNEXTLINE: the macro is pybind11's
PYBIND11_MODULE(SLUICE_MODULE, module) {
  checkTorch();
  module.doc() = "sluice's backend of torch.distributed; import sluice instead";
  // Before any other call, with the address sluice._core.table.
  module.def("attach", &attach, py::arg("table"));
  py::class_<BackendLink, std::shared_ptr<BackendLink>>(module, "Connection")
      .def("close", &closeWithoutGil);
  // A session of sluice._core is given the group's address, and uses the group until it has left.
  py::class_<PythonGroup>(module, "Collective")
      .def(py::init<GroupPtr>(), py::arg("process_group"))
      .def_property_readonly("address", &PythonGroup::address);
  py::class_<StreamPoint>(module, "Update");
  // The session is one of sluice._core, which is given the device's address.
  py::class_<PythonDevice>(module, "Device")
      .def(py::init<const c10::Device&>(), py::arg("device"))
      .def_property_readonly("address", &PythonDevice::address)
      .def("gradient_ready",
           [](PythonDevice& device, uintptr_t entrance, uint32_t tensor, const at::Tensor& gradient,
              const at::Tensor& result) {
             throwIfError(device.gradientReady(entrance, tensor, gradient, result));
           })
      .def("gradient_absent",
           [](PythonDevice& device, uintptr_t entrance, uint32_t tensor, const at::Tensor& result) {
             throwIfError(device.gradientAbsent(entrance, tensor, result));
           })
      .def("hand_out_delayed",
           [](PythonDevice& device, uintptr_t entrance, uint32_t tensor, const at::Tensor& result) {
             throwIfError(device.handOutDelayed(entrance, tensor, result));
           })
      .def("wait_before_results",
           [](PythonDevice& device, uintptr_t entrance) {
             throwIfError(device.waitBeforeResults(entrance));
           })
      .def("updated", &PythonDevice::updated)
      .def("follow", [](PythonDevice& device, const StreamPoint& update) {
        throwIfError(device.follow(update));
      });
  module.def("connect", &connect, py::arg("options"), py::arg("environment"), py::arg("timeout"),
             py::arg("published") = py::none());
  module.def("own_address", &ownAddress, py::arg("options"), py::arg("environment"));
  module.def("backend", &makeBackend, py::arg("connection"), py::arg("timeout"));
}

}  // namespace sluice::pytorch
