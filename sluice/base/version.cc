#include <sluice/base/version.h>

namespace sluice::base {

// A release recompiles only this file: the build defines both texts for it alone.
std::string_view version() {
  return SLUICE_VERSION;
}
std::string_view librariesInside() {
  return SLUICE_LIBRARIES_INSIDE;
}

}  // namespace sluice::base
