// Parses JSON that comes from outside: files, other ranks, servers. Any thread.
//
// A parser without limits lets whoever wrote the text choose how much memory and time it takes: 4 MB
// of '[' take 300 MB. So every text from outside is parsed here, under limits, and parsing ends at
// the first byte that breaks one. The error is one line without bytes of the text.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sluice/base/status.h>

namespace sluice::base {

// Far more than any format of ours needs.
inline constexpr size_t kDeepestJson = 64;
// A value takes some 100 bytes of memory.
inline constexpr size_t kMostJsonValues = 1'000'000;
// What a rank says of itself to the others.
inline constexpr size_t kMostJsonNoteBytes = size_t{4} << 20;

struct JsonLimits {
  size_t mostBytes = size_t{64} << 20;  // as readFile()
  size_t mostDepth = kDeepestJson;      // lists and objects in each other
  size_t mostValues = kMostJsonValues;
  bool mayHaveComments = false;
};

// How the error of a text begins that is broken rather than too large or of another kind.
inline constexpr std::string_view kNotJson = "it is not JSON";

// Fails with kInvalidArgument: "it is not JSON at byte 17", "it has more than 64 levels".
Result<nlohmann::json> parseJson(std::string_view text, const JsonLimits& limits = {});

// Returns a value as an error shows it: its first characters.
std::string shortText(const nlohmann::json& value);

// Returns an error in one line whose text repeats parts of a file.
Status inOneLine(const Status& status);

// The parts of a long JSON object that a reader wants.
struct JsonParts {
  std::string list;               // the member whose elements are handed out one by one
  std::vector<std::string> kept;  // other members; all else is passed over
  // Gets each element with its number, and the kept members that stand before the list. An error
  // ends the reading and is returned.
  std::function<Status(nlohmann::json& element, uint64_t number, const nlohmann::json& before)>
      take;
};

// Reads an object from a stream, with one element of the list in memory at a time. Returns the kept
// members. `mostValues` bounds each element, and each kept member; the stream's length is the
// caller's matter.
Result<nlohmann::json> readJsonParts(std::istream& stream, const JsonParts& parts,
                                     const JsonLimits& limits = {});

}  // namespace sluice::base
