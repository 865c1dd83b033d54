// A hash without a key (BLAKE2b, 32 bytes): to compare long things by short ones.
#pragma once

#include <string>
#include <string_view>

namespace sluice::secret {

inline constexpr size_t kDigestBytes = 32;

std::string digest(std::string_view text);  // kDigestBytes raw bytes

}  // namespace sluice::secret
