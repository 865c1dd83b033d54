#include <tools/bench/collective_task.h>

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sluice/base/check.h>
#include <sluice/data/timing/line_fit.h>
#include <tools/bench/marked_line.h>

namespace sluice::bench {
namespace {

constexpr std::string_view kCollectiveMark = "collective-figures ";

}  // namespace

std::string CollectiveTask::toText() const {
  return nlohmann::json{{"methods", methods},
                        {"sizes", sizes},
                        {"codec", codec},
                        {"seconds", seconds},
                        {"strips", strips}}
      .dump();
}

Result<CollectiveTask> parseCollectiveTask(std::string_view text) {
  try {
    const auto json = nlohmann::json::parse(text);
    return CollectiveTask{.methods = json.at("methods").get<std::vector<std::string>>(),
                          .sizes = json.at("sizes").get<std::vector<uint64_t>>(),
                          .codec = json.at("codec").get<std::string>(),
                          .seconds = json.at("seconds").get<double>(),
                          .strips = json.at("strips").get<uint32_t>()};
  } catch (const nlohmann::json::exception& e) {
    return Status(Code::kInvalidArgument,
                  fmt::format("'{}' is not a task for a rank: {}", text, e.what()));
  }
}

std::string toText(const std::vector<CollectiveFigure>& figures) {
  auto list = nlohmann::json::array();
  for (const auto& figure : figures) {
    list.push_back({{"method", figure.method},
                    {"bytes", figure.bytes},
                    {"p50", figure.p50},
                    {"p99", figure.p99}});
  }
  return markedLine(kCollectiveMark, list);
}

std::optional<std::vector<CollectiveFigure>> parseCollectiveFigures(std::string_view line) {
  return readMarkedLine(kCollectiveMark, line, [](const nlohmann::json& list) {
    std::vector<CollectiveFigure> figures;
    for (const auto& json : list) {
      figures.push_back({json.at("method").get<std::string>(), json.at("bytes").get<uint64_t>(),
                         json.at("p50").get<double>(), json.at("p99").get<double>()});
    }
    return figures;
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
