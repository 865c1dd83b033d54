// A fingerprint of all that happened in a simulation, in its order: two runs of one seed have the
// same. FNV-1a over 64-bit words.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace sluice::sim {

class TraceHash final {
 public:
  void add(std::initializer_list<uint64_t> words) {
    for (const uint64_t word : words) {
      value_ ^= word;
      value_ *= 0x100000001b3U;
      value_ ^= value_ >> 29U;
    }
  }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xcbf29ce484222325U;
};

}  // namespace sluice::sim
