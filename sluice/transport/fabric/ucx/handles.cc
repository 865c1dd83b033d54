#include <sluice/transport/fabric/ucx/handles.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/base/thread.h>
#include <sluice/transport/fabric/ucx/library.h>
#include <sluice/transport/fabric/ucx/settings.h>
#include <sluice/transport/fabric/ucx/ucs_status.h>

namespace sluice::fabric::ucx {
namespace {

using UcpConfig = std::unique_ptr<ucp_config_t, FreeWith<&Library::ucp_config_release>>;

Result<UcpConfig> readConfig(const UcxOptions& options) {
  ucp_config_t* raw = nullptr;
  SLUICE_RETURN_IF_ERROR(
      fromUcs(library().ucp_config_read(nullptr, nullptr, &raw), "cannot read UCX's settings"));
  UcpConfig config(raw);
  for (const UcxSetting& setting : settingsFor(options)) {
    SLUICE_RETURN_IF_ERROR(
        fromUcs(library().ucp_config_modify(raw, setting.name.c_str(), setting.value.c_str()),
                fmt::format("cannot set {}={} in UCX", setting.name, setting.value)));
  }
  return config;
}

// UCX writes to stderr what it also reports to us. Here the text becomes a line of our log, for
// readers who look closely.
ucs_log_func_rc_t onLogLine(const char*, unsigned, const char*, ucs_log_level_t level,
                            const ucs_log_component_config_t*, const char* format,
                            va_list arguments) {
  if (level == UCS_LOG_LEVEL_FATAL) return UCS_LOG_FUNC_RC_CONTINUE;  // it aborts: let it say why
  std::array<char, 512> line{};
  std::vsnprintf(line.data(), line.size(), format, arguments);
  log("fabric").debug("UCX: {}", line.data());
  return UCS_LOG_FUNC_RC_STOP;
}

void takeOverLog() {
  static std::once_flag once;  // UCX has one log for the process
  std::call_once(once, [] { library().ucs_log_push_handler(onLogLine); });
}

void onEndpointError(void* callback, ucp_ep_h, ucs_status_t status) {
  (*static_cast<OnEndpointError*>(callback))(status);
}

}  // namespace

Result<std::shared_ptr<Worker>> Worker::open(const UcxOptions& options) {
  SLUICE_RETURN_IF_ERROR(loadLibrary());
  takeOverLog();
  // UCX starts threads of its own. With all signals blocked while they start, a signal to the
  // process never runs in one of them.
  const base::SignalsBlocked inItsThreads;
  SLUICE_ASSIGN_OR_RETURN(const UcpConfig config, readConfig(options));
  ucp_params_t contextParams{};
  contextParams.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  contextParams.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  contextParams.estimated_num_eps = options.worldSize;
  ucp_context_h context = nullptr;
  SLUICE_RETURN_IF_ERROR(
      fromUcs(library().ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &contextParams, config.get(),
                                         &context),
              fmt::format("cannot start UCX on transports \"{}\" and device \"{}\" (ucx_info -d "
                          "lists what there is)",
                          options.transports, options.device.empty() ? "any" : options.device)));
  std::unique_ptr<ucp_context, FreeWith<&Library::ucp_cleanup>> owned(context);
  ucp_worker_params_t workerParams{};
  workerParams.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  workerParams.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h worker = nullptr;
  SLUICE_RETURN_IF_ERROR(fromUcs(library().ucp_worker_create(context, &workerParams, &worker),
                                 "cannot make a UCX worker"));
  return std::make_shared<Worker>(owned.release(), worker);
}

Result<UcxAddress> Worker::address() const {
  ucp_address_t* raw = nullptr;
  size_t bytes = 0;
  SLUICE_RETURN_IF_ERROR(fromUcs(library().ucp_worker_get_address(get(), &raw, &bytes),
                                 "cannot get the address of UCX"));
  const auto* first = reinterpret_cast<const std::byte*>(raw);
  UcxAddress address(first, first + bytes);
  library().ucp_worker_release_address(get(), raw);
  return address;
}

Result<int> Worker::eventFd() const {
  int fd = -1;
  SLUICE_RETURN_IF_ERROR(
      fromUcs(library().ucp_worker_get_efd(get(), &fd), "cannot get the event descriptor of UCX"));
  return fd;
}

Result<std::unique_ptr<Endpoint>> Endpoint::connect(std::shared_ptr<Worker> worker,
                                                    const UcxAddress& to, OnEndpointError onError) {
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(to.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = onEndpointError;
  params.err_handler.arg = worker->keep(std::move(onError));
  ucp_ep_h endpoint = nullptr;
  SLUICE_RETURN_IF_ERROR(
      fromUcs(library().ucp_ep_create(worker->get(), &params, &endpoint), "cannot connect"));
  return std::make_unique<Endpoint>(std::move(worker), endpoint);
}

Endpoint::~Endpoint() {
  ucp_request_param_t params{};
  // A forced close asks the other side nothing, so it ends at once, also when that side is dead.
  // Operations that are pending end with an error, in a later call of progress.
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  ucs_status_ptr_t request = library().ucp_ep_close_nbx(endpoint_, &params);
  SLUICE_CHECK(!UCS_PTR_IS_PTR(request), "a forced close ends at once");
}

}  // namespace sluice::fabric::ucx
