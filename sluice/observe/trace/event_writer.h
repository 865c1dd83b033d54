// Writes events in Chrome's trace event format to a file, buffered. Used by trace_file.cc only, from
// one thread.
#pragma once

#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>

namespace sluice::trace {

class EventWriter final {
 public:
  // Times count from `origin`. REQUIRES: nothing is written that was earlier; the file outlives this.
  EventWriter(std::FILE* file, TimePoint origin) : file_(file), origin_(origin) {}

  // Adds text between two events, or around all of them.
  void raw(std::string_view text) { buffer_ += text; }

  template <typename... Args>
  void event(fmt::format_string<Args...> format, Args&&... args) {
    buffer_ += isFirst_ ? "\n" : ",\n";
    isFirst_ = false;
    fmt::format_to(std::back_inserter(buffer_), format, std::forward<Args>(args)...);
    if (buffer_.size() >= kChunkBytes) flush();
  }

  void metadata(Rank rank, std::optional<size_t> track, std::string_view what,
                const std::string& value);

  // Writes an activity from `from` to `to`, or a moment at `from` if nobody knows the end.
  // Activities may overlap on a track, so they are asynchronous events.
  void span(Rank rank, size_t track, std::string_view category, std::string_view name,
            TimePoint from, std::optional<TimePoint> to, const std::string& args);

  // Writes one end of an arrow: 's' begins it and 'f' ends it, both with the same id. An arrow
  // points to a short activity, since viewers show no arrows to asynchronous events or to moments.
  void arrowEnd(char phase, uint64_t id, Rank rank, size_t track, std::string_view name,
                TimePoint at, Duration length, const std::string& args);

  uint64_t newId() { return nextId_++; }

  // Microseconds, exact to the nanosecond.
  std::string time(TimePoint at) const { return microseconds(at - origin_); }

  void flush();
  bool failed() const { return failed_; }

 private:
  static constexpr size_t kChunkBytes = size_t{1} << 18;

  static std::string microseconds(Duration d) {
    return fmt::format("{}.{:03}", d.count() / 1000, d.count() % 1000);
  }

  std::FILE* const file_;
  const TimePoint origin_;
  std::string buffer_;
  uint64_t nextId_ = 1;
  bool isFirst_ = true;
  bool failed_ = false;
};

}  // namespace sluice::trace
