// The layer table of a model: how large each tensor is and what share of one forward and backward
// pass it takes. Replays, planners and simulations compute with it. Plain values; reading a file is
// for start-up.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/status.h>
#include <sluice/data/plan/model.h>

namespace sluice::timing {

struct ProfileTensor {
  std::string name{};
  uint64_t parameters = 0;
  double forward = 0;   // share of the compute time of one iteration
  double backward = 0;  // the shares of all tensors add up to 1

  friend bool operator==(const ProfileTensor&, const ProfileTensor&) = default;
};

struct Profile {
  std::string model{};                   // "ResNet-50"
  std::string note{};                    // says what the profile stands for
  std::vector<ProfileTensor> tensors{};  // in forward order
  // Measured seconds of one forward and backward pass, and of a step outside both; 0: not measured.
  double computeSeconds = 0;
  double otherSeconds = 0;

  Model toModel(DType dtype = DType::kF32) const;
  uint64_t parameters() const;
  // Returns the profile with every tensor divided by this number, rounded up; the times stay.
  Profile shrunk(uint64_t divisor) const;  // REQUIRES: divisor > 0
  std::string toString() const;            // "ResNet-50: 161 tensors, 25557032 parameters"
};

// Checks every field; an error is one line that begins with `origin`.
Result<Profile> parseProfile(std::string_view json, std::string_view origin);
Result<Profile> readProfile(const std::string& path);

// The names of the profiles that come with sluice (profiles/).
std::vector<std::string_view> builtInProfiles();

// Returns the built-in profile of that name; if there is no such profile, reads the file of that
// name.
Result<Profile> findProfile(const std::string& nameOrPath);

}  // namespace sluice::timing

namespace sluice {
using timing::Profile;
}  // namespace sluice
