#include <tools/bench/shrunk_profile.h>

#include <fmt/format.h>

#include <sluice/algorithms/slices.h>
#include <sluice/base/options.h>

namespace sluice::bench {

Result<Profile> findShrunkProfile(const std::string& nameOrPath, const base::Config& config) {
  const int64_t shrink = config.integer(option::kShrink);
  if (shrink < 1)
    return Status(Code::kInvalidArgument, fmt::format("--shrink is {}; give 1 or more", shrink));
  SLUICE_ASSIGN_OR_RETURN(const Profile profile, timing::findProfile(nameOrPath));
  return profile.shrunk(static_cast<uint64_t>(shrink));
}

Rate shrunkRate(Rate rate, const base::Config& config) {
  return {algorithms::shrunk(config, rate.bitsPerSecond)};
}

}  // namespace sluice::bench
