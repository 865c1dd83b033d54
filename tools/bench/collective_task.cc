#include <tools/bench/collective_task.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/check.h>
#include <sluice/base/json.h>
#include <sluice/data/timing/line_fit.h>
#include <tools/bench/rank_messages.h>

namespace sluice::bench {
namespace {

constexpr std::string_view kCollectiveMark = "collective-figures ";

}  // namespace

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CollectiveTask, methods, sizes, codec, seconds, strips)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CollectiveFigure, method, bytes, p50, p99)

std::string CollectiveTask::toText() const {
  return nlohmann::json(*this).dump();
}

Result<CollectiveTask> parseCollectiveTask(std::string_view text) {
  try {
    SLUICE_ASSIGN_OR_RETURN(const auto json, base::parseJson(text));
    return json.get<CollectiveTask>();
  } catch (const nlohmann::json::exception& e) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is not a task for a rank: {}", text, e.what()));
  }
}

std::string toText(const std::vector<CollectiveFigure>& figures) {
  return markedLine(kCollectiveMark, figures);
}

std::optional<std::vector<CollectiveFigure>> parseCollectiveFigures(std::string_view line) {
  return readMarkedLine(kCollectiveMark, line, [](const nlohmann::json& list) {
    return list.get<std::vector<CollectiveFigure>>();
  });
}

LineFit fitLine(const std::vector<CollectiveFigure>& figures) {
  SLUICE_CHECK(figures.size() >= 2, figures.size());
  std::vector<timing::TimedMessage> messages;
  for (const auto& figure : figures)
    messages.push_back({static_cast<double>(figure.bytes), figure.p50});
  const timing::WireCost line = timing::fitLine(messages);
  LineFit fit{.start = line.start, .perByte = line.perByte};
  for (const auto& figure : figures) {
    const double guess = fit.start + fit.perByte * static_cast<double>(figure.bytes);
    fit.worst = std::max(fit.worst, std::abs(guess / figure.p50 - 1));
  }
  return fit;
}

}  // namespace sluice::bench
