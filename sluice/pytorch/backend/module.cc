// The Python module sluice._c10d: the backend "sluice" of torch.distributed, for python/sluice/_backend.py.
// Unlike sluice._core it is built against one Torch, and fits only that.
#include <torch/csrc/utils/pybind.h>

#include <sluice/pytorch/backend/backend.h>
#include <sluice/pytorch/backend/c10d_collective.h>
#include <sluice/pytorch/member.h>

namespace sluice::pytorch {
namespace {

using Values = Config::Values;

Status checkSignals() {
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? base::ok() : Status(Code::kCancelled, "interrupted");
}

// A wait that Ctrl-C has ended has left its exception in Python already.
void throwIfError(const Status& status) {
  if (status.isOk()) return;
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  TORCH_CHECK_VALUE(status.code() != Code::kInvalidArgument, "sluice: ", status.message());
  TORCH_CHECK_WITH(DistBackendError, false, "sluice: ", status.message());
}

std::shared_ptr<Connection> connect(const Values& options, const Values& environment, double seconds) {
  std::optional<Result<std::shared_ptr<Member>>> member;
  {
    const py::gil_scoped_release release;
    member = Member::join(options, environment, base::fromSeconds(seconds), checkSignals);
  }
  throwIfError(member->status());
  return std::make_shared<Connection>(**std::move(member));
}

std::string ownAddress(const Values& options, const Values& environment) {
  std::optional<Result<std::string>> address;
  {
    const py::gil_scoped_release release;
    address = Member::ownAddress(options, environment);
  }
  throwIfError(address->status());
  return **std::move(address);
}

// What hangs on a future may be waiting for Python.
void closeWithoutGil(Connection& connection) {
  if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) return connection.close();
  const py::gil_scoped_release release;
  connection.close();
}

c10::intrusive_ptr<c10d::Backend> makeBackend(const std::shared_ptr<Connection>& connection, double seconds) {
  const auto timeout =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
  return c10::make_intrusive<SluiceBackend>(connection, timeout, closeWithoutGil);
}

}  // namespace

// NOLINTNEXTLINE: the macro is pybind11's
PYBIND11_MODULE(_c10d, module) {
  module.doc() = "sluice's backend of torch.distributed; import sluice instead";
  py::class_<Connection, std::shared_ptr<Connection>>(module, "Connection").def("close", &closeWithoutGil);
  // Its loop is that of a sluice._core.Job, whose session is given its address.
  py::class_<C10dCollective>(module, "Collective")
      .def(py::init([](const C10dCollective::GroupPtr& group, uintptr_t loop) {
             // NOLINTNEXTLINE(performance-no-int-to-ptr): the other module's
             return std::make_unique<C10dCollective>(*reinterpret_cast<Loop*>(loop), group);
           }),
           py::arg("process_group"), py::arg("loop"))
      .def_property_readonly("address", [](C10dCollective& engine) {
        return reinterpret_cast<uintptr_t>(static_cast<collective::Collective*>(&engine));
      });
  module.def("connect", &connect, py::arg("options"), py::arg("environment"), py::arg("timeout"));
  module.def("own_address", &ownAddress, py::arg("options"), py::arg("environment"));
  module.def("backend", &makeBackend, py::arg("connection"), py::arg("timeout"));
}

}  // namespace sluice::pytorch
