// The job key: 32 random bytes that every rank of a job holds and nobody else. Everything that
// tells a member of the job from a stranger is derived from it, by purpose, so that a key that
// leaks at one place is of no use at another. key_file.h reads and writes it. Any thread; a value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sluice/base/status.h>
#include <sluice/secret/key.h>

namespace sluice::secret {

// The purpose of a derived key. The numbers are part of the protocol: never reuse one.
enum class Purpose : uint16_t {
  kRendezvous = 1,  // the handshake at rank 0's port
  kFabric = 2,      // the handshake of an unencrypted fabric connection
  kTlsPsk = 3,      // the pre-shared key of an encrypted fabric connection
  kWireHeader = 4,  // the keyed check over message headers
  kStoreNote = 5,   // the keyed check over notes in somebody else's store (torchrun's)
  kMembership = 6,  // the seal of members and epochs in the store that membership is agreed in
};
std::string_view name(Purpose purpose);

// 16 random bytes that rank 0 draws for each job and hands out once a rank has proved the job key.
// They are no secret: they tell this job from every other job that uses the same key.
using JobNonce = std::array<std::byte, 16>;
JobNonce randomNonce();

class JobKey final {
 public:
  static JobKey random();

  // The key of a job without a key: known to everybody, so it keeps mistakes out, not strangers.
  // Handshakes run with it all the same, so that there is one path through the code.
  static JobKey none() { return {}; }
  bool isSecret() const { return isSecret_; }

  // 64 hexadecimal digits; blanks around them are ignored. The error never repeats the text.
  static Result<JobKey> parse(std::string_view hex);
  std::string toHex()
      const;  // for `sluice key new` and launchers that hand the key on; never for a log

  // The key of one job: everything derived from it is useless in every other job of the same key
  // file.
  JobKey forJob(const JobNonce& nonce) const;

  Key derive(Purpose purpose) const;

  friend bool operator==(const JobKey&, const JobKey&) = default;

 private:
  JobKey() = default;

  Key key_;
  bool isSecret_ = false;
};

}  // namespace sluice::secret
