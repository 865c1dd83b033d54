#include <sluice/observe/trace/event_writer.h>

#include <algorithm>

namespace sluice::trace {

void EventWriter::metadata(Rank rank, std::optional<size_t> track, std::string_view what,
                           const std::string& value) {
  event(R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{{}}}}})", rank, track.value_or(0),
        what, value);
}

void EventWriter::span(Rank rank, size_t track, std::string_view category, std::string_view name,
                       TimePoint from, std::optional<TimePoint> to, const std::string& args) {
  // Without a known end the event is a point. A span up to the end of the trace would look like
  // a long delay.
  if (!to) {
    event(R"({{"ph":"i","s":"t","cat":"{}","name":"{}","pid":{},"tid":{},"ts":{},"args":{{{}}}}})",
          category, name, rank, track, time(from), args);
    return;
  }
  const uint64_t id = newId();
  event(R"({{"ph":"b","cat":"{}","id":"{:x}","name":"{}","pid":{},"tid":{},)"
        R"("ts":{},"args":{{{}}}}})",
        category, id, name, rank, track, time(from), args);
  // Two clocks may disagree by a little about what came first.
  event(R"({{"ph":"e","cat":"{}","id":"{:x}","name":"{}","pid":{},"tid":{},"ts":{}}})", category,
        id, name, rank, track, time(std::max(from, *to)));
}

void EventWriter::arrowEnd(char phase, uint64_t id, Rank rank, size_t track, std::string_view name,
                           TimePoint at, Duration length, const std::string& args) {
  event(
      R"({{"ph":"X","cat":"arrow","name":"{}","pid":{},"tid":{},"ts":{},"dur":{},"args":{{{}}}}})",
      name, rank, track, time(at), microseconds(length), args);
  // Viewers tell arrows apart by id, category and name.
  event(R"({{"ph":"{}",{}"cat":"arrow","name":"slice","id":"{:x}","pid":{},"tid":{},"ts":{}}})",
        phase, phase == 'f' ? R"("bp":"e",)" : "", id, rank, track, time(at));
}

void EventWriter::flush() {
  if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_) != buffer_.size()) failed_ = true;
  buffer_.clear();
}

}  // namespace sluice::trace
