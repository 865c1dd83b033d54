#include <sluice/data/collective/method.h>

#include <array>

#include <fmt/format.h>

namespace sluice::collective {

std::string_view name(Method method) {
  switch (method) {
    case Method::kDirect: return "direct";
    case Method::kRing: return "ring";
    case Method::kHalvingDoubling: return "halving-doubling";
  }
  return "?";
}

Result<Method> parseMethod(std::string_view text) {
  for (const Method method : std::array{Method::kDirect, Method::kRing, Method::kHalvingDoubling}) {
    if (name(method) == text) return method;
  }
  return Status(
      Code::kInvalidArgument,
      fmt::format("there is no collective method '{}'; use direct, ring or halving-doubling",
                  text));
}

}  // namespace sluice::collective
