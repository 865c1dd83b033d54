// Base64 as etcd's JSON has it (RFC 4648, with padding). Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace sluice::membership {

std::string toBase64(std::string_view bytes);
std::optional<std::string> fromBase64(std::string_view text);  // empty if it is malformed

}  // namespace sluice::membership
