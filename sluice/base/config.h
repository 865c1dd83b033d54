// Holds the values of all options (options.h) and the source of each. It is the only reader of
// flags, SLUICE_* variables and the configuration file. A flag wins over a variable, a variable
// over the file, and the file over the default.
//
// Values are checked when they are read, so getting one cannot fail.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/option.h>
#include <sluice/base/status.h>
#include <sluice/base/units.h>

namespace sluice::base {

enum class Source { kDefault, kFile, kEnvironment, kFlag };
std::string_view name(Source source);

class Config final {
 public:
  using Values = std::map<std::string, std::string, std::less<>>;

  struct Value {
    std::string text;
    Source source = Source::kDefault;
    std::string origin;  // "SLUICE_LOG", "--log", "sluice.json", or empty for a default
  };

  Config();  // every option at its default

  // `flags` maps option names to their text. `environment` maps the process's variables to their
  // values; only SLUICE_* variables are looked at. The option `config` names the file, if there is
  // one.
  static Result<Config> read(const Values& flags, const Values& environment);

  // REQUIRES, for each: the option is of that kind.
  const std::string& text(const Option& option) const;  // kText, kChoice
  int64_t integer(const Option& option) const;
  double number(const Option& option) const;
  bool isOn(const Option& option) const;
  Duration duration(const Option& option) const;
  uint64_t bytes(const Option& option) const;
  Rate rate(const Option& option) const;

  const Value& value(const Option& option) const;

  // Changes one value, as a program that embeds sluice does. The value is checked like all others.
  Status set(const Option& option, std::string_view text, Source source = Source::kFlag,
             std::string origin = {});

  // Returns one line for each SLUICE_ variable that belongs to no option, with the nearest name
  // that exists, one for each option that was given by its former name, and one for all that is
  // left of algorithm=auto.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  Status readFile(const std::string& path);
  // Renames every key of `values` that is an option's former name, with a warning. `spelled` makes
  // a key of `values` from an option's name.
  Values renamed(Values values, std::string (*spelled)(std::string_view));
  // Reads algorithm=auto as sluice, and takes out its options, with one warning for all.
  Values withoutAuto(Values values, std::string (*spelled)(std::string_view));

  std::map<const Option*, Value> values_;
  std::vector<std::string> warnings_;
};

// Returns this process's environment, for Config::read.
Config::Values processEnvironment();

}  // namespace sluice::base
