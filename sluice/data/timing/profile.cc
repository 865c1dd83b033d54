#include <sluice/data/timing/profile.h>

#include <cmath>
#include <fstream>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/file.h>
#include <sluice/base/json.h>
#include <sluice/data/timing/built_in_profiles.h>

namespace sluice::timing {
namespace {

using Json = nlohmann::json;

Status unusable(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

Result<std::string> textField(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string())
    return unusable(fmt::format("'{}' must be a text", key));
  return found->get<std::string>();
}

Result<double> shareField(const Json& object, const char* key) {
  const auto found = object.find(key);
  const double value = found != object.end() && found->is_number() ? found->get<double>() : -1;
  if (!(value >= 0 && value <= 1))
    return unusable(fmt::format("'{}' must be a number from 0 to 1", key));
  return value;
}

// Returns 0 if the field is left out.
Result<double> secondsField(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) return 0.0;
  constexpr double kMost = 86'400;
  const double value = found->is_number() ? found->get<double>() : -1;
  if (!(value >= 0 && value <= kMost))
    return unusable(fmt::format("'{}' must be a number of seconds, a day at most", key));
  return value;
}

Result<ProfileTensor> parseTensor(const Json& object) {
  if (!object.is_object()) return unusable("it must be a JSON object");
  ProfileTensor tensor;
  SLUICE_ASSIGN_OR_RETURN(tensor.name, textField(object, "name"));
  const auto parameters = object.find("parameters");
  if (parameters == object.end() || !parameters->is_number_unsigned()) {
    return unusable("'parameters' must be a whole number");
  }
  tensor.parameters = parameters->get<uint64_t>();
  SLUICE_ASSIGN_OR_RETURN(tensor.forward, shareField(object, "forward"));
  SLUICE_ASSIGN_OR_RETURN(tensor.backward, shareField(object, "backward"));
  return tensor;
}

Result<Profile> parse(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const Json root, base::parseJson(text));
  if (!root.is_object()) return unusable("it must be a JSON object");
  Profile profile;
  SLUICE_ASSIGN_OR_RETURN(profile.model, textField(root, "model"));
  SLUICE_ASSIGN_OR_RETURN(profile.note, textField(root, "note"));
  SLUICE_ASSIGN_OR_RETURN(profile.computeSeconds, secondsField(root, "compute_s"));
  SLUICE_ASSIGN_OR_RETURN(profile.otherSeconds, secondsField(root, "other_s"));
  const auto tensors = root.find("tensors");
  if (tensors == root.end() || !tensors->is_array()) return unusable("'tensors' must be a list");
  double total = 0;
  for (const Json& entry : *tensors) {
    auto tensor = parseTensor(entry);
    if (!tensor.isOk())
      return tensor.status().withContext(fmt::format("tensor {}", profile.tensors.size()));
    total += tensor->forward + tensor->backward;
    profile.tensors.push_back(*std::move(tensor));
  }
  SLUICE_RETURN_IF_ERROR(plan::check(profile.toModel()));
  constexpr double kRounding = 1e-4;  // of shares printed with nine digits
  if (std::abs(total - 1) > kRounding) {
    return unusable(
        fmt::format("the shares of forward and backward add up to {:.6f}, not to 1", total));
  }
  return profile;
}

}  // namespace

Model Profile::toModel(DType dtype) const {
  Model result;
  result.tensors.reserve(tensors.size());
  for (const ProfileTensor& tensor : tensors)
    result.tensors.push_back({tensor.name, tensor.parameters, dtype});
  return result;
}

uint64_t Profile::parameters() const {
  return std::accumulate(tensors.begin(), tensors.end(), uint64_t{0},
                         [](uint64_t sum, const ProfileTensor& t) { return sum + t.parameters; });
}

Profile Profile::shrunk(uint64_t divisor) const {
  Profile small = *this;
  // Sizes are rounded up, so that no tensor becomes empty.
  for (ProfileTensor& tensor : small.tensors)
    tensor.parameters = (tensor.parameters + divisor - 1) / divisor;
  return small;
}

std::string Profile::toString() const {
  return fmt::format("{}: {} tensors, {} parameters", model, tensors.size(), parameters());
}

Result<Profile> parseProfile(std::string_view json, std::string_view origin) {
  auto profile = parse(json);
  if (!profile.isOk()) return base::inOneLine(profile.status()).withContext(origin);
  return profile;
}

Result<Profile> readProfile(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text, base::readFile("profile", path));
  return parseProfile(text, path);
}

std::vector<std::string_view> builtInProfiles() {
  std::vector<std::string_view> names;
  for (const BuiltInProfile& profile : kBuiltInProfiles) names.push_back(profile.name);
  return names;
}

Result<Profile> findProfile(const std::string& nameOrPath) {
  for (const BuiltInProfile& profile : kBuiltInProfiles) {
    if (profile.name == nameOrPath) return parseProfile(profile.json, profile.name);
  }
  // A bare word is a misspelt name rather than a file.
  if (!std::ifstream(nameOrPath)) {
    return Status(Code::kNotFound,
                  fmt::format("there is no profile '{}': name a file, or one of {}", nameOrPath,
                              fmt::join(builtInProfiles(), ", ")));
  }
  return readProfile(nameOrPath);
}

}  // namespace sluice::timing
