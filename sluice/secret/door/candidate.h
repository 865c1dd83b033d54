// A connection to a port of ours whose other end has not proved the job key yet.
#pragma once

#include <cstdint>

#include <sluice/base/status.h>

namespace sluice::door {

class Applicant {
 public:
  enum class Step { kWait, kProved, kFailed };
  struct Progress {
    Step step = Step::kWait;
    Status why{};  // set for kFailed
  };

  virtual ~Applicant() = default;

  // Continues the handshake, without blocking. After kWait, call it again when fd() is ready for
  // events().
  virtual Progress advance() = 0;
  virtual uint32_t events() const = 0;

  // True iff its first message was made with the job key, or is a recording of such a message.
  virtual bool saidHello() const = 0;

  virtual int fd() const = 0;
};

}  // namespace sluice::door
