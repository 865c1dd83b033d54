#include <sluice/base/log.h>

#include <pthread.h>

#include <array>
#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <spdlog/sinks/base_sink.h>

#include <sluice/base/mutex.h>
#include <sluice/base/text.h>

namespace sluice::base {
namespace {

using Level = spdlog::level::level_enum;

// "12:00:00.000 info rank 3 fabric: ..."; `prefix` may be empty.
std::string linePattern(std::string_view prefix) {
  return fmt::format("%H:%M:%S.%e %l {}{}%n: %v", prefix, prefix.empty() ? "" : " ");
}

// Writes to stderr. Unlike spdlog's own sink it can be locked from outside, for fork().
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::mutex& mutex() { return mutex_; }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    (void)std::fwrite(line.data(), 1, line.size(), stderr);
  }
  void flush_() override { (void)std::fflush(stderr); }
};

struct Loggers {
  Loggers() { sink->set_pattern(linePattern("")); }

  std::shared_ptr<StderrSink> sink = std::make_shared<StderrSink>();
  Level level = Level::info;
  std::map<std::string, Level, std::less<>> levelOf;
  std::map<std::string, std::unique_ptr<spdlog::logger>, std::less<>> loggers;

  void applyTo(spdlog::logger& logger) const {
    const auto found = levelOf.find(logger.name());
    logger.set_level(found == levelOf.end() ? level : found->second);
  }
};

struct Shared {
  Mutex mutex;
  Loggers loggers SLUICE_GUARDED_BY(mutex);
};

// The one process-wide object of the project: a log line must be possible from anywhere, also while
// other objects are being destroyed. So it is never destroyed itself.
Shared& shared() {
  static auto& all = *new Shared();
  return all;
}

// A forked child must be able to log too, so no other thread holds a lock of the log while this one
// forks.
void lockForFork() SLUICE_NO_THREAD_SAFETY_ANALYSIS {
  shared().mutex.lock();
  shared().loggers.sink->mutex().lock();
}
void unlockAfterFork() SLUICE_NO_THREAD_SAFETY_ANALYSIS {
  shared().loggers.sink->mutex().unlock();
  shared().mutex.unlock();
}
[[maybe_unused]] const int kLogIsRegistered =
    ::pthread_atfork(&lockForFork, &unlockAfterFork, &unlockAfterFork);

template <typename F>
decltype(auto) withLoggers(F&& f) {
  Shared& all = shared();
  const Lock lock(all.mutex);
  return std::forward<F>(f)(all.loggers);
}

Result<Level> parseLevel(std::string_view word) {
  constexpr std::array kLevels{std::pair{"trace", Level::trace}, std::pair{"debug", Level::debug},
                               std::pair{"info", Level::info},   std::pair{"warn", Level::warn},
                               std::pair{"error", Level::err},   std::pair{"off", Level::off}};
  for (const auto& [levelName, level] : kLevels) {
    if (word == levelName) return level;
  }
  return Status(
      Code::kInvalidArgument,
      fmt::format("'{}' is not a log level; use trace, debug, info, warn, error or off", word));
}

}  // namespace

spdlog::logger& log(std::string_view layer) {
  return withLoggers([&](Loggers& all) -> spdlog::logger& {
    const auto found = all.loggers.find(layer);
    if (found != all.loggers.end()) return *found->second;
    auto logger = std::make_unique<spdlog::logger>(std::string(layer), all.sink);
    all.applyTo(*logger);
    // Every line is written out at once: a process that is killed must not take its last words
    // with it.
    logger->flush_on(Level::trace);
    return *all.loggers.emplace(layer, std::move(logger)).first->second;
  });
}

Status setLogLevels(std::string_view spec) {
  // The text is read as a whole before anything changes, so that a mistake in it leaves the
  // levels as they were.
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
  withLoggers([&](Loggers& all) {
    all.level = level;
    all.levelOf = std::move(levelOf);
    for (const auto& [layer, logger] : all.loggers) all.applyTo(*logger);
  });
  return ok();
}

void setLogPrefix(std::string_view prefix) {
  withLoggers([&](Loggers& all) { all.sink->set_pattern(linePattern(prefix)); });
}

}  // namespace sluice::base
