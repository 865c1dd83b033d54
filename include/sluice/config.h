/// @file
/// The values of all options. docs/configuration.md lists them; `sluice config show` prints this
/// machine's.
///
/// An option `stall-after` is also the variable SLUICE_STALL_AFTER and the key "stall-after" of a
/// JSON file, which the option `config` names. A value that the program sets wins over a variable,
/// a variable over the file, and the file over the default.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/status.h>

namespace sluice {

namespace base {
class Config;
}
namespace session {
struct Inside;
}

/// A plain value that can be copied. Each option is checked when it is read or set.
class SLUICE_API Config final {
 public:
  /// Maps names to values, of options ("algorithm" -> "ssp") or of variables ("SLUICE_ALGORITHM" ->
  /// "ssp").
  using Values = std::map<std::string, std::string, std::less<>>;

  /// Sets every option to its default.
  Config();
  /// Reads the process's SLUICE_* variables and the file that they name.
  static Result<Config> fromEnvironment();
  /// Reads `options` as values that the program sets, and `environment` in place of the process's
  /// environment.
  static Result<Config> read(const Values& options, const Values& environment);

  /// Copies all values.
  Config(const Config& other);
  /// Moves all values.
  Config(Config&& other) noexcept;
  /// Copies all values.
  Config& operator=(const Config& other);
  /// Moves all values.
  Config& operator=(Config&& other) noexcept;
  ~Config();

  /// Sets one option as a value of the program. Returns an error for an unknown name or a bad
  /// value.
  Status set(std::string_view option, std::string_view value);
  /// Returns the value of one option as a user would write it. Returns an error for a secret.
  Result<std::string> get(std::string_view option) const;
  /// Returns one line for each variable that belongs to no option, and for each option that has
  /// another name now.
  const std::vector<std::string>& warnings() const;

 private:
  friend struct session::Inside;
  explicit Config(base::Config inside);
  std::unique_ptr<base::Config> inside_;
};

}  // namespace sluice
