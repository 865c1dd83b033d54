// Small things about text that the standard library leaves out.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::base {

std::string_view trim(std::string_view text);
std::string lower(std::string_view text);
std::string upper(std::string_view text);
std::vector<std::string_view> split(std::string_view text,
                                    char separator);  // "" gives one empty piece

// Returns the candidate with the fewest edits from `word`; empty if no candidate is near enough to
// have been meant.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

// Returns the text with control characters and invalid UTF-8 written as escapes ("\\n", "\\x1b").
// Use it for a text that another rank sent: in a log or a terminal it can then neither forge a line
// nor move the cursor.
std::string printable(std::string_view text);

}  // namespace sluice::base
