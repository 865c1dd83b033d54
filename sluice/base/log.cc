#include <sluice/base/log.h>

#include <array>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <sluice/base/mutex.h>
#include <sluice/base/text.h>

namespace sluice::base {
namespace {

using Level = spdlog::level::level_enum;

// "12:00:00.000 info rank 3 fabric: ..."; `prefix` may be empty.
std::string linePattern(std::string_view prefix) {
  return fmt::format("%H:%M:%S.%e %l {}{}%n: %v", prefix, prefix.empty() ? "" : " ");
}

struct Loggers {
  Loggers() { sink->set_pattern(linePattern("")); }

  std::shared_ptr<spdlog::sinks::sink> sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  Level level = Level::info;
  std::map<std::string, Level, std::less<>> levelOf;
  std::map<std::string, std::unique_ptr<spdlog::logger>, std::less<>> loggers;

  void applyTo(spdlog::logger& logger) const {
    const auto found = levelOf.find(logger.name());
    logger.set_level(found == levelOf.end() ? level : found->second);
  }
};

// The one process-wide object of the project: a log line must be possible from anywhere, also while other
// objects are being destroyed. So it is never destroyed itself.
Guarded<Loggers>& loggers() {
  static auto& all = *new Guarded<Loggers>();
  return all;
}

Result<Level> parseLevel(std::string_view word) {
  constexpr std::array kLevels{std::pair{"trace", Level::trace}, std::pair{"debug", Level::debug},
                               std::pair{"info", Level::info},   std::pair{"warn", Level::warn},
                               std::pair{"error", Level::err},   std::pair{"off", Level::off}};
  for (const auto& [levelName, level] : kLevels) {
    if (word == levelName) return level;
  }
  return Status(Code::kInvalidArgument,
                fmt::format("'{}' is not a log level; use trace, debug, info, warn, error or off", word));
}

}  // namespace

spdlog::logger& log(std::string_view layer) {
  return loggers().with([&](Loggers& all) -> spdlog::logger& {
    const auto found = all.loggers.find(layer);
    if (found != all.loggers.end()) return *found->second;
    auto logger = std::make_unique<spdlog::logger>(std::string(layer), all.sink);
    all.applyTo(*logger);
    logger->flush_on(Level::trace);
    return *all.loggers.emplace(layer, std::move(logger)).first->second;
  });
}

Status setLogLevels(std::string_view spec) {
  Level level = Level::info;
  std::map<std::string, Level, std::less<>> levelOf;
  for (const auto part : split(spec, ',')) {
    const auto equals = part.find('=');
    if (equals == std::string_view::npos) {
      SLUICE_ASSIGN_OR_RETURN(level, parseLevel(trim(part)));
    } else {
      SLUICE_ASSIGN_OR_RETURN(levelOf[std::string(trim(part.substr(0, equals)))],
                              parseLevel(trim(part.substr(equals + 1))));
    }
  }
  loggers().with([&](Loggers& all) {
    all.level = level;
    all.levelOf = std::move(levelOf);
    for (const auto& [layer, logger] : all.loggers) all.applyTo(*logger);
  });
  return ok();
}

void setLogPrefix(std::string_view prefix) {
  loggers().with([&](Loggers& all) { all.sink->set_pattern(linePattern(prefix)); });
}

}  // namespace sluice::base
