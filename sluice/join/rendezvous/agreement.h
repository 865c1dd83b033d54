// The settings that every rank of a job must have in common: sluice's version, the world size, the
// launcher's name of the launch, and every option whose declaration says so. Ranks compare hashes,
// and look at the pairs themselves only if the hashes differ.
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
  Agreement(const base::Config& config, uint32_t worldSize);

  // A later value for the same name replaces the earlier one. A line break in the value becomes a
  // blank. REQUIRES: no line break and no '=' in the name.
  void add(std::string name, std::string value);
  // The launcher's name of this launch (launch.h). Compared only if both sides have it: a rank
  // started by hand beside a launcher's ranks may lack it.
  void addLaunchId(const std::string& name, std::string value);

  std::string hash() const;  // 32 bytes
  std::string encode() const;
  static Result<Agreement> decode(std::string_view text);

  // Returns a text that names both launches, or an empty text if they are one launch: "SLURM_JOB_ID
  // is 4 on rank 3 but 5 on rank 0".
  static std::string describeOtherLaunch(const Agreement& theirs, std::string_view theirName,
                                         const Agreement& ours, std::string_view ourName);
  // Returns a text that names another difference, or an empty text if all else agrees: "world size
  // is 4 on rank 3 but 8 on rank 0".
  static std::string describeDifference(const Agreement& theirs, std::string_view theirName,
                                        const Agreement& ours, std::string_view ourName);

 private:
  std::map<std::string, std::string, std::less<>> pairs_;
};

}  // namespace sluice::rendezvous
