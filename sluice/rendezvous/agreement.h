// What every rank of a job must have in common: sluice's version, the world size, and every option whose
// declaration says so. Compared by hash; only where the hashes differ are the pairs themselves looked at.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include <sluice/base/config.h>
#include <sluice/base/status.h>

namespace sluice::rendezvous {

class Agreement final {
 public:
  Agreement() = default;
  Agreement(const Config& config, uint32_t worldSize);

  // A later value for the same name replaces the earlier one. REQUIRES: no line break in either, no '=' in
  // the name.
  void add(std::string name, std::string value);

  std::string hash() const;  // 32 bytes
  std::string encode() const;
  static Result<Agreement> decode(std::string_view text);

  // Names what differs, or is empty: "world size is 4 on rank 3 but 8 on rank 0".
  static std::string describeDifference(const Agreement& theirs, std::string_view theirName,
                                        const Agreement& ours, std::string_view ourName);

 private:
  std::map<std::string, std::string, std::less<>> pairs_;
};

}  // namespace sluice::rendezvous
