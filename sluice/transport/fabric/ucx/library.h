// UCX's functions, found at run time. A program that only might use UCX does not load it: libucs
// takes SIGHUP and the signals of faults for itself as soon as it is loaded, so that a closed
// terminal would no longer end a rank. Used by the .cc files of this folder.
#pragma once

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include <sluice/base/status.h>

// NOLINTBEGIN(cppcoreguidelines-macro-usage): one list for the members and the loop that fills them
#define SLUICE_UCX_FUNCTIONS(each)                                                                 \
  each(ucp_am_data_release) each(ucp_am_recv_data_nbx) each(ucp_am_send_nbx) each(ucp_cleanup)     \
      each(ucp_config_modify) each(ucp_config_read) each(ucp_config_release)                       \
          each(ucp_ep_close_nbx) each(ucp_ep_create) each(ucp_init_version) each(ucp_request_free) \
              each(ucp_worker_arm) each(ucp_worker_create) each(ucp_worker_destroy)                \
                  each(ucp_worker_get_address) each(ucp_worker_get_efd) each(ucp_worker_progress)  \
                      each(ucp_worker_release_address) each(ucp_worker_set_am_recv_handler)        \
                          each(ucs_log_push_handler) each(ucs_status_string)
// NOLINTEND(cppcoreguidelines-macro-usage)

namespace sluice::fabric::ucx {

struct Library {
// NOLINTNEXTLINE(cppcoreguidelines-macro-usage)
#define SLUICE_UCX_MEMBER(name) \
  decltype(&::name) name = nullptr;  // NOLINT(readability-identifier-naming)
  SLUICE_UCX_FUNCTIONS(SLUICE_UCX_MEMBER)
#undef SLUICE_UCX_MEMBER
};

// Loads UCX, once in a process, and puts back every signal handler that loading it has replaced.
// The error says what to install. Any thread.
Status loadLibrary();

// REQUIRES: loadLibrary() has returned ok.
const Library& library();

}  // namespace sluice::fabric::ucx
