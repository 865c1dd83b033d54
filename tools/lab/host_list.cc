#include <tools/lab/host_list.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/text.h>
#include <sluice/base/units.h>

namespace sluice::lab {

Result<std::vector<int>> parseHostList(std::string_view text, int hosts) {
  std::vector<int> list;
  for (const std::string_view piece : base::split(text, ',')) {
    const size_t dash = piece.find('-');
    const auto first = base::parseInteger(piece.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : base::parseInteger(piece.substr(dash + 1));
    if (!first.isOk() || !last.isOk() || *first > *last) {
      return Status(Code::kInvalidArgument,
                    fmt::format("invalid list of hosts '{}'; use 0-3,5", text));
    }
    if (*first < 0 || *last >= hosts) {
      return Status(Code::kInvalidArgument,
                    fmt::format("there is no host {}: the lab has hosts 0 to {}",
                                *first < 0 ? *first : *last, hosts - 1));
    }
    for (auto host = static_cast<int>(*first); host <= *last; ++host) {
      if (std::ranges::find(list, host) != list.end()) {
        return Status(Code::kInvalidArgument, fmt::format("'{}' names host {} twice", text, host));
      }
      list.push_back(host);
    }
  }
  return list;
}

}  // namespace sluice::lab
