// Takes single fields out of JSON that another rank sent: a field that is missing or of another
// type gives the fallback, and nothing throws. Any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <sluice/base/json.h>

namespace sluice::probe {

// Returns what another rank says of itself; null if it is not JSON, or too much.
inline nlohmann::json noteFrom(std::string_view text) {
  auto note = base::parseJson(text, {.mostBytes = base::kMostJsonNoteBytes});
  return note.isOk() ? *std::move(note) : nlohmann::json();
}

inline double numberIn(const nlohmann::json& object, const char* key, double fallback = 0) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_number()) return fallback;
  const auto value = found->get<double>();
  return std::isfinite(value) ? value : fallback;
}

inline uint64_t countIn(const nlohmann::json& object, const char* key) {
  const double value = numberIn(object, key);
  return value > 0 && value < 1e18 ? static_cast<uint64_t>(value) : 0;
}

inline bool switchIn(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() && found->is_boolean() && found->get<bool>();
}

inline std::string textIn(const nlohmann::json& object, const char* key, size_t most = 256) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (!object.is_object() || found == object.end() || !found->is_string()) return {};
  return found->get<std::string>().substr(0, most);
}

// Returns the value of a key; an empty object or list if there is none of that kind.
inline nlohmann::json partIn(const nlohmann::json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return object.is_object() && found != object.end() ? *found : nlohmann::json();
}

// Writes text that may hold bytes of any kind.
inline std::string dumped(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace sluice::probe
