#include <sluice/strategy/algorithms.h>

#include <algorithm>
#include <array>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice::strategy {

std::span<const Algorithm* const> algorithms() {
  static const std::array kAll{&kSluice, &kP3,   &kSlicing,   &kKvstore, &kMgp3,
                               &kMgwfbp, &kWfbp, &kAllreduce, &kPipe};
  return kAll;
}

Result<const Algorithm*> findAlgorithm(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->name == name) return algorithm;
    names.push_back(algorithm->name);
  }
  return Status(Code::kInvalidArgument,
                fmt::format("no algorithm '{}'; there are {}", name, fmt::join(names, ", ")));
}

}  // namespace sluice::strategy
