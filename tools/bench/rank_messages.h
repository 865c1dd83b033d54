// What a measurement and the ranks that it starts tell each other: its configuration goes to them as
// variables of their environment. Their figures come back as one line of JSON, with a mark before it
// that tells it from all other output of the rank.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

#include <sluice/base/config.h>
#include <sluice/base/json.h>

namespace sluice::bench {

// Returns the options that are not at their default here, and a quiet log: one line per rank and
// run about each success would bury the figures.
std::map<std::string, std::string> variablesFor(const base::Config& config);

inline std::string markedLine(std::string_view mark, const nlohmann::json& json) {
  return std::string(mark) + json.dump();
}

// Returns the result of `read` on the JSON. Returns empty if the line has no such mark, or if
// anything that `read` asks for is not there: the caller then sees that the report is missing.
template <typename Read>
auto readMarkedLine(std::string_view mark, std::string_view line, const Read& read)
    -> std::optional<std::invoke_result_t<Read, const nlohmann::json&>> {
  if (!line.starts_with(mark)) return std::nullopt;
  try {
    const auto json = base::parseJson(line.substr(mark.size()));
    if (!json.isOk()) return std::nullopt;
    return read(*json);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace sluice::bench
