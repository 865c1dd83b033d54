#include <sluice/transport/fabric/ucx/library.h>

#include <dlfcn.h>
#include <signal.h>

#include <array>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::fabric::ucx {
namespace {

// Remembers the handlers of all signals, and puts back those that have changed when it goes.
class SignalHandlersKept final {
 public:
  SignalHandlersKept() {
    for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, nullptr, &former_[signal]);
  }
  ~SignalHandlersKept() {
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction now{};
      if (::sigaction(signal, nullptr, &now) != 0) continue;
      if (now.sa_sigaction == former_[signal].sa_sigaction) continue;
      ::sigaction(signal, &former_[signal], nullptr);
    }
  }
  SignalHandlersKept(const SignalHandlersKept&) = delete;
  SignalHandlersKept& operator=(const SignalHandlersKept&) = delete;

 private:
  std::array<struct sigaction, NSIG> former_{};
};

struct Loaded {
  Library library;
  Status status;
};

template <typename Function>
void find(void* handle, const char* name, Function& function, Status& status) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr && status.isOk()) {
    status =
        Status(Code::kUnavailable,
               fmt::format("the UCX that is installed has no {}: install UCX 1.13 or later", name));
  }
}

Loaded load() {
  const SignalHandlersKept kept;
  Loaded loaded;
  void* handle =
      ::dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);  // never closed: UCX has threads of its own
  if (handle == nullptr) {
    const char* why = ::dlerror();
    loaded.status = Status(
        Code::kUnavailable,
        fmt::format("UCX cannot be loaded: {}; install it (Debian: libucx0), or use --fabric tcp",
                    why != nullptr ? why : "?"));
    return loaded;
  }
#define SLUICE_UCX_FIND(name) find(handle, #name, loaded.library.name, loaded.status);
  SLUICE_UCX_FUNCTIONS(SLUICE_UCX_FIND)
#undef SLUICE_UCX_FIND
  return loaded;
}

// A library is loaded for the whole process.
const Loaded& loadOnce() {
  static const Loaded loaded = load();
  return loaded;
}

}  // namespace

Status loadLibrary() {
  return loadOnce().status;
}

const Library& library() {
  SLUICE_DCHECK(loadOnce().status.isOk());
  return loadOnce().library;
}

}  // namespace sluice::fabric::ucx
