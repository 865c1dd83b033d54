#include <sluice/join/membership/key_values.h>

#include <sluice/base/check.h>

namespace sluice::membership {

KeyRange keysUnder(std::string prefix) {
  std::string end = prefix;
  // The end of the range is the least text above all keys with this prefix, since etcd takes a
  // half-open range.
  SLUICE_CHECK(!end.empty() && end.back() != '\xff');
  ++end.back();
  return {std::move(prefix), std::move(end)};
}

}  // namespace sluice::membership
