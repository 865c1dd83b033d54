// Defines what an option is. options.h declares all options; config.h reads their values. This
// header is apart from the list, so that a new option does not rebuild all code that reads one.
#pragma once

#include <string>
#include <string_view>

namespace sluice::base {

enum class Kind { kText, kInteger, kNumber, kSwitch, kDuration, kBytes, kRate, kChoice };

struct Option {
  std::string_view name;
  Kind kind;
  std::string_view fallback;         // as a user would write it
  std::string_view help;             // one line
  std::string_view choices = {};     // for kChoice: "fifo|priority"
  bool secret = false;               // true iff the value must never be shown or logged
  bool mustAgree = false;            // true iff ranks with different values cannot work together
  std::string_view formerName = {};  // still read, with a warning
};

constexpr Option sameOnAllRanks(Option option) {
  option.mustAgree = true;
  return option;
}

std::string environmentName(std::string_view optionName);  // "stall-after" -> "SLUICE_STALL_AFTER"
inline std::string environmentName(const Option& option) {
  return environmentName(option.name);
}
std::string_view kindName(Kind kind);  // "duration", for help and tables

}  // namespace sluice::base
