// The precautions on the way between a device and the host. Each one guards against a fault that
// shows only sometimes, in wrong numbers. A test build (SLUICE_OMITTABLE_PRECAUTIONS) leaves out
// one at a time, and the tests must fail for each.
#pragma once

#include <array>
#include <cstdint>

#ifdef SLUICE_OMITTABLE_PRECAUTIONS
#include <atomic>
#endif

namespace sluice::staging {

enum class Precaution : uint8_t {
  kNone,                  // for the tests: everything is done
  kWaitForProducer,       // a copy to the host waits until the gradient is there
  kWaitForFormerReaders,  // a copy to the device waits until nobody uses the memory any more
  kLookBeforeReading,     // the host reads pinned memory when the copy into it is done
  kKeepGradient,          // the gradient's memory is not reused while it is copied
  kKeepResult,            // nor is the result's
  kReturnOutBufferLate,   // pinned memory is used again when its bytes have been read
  kReturnInBufferLate,    // and when the device has read them
  kWaitUntilQueued,       // wait() returns when every copy to the device is queued
  kMakeReaderWait,        // and makes the reader's stream wait for them
};

inline constexpr std::array kPrecautions{
    Precaution::kWaitForProducer,    Precaution::kWaitForFormerReaders,
    Precaution::kLookBeforeReading,  Precaution::kKeepGradient,
    Precaution::kKeepResult,         Precaution::kReturnOutBufferLate,
    Precaution::kReturnInBufferLate, Precaution::kWaitUntilQueued,
    Precaution::kMakeReaderWait,
};

#ifdef SLUICE_OMITTABLE_PRECAUTIONS
inline std::atomic<Precaution> omitted{Precaution::kNone};
inline bool takes(Precaution precaution) {
  return omitted != precaution;
}
#else
constexpr bool takes(Precaution /*precaution*/) {
  return true;
}
#endif

}  // namespace sluice::staging
