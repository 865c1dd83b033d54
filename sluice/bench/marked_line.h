// How a rank tells whoever started it what it has measured: one line of JSON, known by the mark
// before it among all else that the rank prints.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

namespace sluice::bench {

inline std::string markedLine(std::string_view mark, const nlohmann::json& json) {
  return std::string(mark) + json.dump();
}

// What `read` makes of the JSON. Empty if the line has no such mark, or if anything that `read`
// asks for is not there: whoever needs the report sees that it is missing.
template <typename Read>
auto readMarkedLine(std::string_view mark, std::string_view line, const Read& read)
    -> std::optional<std::invoke_result_t<Read, const nlohmann::json&>> {
  if (!line.starts_with(mark)) return std::nullopt;
  try {
    return read(nlohmann::json::parse(line.substr(mark.size())));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace sluice::bench
