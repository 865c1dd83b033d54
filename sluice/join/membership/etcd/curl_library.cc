#include <sluice/join/membership/etcd/curl_library.h>

#include <dlfcn.h>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::membership {
namespace {

struct LoadedCurl {
  CurlLibrary library;
  Status status;
};

template <typename Function>
void findInCurl(void* handle, const char* name, Function& function, Status& status) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr && status.isOk())
    status = Status(Code::kUnavailable,
                    fmt::format("the libcurl that is installed has no {}; install libcurl 7.61 or "
                                "later",
                                name));
}

LoadedCurl loadCurlNow() {
  LoadedCurl loaded;
  void* handle = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);  // never closed: it has threads
  if (handle == nullptr) {
    const char* why = ::dlerror();
    loaded.status = Status(
        Code::kUnavailable,
        fmt::format("libcurl, which talks with etcd, cannot be loaded: {}; install it (Debian: "
                    "libcurl4)",
                    why != nullptr ? why : "?"));
    return loaded;
  }
#define SLUICE_CURL_FIND(name) findInCurl(handle, #name, loaded.library.name, loaded.status);
  SLUICE_CURL_FUNCTIONS(SLUICE_CURL_FIND)
#undef SLUICE_CURL_FIND
  if (loaded.status.isOk() && loaded.library.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    loaded.status = Status(Code::kInternal, "libcurl cannot be started");
  return loaded;
}

// A library is loaded for the whole process.
const LoadedCurl& loadCurlOnce() {
  static const LoadedCurl loaded = loadCurlNow();
  return loaded;
}

}  // namespace

Status loadCurl() {
  return loadCurlOnce().status;
}

const CurlLibrary& curl() {
  SLUICE_DCHECK(loadCurlOnce().status.isOk());
  return loadCurlOnce().library;
}

}  // namespace sluice::membership
