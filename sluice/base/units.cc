#include <sluice/base/units.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include <sluice/base/text.h>
#include <sluice/model.h>

namespace sluice::base {
namespace {

struct Unit {
  std::string_view name;
  double scale;
};

constexpr std::array kDurations{Unit{"ns", 1},  Unit{"us", 1e3},   Unit{"ms", 1e6},
                                Unit{"s", 1e9}, Unit{"min", 6e10}, Unit{"h", 3.6e12},
                                Unit{"", 1e9}};
constexpr std::array kBytes{Unit{"b", 1},
                            Unit{"kb", 1e3},
                            Unit{"mb", 1e6},
                            Unit{"gb", 1e9},
                            Unit{"kib", 1024},
                            Unit{"mib", 1024 * 1024},
                            Unit{"gib", 1024.0 * 1024 * 1024},
                            Unit{"", 1}};
constexpr std::array kRates{Unit{"bit", 1},    Unit{"kbit", 1e3}, Unit{"mbit", 1e6},
                            Unit{"gbit", 1e9}, Unit{"b/s", 8},    Unit{"kb/s", 8e3},
                            Unit{"mb/s", 8e6}, Unit{"gb/s", 8e9}};

// "1.5 MiB" -> 1.5 * 1024 * 1024. Units are not case sensitive.
Result<double> parseQuantity(std::string_view text, std::span<const Unit> units,
                             std::string_view examples) {
  const auto refuse = [&] {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is not understood; write it like {}", text, examples));
  };
  const std::string_view trimmed = trim(text);
  double number = 0;
  const auto [end, error] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), number);
  // from_chars also takes "inf" and "nan", which are no quantities.
  if (error != std::errc{} || !std::isfinite(number) || number < 0) return refuse();
  const std::string unit = lower(trim(trimmed.substr(end - trimmed.data())));
  for (const auto& candidate : units) {
    if (candidate.name != unit) continue;
    const double value = number * candidate.scale;
    // Half of the range is the limit, so that a duration can be added to a time without an
    // overflow.
    if (value > static_cast<double>(std::numeric_limits<int64_t>::max()) / 2) return refuse();
    return value;
  }
  return refuse();
}

template <typename Number>
Result<Number> parseBare(std::string_view text, std::string_view kind) {
  const std::string_view trimmed = trim(text);
  Number value{};
  const auto [end, error] = std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), value);
  if (error == std::errc{} && end == trimmed.data() + trimmed.size()) return value;
  return Status(Code::kInvalidArgument, fmt::format("'{}' is not {}", text, kind));
}

}  // namespace

Result<Duration> parseDuration(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const double value,
                          parseQuantity(text, kDurations, "250ms, 1.5s or 2min"));
  return Duration(std::llround(value));
}

Result<uint64_t> parseBytes(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const double value, parseQuantity(text, kBytes, "65536, 64KiB or 1MB"));
  return static_cast<uint64_t>(std::llround(value));
}

Result<Rate> parseRate(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const double value, parseQuantity(text, kRates, "100mbit or 1.2gbit"));
  // A small b is refused, since others write Gb/s for bits.
  const bool isOfBytes = trim(text).ends_with("/s");
  if (isOfBytes && !trim(text).ends_with("B/s"))
    return Status(
        Code::kInvalidArgument,
        fmt::format("'{}' may be bits or bytes; write 1gbit, or 1GB/s with a capital B", text));
  return Rate{static_cast<uint64_t>(std::llround(value))};
}

Result<int64_t> parseInteger(std::string_view text) {
  return parseBare<int64_t>(text, "a whole number");
}
Result<double> parseNumber(std::string_view text) {
  return parseBare<double>(text, "a number");
}

Result<bool> parseSwitch(std::string_view text) {
  const std::string word = lower(trim(text));
  if (word == "on" || word == "true" || word == "yes" || word == "1") return true;
  if (word == "off" || word == "false" || word == "no" || word == "0") return false;
  return Status(Code::kInvalidArgument,
                fmt::format("'{}' is not understood; write on or off", text));
}

std::string formatDuration(Duration d) {
  if (d < Duration::zero()) return "-" + formatDuration(-d);
  // Round before the unit is chosen: 999.6 ms become 1 s. Whole seconds stay.
  const auto ns = static_cast<uint64_t>(d.count());
  uint64_t grain = 1;
  while (ns / grain >= 1000 && grain < 1'000'000'000) grain *= 10;
  const uint64_t rounded = (ns + grain / 2) / grain * grain;
  for (const auto& [name, scale] : {Unit{"s", 1e9}, Unit{"ms", 1e6}, Unit{"us", 1e3}}) {
    const double value = static_cast<double>(rounded) / scale;
    if (value >= 1 || rounded == 0) return fmt::format("{:.10g}{}", value, name);
  }
  return fmt::format("{}ns", rounded);
}

std::string formatBytes(uint64_t bytes) {
  constexpr std::array kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kNames.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kNames[unit]);
}

std::string formatRate(Rate rate) {
  const auto bits = static_cast<double>(rate.bitsPerSecond);
  if (bits >= 1e9) return fmt::format("{:g}gbit", bits / 1e9);
  if (bits >= 1e6) return fmt::format("{:g}mbit", bits / 1e6);
  if (bits >= 1e3) return fmt::format("{:g}kbit", bits / 1e3);
  return fmt::format("{}bit", rate.bitsPerSecond);
}

}  // namespace sluice::base

// The sizes of a model and of its tensors, declared in sluice/model.h.
namespace sluice {

std::string Tensor::toString() const {
  return fmt::format("'{}' {} {}", name, elements, sluice::name(dtype));
}

uint64_t Model::elements() const {
  return std::accumulate(tensors.begin(), tensors.end(), uint64_t{0},
                         [](uint64_t sum, const Tensor& t) { return sum + t.elements; });
}

uint64_t Model::bytes() const {
  return std::accumulate(tensors.begin(), tensors.end(), uint64_t{0},
                         [](uint64_t sum, const Tensor& t) { return sum + t.bytes(); });
}

std::string Model::toString() const {
  return fmt::format("{} tensors, {} elements, {}", tensors.size(), elements(),
                     base::formatBytes(bytes()));
}

}  // namespace sluice
