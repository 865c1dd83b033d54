// A hash that notices that the bytes of a buffer were changed. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::pretend {

uint64_t hashOf(const void* bytes, size_t size);

}  // namespace sluice::pretend
