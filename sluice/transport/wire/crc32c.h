// CRC-32C (Castagnoli), the checksum of iSCSI, SCTP and ext4: finds bytes that changed by accident,
// not on purpose. Uses the CPU's instruction where there is one. Pure function; any thread.
//
// The code is our own, since it is some 60 lines: Debian's ISA-L is a library of assembly for
// storage, and zlib has another polynomial, for which CPUs have no instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::wire {

// Returns the checksum of the bytes whose checksum is `before` (0: no bytes) and of `bytes` after
// them.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

namespace detail {
uint32_t crc32cPortable(std::span<const std::byte> bytes, uint32_t before);  // for tests
}

}  // namespace sluice::wire
