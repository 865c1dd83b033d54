#include <sluice/base/median.h>

#include <algorithm>

#include <sluice/base/check.h>

namespace sluice::base {

double median(std::vector<double> values) {
  SLUICE_CHECK(!values.empty());
  std::ranges::sort(values);
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace sluice::base
