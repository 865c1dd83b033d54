#include <sluice/data/collective/method_costs.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/text.h>
#include <sluice/base/units.h>

namespace sluice::collective {
namespace {

// "2.53ns". Finer than a Duration, which counts whole nanoseconds.
Result<double> parseTime(std::string_view text) {
  const struct {
    std::string_view unit;
    double seconds;
  } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}};
  for (const auto& [unit, seconds] : units) {
    if (!text.ends_with(unit)) continue;
    SLUICE_ASSIGN_OR_RETURN(const double number,
                            base::parseNumber(text.substr(0, text.size() - unit.size())));
    // A negative number falls through to the error below, and so does NaN.
    if (number >= 0) return number * seconds;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("'{}' is not a time; write it in ns, us or ms", text));
}

}  // namespace

std::string toText(std::span<const MethodCost> costs) {
  std::string text;
  for (const auto& [method, start, perByte] : costs) {
    text += fmt::format("{}{}={:.6g}us+{:.6g}ns", text.empty() ? "" : ",", name(method),
                        start * 1e6, perByte * 1e9);
  }
  return text;
}

Result<std::vector<MethodCost>> parseMethodCosts(std::string_view text) {
  std::vector<MethodCost> costs;
  for (const std::string_view one : base::split(text, ',')) {
    const size_t equals = one.find('=');
    const size_t plus = one.find('+');
    if (equals == std::string_view::npos || plus == std::string_view::npos || plus < equals) {
      return Status(Code::kInvalidArgument,
                    fmt::format("'{}' holds no costs; 'sluice bench collective --lab N "
                                "--collective auto --network FILE' writes them",
                                text));
    }
    MethodCost cost;
    SLUICE_ASSIGN_OR_RETURN(cost.method, parseMethod(base::trim(one.substr(0, equals))));
    SLUICE_ASSIGN_OR_RETURN(cost.start,
                            parseTime(base::trim(one.substr(equals + 1, plus - equals - 1))));
    SLUICE_ASSIGN_OR_RETURN(cost.perByte, parseTime(base::trim(one.substr(plus + 1))));
    costs.push_back(cost);
  }
  return costs;
}

Method cheapest(std::span<const MethodCost> costs, double bytes) {
  SLUICE_CHECK(!costs.empty());
  return std::ranges::min_element(costs, {},
                                  [bytes](const MethodCost& cost) { return cost.of(bytes); })
      ->method;
}

}  // namespace sluice::collective
