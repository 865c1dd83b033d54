// The settings that UCX is given, and the reasons for them. Used by handles.cc.
#pragma once

#include <string>
#include <vector>

#include <sluice/transport/fabric/ucx/ucx_fabric.h>

namespace sluice::fabric::ucx {

struct UcxSetting {
  // The name as ucp_config_modify() takes it: UCX_TLS is "TLS", and UCX_TCP_PUT_ENABLE
  // "PUT_ENABLE".
  std::string name;
  std::string value;
};
std::vector<UcxSetting> settingsFor(const UcxOptions& options);

// Returns an error if the engine must not start; it says why and what to type.
Status checkTrusted(const UcxOptions& options);

}  // namespace sluice::fabric::ucx
