#include <sluice/config.h>

#include <fmt/format.h>

#include <sluice/base/config.h>
#include <sluice/base/options.h>

namespace sluice {

Config::Config() : inside_(std::make_unique<base::Config>()) {}
Config::Config(base::Config inside) : inside_(std::make_unique<base::Config>(std::move(inside))) {}
Config::Config(const Config& other) : inside_(std::make_unique<base::Config>(*other.inside_)) {}
Config::Config(Config&& other) noexcept = default;
Config& Config::operator=(const Config& other) {
  if (this != &other) inside_ = std::make_unique<base::Config>(*other.inside_);
  return *this;
}
Config& Config::operator=(Config&& other) noexcept = default;
Config::~Config() = default;

Result<Config> Config::fromEnvironment() {
  return read({}, base::processEnvironment());
}

Result<Config> Config::read(const Values& options, const Values& environment) {
  SLUICE_ASSIGN_OR_RETURN(auto inside, base::Config::read(options, environment));
  return Config(std::move(inside));
}

Status Config::set(std::string_view option, std::string_view value) {
  SLUICE_ASSIGN_OR_RETURN(const base::Option* found, base::knownOption(option));
  return inside_->set(*found, value);
}

Result<std::string> Config::get(std::string_view option) const {
  SLUICE_ASSIGN_OR_RETURN(const base::Option* found, base::knownOption(option));
  if (found->secret) {
    return Status(Code::kPermissionDenied,
                  fmt::format("the option '{}' is a secret and cannot be read", found->name));
  }
  return inside_->value(*found).text;
}

const std::vector<std::string>& Config::warnings() const {
  return inside_->warnings();
}

}  // namespace sluice
