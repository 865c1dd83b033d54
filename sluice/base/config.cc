#include <sluice/base/config.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/file.h>
#include <sluice/base/json.h>
#include <sluice/base/options.h>
#include <sluice/base/text.h>

namespace sluice::base {
namespace {

constexpr std::string_view kPrefix = "SLUICE_";
constexpr size_t kMostConfigBytes = size_t{1} << 20;

Status checkValue(const Option& option, std::string_view text) {
  // Ranks compare their options as one text with a line for each. A value of two lines would look
  // like two options there.
  if (text.find('\n') != std::string_view::npos)
    return {Code::kInvalidArgument, "the value has a line break; write it on one line"};
  // Addresses are shown, logged and compared between ranks.
  if (option.name == option::kMembers.name && text.find('@') != std::string_view::npos)
    return {Code::kInvalidArgument, std::string(kNoUserInAddress)};
  switch (option.kind) {
    case Kind::kText: return ok();
    case Kind::kInteger: return parseInteger(text).status();
    case Kind::kNumber: return parseNumber(text).status();
    case Kind::kSwitch: return parseSwitch(text).status();
    case Kind::kDuration: return parseDuration(text).status();
    case Kind::kBytes: return parseBytes(text).status();
    case Kind::kRate: return parseRate(text).status();
    case Kind::kChoice: {
      const auto choices = split(option.choices, '|');
      if (std::ranges::find(choices, text) != choices.end()) return ok();
      return {Code::kInvalidArgument, fmt::format("'{}' is not one of {}", text, option.choices)};
    }
  }
  return ok();
}

// Returns the key of an option among flags and in a file: its name.
std::string asWritten(std::string_view name) {
  return std::string(name);
}

}  // namespace

std::string_view name(Source source) {
  switch (source) {
    case Source::kDefault: return "default";
    case Source::kFile: return "file";
    case Source::kEnvironment: return "environment";
    case Source::kFlag: return "flag";
  }
  return "?";
}

Config::Config() {
  for (const Option* option : allOptions())
    values_[option] = {std::string(option->fallback), Source::kDefault, ""};
}

Result<Config> Config::read(const Values& givenFlags, const Values& givenEnvironment) {
  Config config;
  const Values flags = config.withoutAuto(config.renamed(givenFlags, asWritten), asWritten);
  const Values environment =
      config.withoutAuto(config.renamed(givenEnvironment, environmentName), environmentName);
  std::vector<std::string> environmentNames;
  for (const Option* option : allOptions()) environmentNames.push_back(environmentName(*option));
  const std::vector<std::string_view> knownNames(environmentNames.begin(), environmentNames.end());

  // The file is read first, since variables and flags override it. A flag or a variable names the
  // file.
  const auto configFlag = flags.find(option::kConfig.name);
  const auto configVariable = environment.find(environmentName(option::kConfig));
  if (configFlag != flags.end()) {
    SLUICE_RETURN_IF_ERROR(config.readFile(configFlag->second));
  } else if (configVariable != environment.end()) {
    SLUICE_RETURN_IF_ERROR(config.readFile(configVariable->second));
  }

  // Variables are often left over from another version or another job, so an unknown one is
  // only warned of. A flag was typed for this run: an unknown flag is an error.
  for (const auto& [variable, text] : environment) {
    if (!variable.starts_with(kPrefix)) continue;
    const auto found = std::ranges::find(knownNames, variable);
    if (found == knownNames.end()) {
      config.warnings_.push_back(unknownName("variable", variable, knownNames));
      continue;
    }
    const Option& option = *allOptions()[found - knownNames.begin()];
    SLUICE_RETURN_IF_ERROR(config.set(option, text, Source::kEnvironment, variable));
  }

  for (const auto& [flag, text] : flags) {
    SLUICE_ASSIGN_OR_RETURN(const Option* option, knownOption(flag));
    SLUICE_RETURN_IF_ERROR(config.set(*option, text, Source::kFlag, "--" + flag));
  }
  return config;
}

Config::Values Config::renamed(Values values, std::string (*spelled)(std::string_view)) {
  for (const Option* option : allOptions()) {
    if (option->formerName.empty()) continue;
    auto former = values.extract(spelled(option->formerName));
    if (former.empty()) continue;
    const std::string name = spelled(option->name);
    warnings_.push_back(fmt::format("'{}' is now called '{}'", former.key(), name));
    former.key() = name;
    values.insert(std::move(former));  // does nothing if the new name is there, too
  }
  return values;
}

// The next minor version refuses all of it (docs/stability.md).
Config::Values Config::withoutAuto(Values values, std::string (*spelled)(std::string_view)) {
  bool isThere = false;
  for (const char* option : {"auto-planner", "auto-planner-timeout", "auto-steps"})
    isThere |= values.erase(spelled(option)) > 0;
  const auto algorithm = values.find(spelled(option::kAlgorithm.name));
  if (algorithm != values.end() && algorithm->second == "auto") {
    algorithm->second = "sluice";
    isThere = true;
  }
  static constexpr const char* kWarning =
      "algorithm=auto is gone and now means algorithm=sluice; auto-planner, auto-planner-timeout "
      "and auto-steps do nothing; 'sluice plan' says which settings to give instead";
  if (isThere && std::ranges::find(warnings_, kWarning) == warnings_.end())
    warnings_.emplace_back(kWarning);
  return values;
}

Status Config::readFile(const std::string& path) {
  // Who may open the file is asked of the one that was read: later the path may lead to another.
  struct stat info{};
  SLUICE_ASSIGN_OR_RETURN(const std::string file,
                          base::readFile("configuration file", path, kMostConfigBytes, &info));
  const auto parsed = parseJson(file, {.mostBytes = kMostConfigBytes, .mayHaveComments = true});
  if (!parsed.isOk() || !parsed->is_object()) {
    return {Code::kInvalidArgument,
            fmt::format("{} is not a JSON object of options, like {{\"log\": \"debug\"}}{}{}", path,
                        parsed.isOk() ? "" : ": ", parsed.status().message())};
  }
  const nlohmann::json& json = *parsed;
  Values values;
  // JSON may hold numbers and switches as such. They become text again, and each option reads
  // its own text as it does from a variable.
  for (const auto& [key, entry] : json.items())
    values[key] = entry.is_string() ? entry.get<std::string>() : entry.dump();
  values = withoutAuto(renamed(std::move(values), asWritten), asWritten);
  for (const auto& [key, text] : values) {
    const auto found = knownOption(key);
    if (!found.isOk()) return found.status().withContext(path);
    const Option* option = *found;
    // Only a file with a secret in it must be private; most files are shared by a team.
    if (option->secret)
      SLUICE_RETURN_IF_ERROR(
          checkPrivate(info, path, fmt::format("the secret '{}'", option->name)));
    SLUICE_RETURN_IF_ERROR(inOneLine(set(*option, text, Source::kFile, path)));
  }
  return ok();
}

Status Config::set(const Option& option, std::string_view text, Source source, std::string origin) {
  // A value is checked when it is set, and reported with where it came from. So reading a value
  // later cannot fail, and needs no error path in the code that asks.
  if (const Status checked = checkValue(option, text); !checked.isOk()) {
    return checked.withContext(origin.empty() ? std::string(option.name) : origin);
  }
  values_.at(&option) = {std::string(text), source, std::move(origin)};
  return ok();
}

const Config::Value& Config::value(const Option& option) const {
  return values_.at(&option);
}

const std::string& Config::text(const Option& option) const {
  SLUICE_CHECK(option.kind == Kind::kText || option.kind == Kind::kChoice, option.name);
  return value(option).text;
}
int64_t Config::integer(const Option& option) const {
  return parseInteger(value(option).text).value();
}
double Config::number(const Option& option) const {
  return parseNumber(value(option).text).value();
}
bool Config::isOn(const Option& option) const {
  return parseSwitch(value(option).text).value();
}
Duration Config::duration(const Option& option) const {
  return parseDuration(value(option).text).value();
}
uint64_t Config::bytes(const Option& option) const {
  return parseBytes(value(option).text).value();
}
Rate Config::rate(const Option& option) const {
  return parseRate(value(option).text).value();
}

Config::Values processEnvironment() {
  Config::Values values;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals != std::string_view::npos)
      values.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return values;
}

}  // namespace sluice::base
