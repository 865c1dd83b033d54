#include <tools/doctor/plants.h>

#include <fmt/format.h>

#include <sluice/base/units.h>

namespace sluice::doctor {
namespace {

Status plantOne(const std::string& text, uint32_t rank, Plants& plants) {
  const auto equals = text.find('=');
  const auto at = text.rfind('@');
  const Status unknown(Code::kInvalidArgument,
                       fmt::format("invalid plant '{}'; use clock=+90s@2, version=0.0.1@1, "
                                   "torch=1.9@3 or compute=2.5@3",
                                   text));
  if (equals == std::string::npos || at == std::string::npos || at < equals) return unknown;
  const std::string kind = text.substr(0, equals);
  std::string value = text.substr(equals + 1, at - equals - 1);
  SLUICE_ASSIGN_OR_RETURN(const int64_t where, base::parseInteger(text.substr(at + 1)));
  const bool isHere = where == static_cast<int64_t>(rank);
  if (kind == "clock") {
    const double sign = value.starts_with('-') ? -1 : 1;
    if (value.starts_with('-') || value.starts_with('+')) value.erase(0, 1);
    SLUICE_ASSIGN_OR_RETURN(const Duration off, base::parseDuration(value));
    if (isHere) plants.clockSeconds = sign * base::seconds(off);
  } else if (kind == "compute") {
    SLUICE_ASSIGN_OR_RETURN(const double factor, base::parseNumber(value));
    if (isHere) plants.computeFactor = factor;
  } else if (kind == "version") {
    if (isHere) plants.version = value;
  } else if (kind == "torch") {
    if (isHere) plants.torch = value;
  } else {
    return unknown;
  }
  return base::ok();
}

}  // namespace

Result<Plants> parsePlants(const std::vector<std::string>& texts, uint32_t rank) {
  Plants plants;
  for (const std::string& text : texts) SLUICE_RETURN_IF_ERROR(plantOne(text, rank, plants));
  return plants;
}

}  // namespace sluice::doctor
