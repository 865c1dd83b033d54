// The Python module sluice._c10d.torch_X_Y: the backend "sluice" of torch.distributed, for
// python/sluice/_backend/groups.py. Unlike sluice._core it is built against one Torch, and fits only that.
#include <torch/csrc/utils/pybind.h>

#include <sluice/pytorch/backend/backend.h>
#include <sluice/pytorch/backend/c10d_collective.h>
#include <sluice/pytorch/backend/python_device.h>
#include <sluice/pytorch/group_communicator.h>

namespace sluice::pytorch {
namespace {

using Values = base::Config::Values;

Status checkSignals() {
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? base::ok() : Status(Code::kCancelled, "interrupted");
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

// `published` is as in session::JobParts::join(). An exception in it stays set, for throwIfError().
std::shared_ptr<Connection> connect(const Values& options, const Values& environment,
                                    double seconds, const py::object& published) {
  const auto publish = [&](uint16_t port) -> Status {
    const py::gil_scoped_acquire gil;
    try {
      if (!published.is_none()) published(port);
      return base::ok();
    } catch (py::error_already_set& error) {
      error.restore();
      return {Code::kUnavailable, "the port of rank 0 could not be published"};
    }
  };
  std::optional<Result<std::shared_ptr<GroupCommunicator>>> group;
  {
    const py::gil_scoped_release release;
    group = GroupCommunicator::join(options, environment, base::fromSeconds(seconds), checkSignals,
                                    publish);
  }
  throwIfError(group->status());
  return std::make_shared<Connection>(**std::move(group));
}

std::string ownAddress(const Values& options, const Values& environment) {
  std::optional<Result<std::string>> address;
  {
    const py::gil_scoped_release release;
    address = GroupCommunicator::ownAddress(options, environment, checkSignals);
  }
  throwIfError(address->status());
  return **std::move(address);
}

// Closes without the GIL, since callbacks on a future may be waiting for Python.
void closeWithoutGil(Connection& connection) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return connection.close();
  const py::gil_scoped_release release;
  connection.close();
}

c10::intrusive_ptr<c10d::Backend> makeBackend(const std::shared_ptr<Connection>& connection,
                                              double seconds) {
  const auto timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
  return c10::make_intrusive<SluiceBackend>(connection, timeout, closeWithoutGil,
                                            throwIfInterrupted);
}

// Detaches without the GIL, since the loop may need it for a process group that is written in
// Python.
struct DeleteWithoutGil {
  void operator()(C10dCollective* engine) const {
    {
      const py::gil_scoped_release release;
      engine->detach();
    }
    delete engine;
  }
};

}  // namespace

// NOLINTNEXTLINE: the macro is pybind11's
PYBIND11_MODULE(SLUICE_MODULE, module) {
  module.doc() = "sluice's backend of torch.distributed; import sluice instead";
  py::class_<Connection, std::shared_ptr<Connection>>(module, "Connection")
      .def("close", &closeWithoutGil);
  // The loop is that of a sluice._core.Job, whose session is given the collective's address.
  py::class_<C10dCollective, std::unique_ptr<C10dCollective, DeleteWithoutGil>>(module,
                                                                                "Collective")
      .def(py::init([](const C10dCollective::GroupPtr& group, uintptr_t loop) {
             // NOLINTNEXTLINE(performance-no-int-to-ptr): the other module's
             return std::unique_ptr<C10dCollective, DeleteWithoutGil>(
                 new C10dCollective(*reinterpret_cast<Loop*>(loop), group));
           }),
           py::arg("process_group"), py::arg("loop"))
      .def_property_readonly("address", [](C10dCollective& engine) {
        return reinterpret_cast<uintptr_t>(static_cast<collective::Collective*>(&engine));
      });
  py::class_<Update>(module, "Update");
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
      .def("follow",
           [](PythonDevice& device, const Update& update) { throwIfError(device.follow(update)); });
  module.def("connect", &connect, py::arg("options"), py::arg("environment"), py::arg("timeout"),
             py::arg("published") = py::none());
  module.def("own_address", &ownAddress, py::arg("options"), py::arg("environment"));
  module.def("backend", &makeBackend, py::arg("connection"), py::arg("timeout"));
}

}  // namespace sluice::pytorch
