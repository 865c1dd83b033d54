// Memory for keys that no core dump has (madvise(2), MADV_DONTDUMP): pages of their own, cut into
// places of kKeyBytes. Any thread, without a lock, so a child that is forked at any moment can use
// it as well.
#pragma once

#include <cstddef>

namespace sluice::secret {

// Returns a place for one key, filled with zeros. Throws std::bad_alloc as `new` does.
std::byte* takeKeyPlace();

// Wipes the place and gives it back.
void giveBackKeyPlace(std::byte* place) noexcept;

}  // namespace sluice::secret
