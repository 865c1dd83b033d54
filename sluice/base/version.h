// The version of sluice, which the root CMakeLists.txt defines. Any thread.
#pragma once

#include <string_view>

namespace sluice::base {

std::string_view version();  // "0.2.0"

// The foreign libraries that are linked in statically, as in a wheel: "openssl 3.0.19-1, ...".
// Empty if the system's shared libraries are used.
std::string_view librariesInside();

}  // namespace sluice::base
