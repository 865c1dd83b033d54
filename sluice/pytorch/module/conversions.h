// Errors, bytes and memory between C++ and Python. Only with the GIL held, unless it says
// otherwise.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/status.h>
#include <sluice/model.h>

namespace sluice::pytorch {

namespace py = pybind11;

inline PyObject* peerLost = nullptr;  // the exception class, made once with the module

// Python's idea of an error. A wait that Ctrl-C has ended has left its exception in Python already.
inline void throwIfError(const Status& status) {
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

inline Status checkSignals() {
  const py::gil_scoped_acquire gil;
  return PyErr_CheckSignals() == 0 ? base::ok() : Status(Code::kCancelled, "interrupted");
}

inline std::span<std::byte> memoryAt(uintptr_t address, size_t bytes) {
  auto* first =
      reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr): data_ptr()
  return {first, bytes};
}

inline DType dtypeNamed(const std::string& wanted) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
    if (name(dtype) == wanted) return dtype;
  }
  throw py::value_error(fmt::format("there is no dtype '{}'", wanted));
}

inline py::bytes toPython(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::span<const std::byte> bytesOf(const py::bytes& bytes) {
  return std::as_bytes(std::span(static_cast<std::string_view>(bytes)));
}

// A call that may wait for other ranks lets Python's other threads run meanwhile. REQUIRES: `call`
// touches nothing of Python's.
template <typename Call>
auto withoutGil(Call&& call) {
  const py::gil_scoped_release release;
  return call();
}

// Does what Job::gather() and Session::gather() do.
template <typename Gatherer>
std::vector<py::bytes> gather(Gatherer& from, const std::string& key, const py::bytes& value) {
  const std::string own = value;
  const auto brought = valueOrThrow(withoutGil([&] { return from.gather(key, own); }));
  return std::vector<py::bytes>(brought.begin(), brought.end());
}

}  // namespace sluice::pytorch
