// UCX's objects, owned. Children are freed before their parents, as UCX wants it. Loop thread only.
// Used by node.h and its .cc files.
#pragma once

#include <deque>
#include <functional>
#include <memory>

#include <ucp/api/ucp.h>

#include <sluice/base/status.h>
#include <sluice/transport/fabric/ucx/library.h>
#include <sluice/transport/fabric/ucx/ucx_fabric.h>

namespace sluice::fabric::ucx {

// Frees a handle of UCX with the function `kFree` of the library when its owner goes.
template <auto kFree>
struct FreeWith {
  template <typename T>
  void operator()(T* handle) const noexcept {
    (library().*kFree)(handle);
  }
};

using OnEndpointError = std::function<void(ucs_status_t)>;

// A context and its one worker: everything that UCX holds for a rank.
class Worker final {
 public:
  static Result<std::shared_ptr<Worker>> open(const UcxOptions& options);
  Worker(ucp_context_h context, ucp_worker_h worker) : context_(context), worker_(worker) {}

  ucp_worker_h get() const { return worker_.get(); }
  Result<UcxAddress> address() const;
  Result<int> eventFd() const;

  // Keeps a callback for as long as UCX can call it, which is after its endpoint has been closed,
  // too.
  OnEndpointError* keep(OnEndpointError onError) {
    return &callbacks_.emplace_back(std::move(onError));
  }

 private:
  std::deque<OnEndpointError> callbacks_;
  std::unique_ptr<ucp_context, FreeWith<&Library::ucp_cleanup>> context_;
  std::unique_ptr<ucp_worker, FreeWith<&Library::ucp_worker_destroy>> worker_;
};

// A way to one rank. `onError` runs inside ucp_worker_progress().
class Endpoint final {
 public:
  static Result<std::unique_ptr<Endpoint>> connect(std::shared_ptr<Worker> worker,
                                                   const UcxAddress& to, OnEndpointError onError);
  Endpoint(std::shared_ptr<Worker> worker, ucp_ep_h endpoint)
      : worker_(std::move(worker)), endpoint_(endpoint) {}
  // Everything that is pending on the endpoint ends with an error, in this call or in later calls
  // of progress.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  ucp_ep_h get() const { return endpoint_; }

 private:
  std::shared_ptr<Worker> worker_;  // outlives the endpoint
  ucp_ep_h endpoint_;
};

}  // namespace sluice::fabric::ucx
