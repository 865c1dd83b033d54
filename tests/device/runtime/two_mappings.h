// Device memory: a sparse file in memory that is mapped twice. Addresses in the first mapping are
// those that programs see; the host cannot access them, and trying to is SIGSEGV. Kernels reach the
// same bytes by the second mapping. A value that owns both mappings; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sluice::pretend {

class TwoMappings final {
 public:
  // Throws std::system_error if the system refuses.
  explicit TwoMappings(size_t bytes);
  ~TwoMappings();
  TwoMappings(const TwoMappings&) = delete;
  TwoMappings& operator=(const TwoMappings&) = delete;

  uintptr_t begin() const { return closed_; }
  size_t bytes() const { return bytes_; }
  bool contains(const void* address) const {
    const auto number = reinterpret_cast<uintptr_t>(address);
    return number >= closed_ && number < closed_ + bytes_;
  }

  // Returns where kernels reach the byte at this address of the device.
  std::byte* reach(uintptr_t address) const { return open_ + (address - closed_); }

  // Gives the memory of whole pages inside this range back to the system. They read as zero then.
  void forget(uintptr_t address, size_t bytes);

 private:
  size_t bytes_;
  uintptr_t closed_ = 0;
  std::byte* open_ = nullptr;
};

}  // namespace sluice::pretend
