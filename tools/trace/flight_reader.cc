#include <tools/trace/flight_reader.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

#include <fmt/format.h>

#include <sluice/base/file.h>
#include <sluice/base/text.h>

namespace sluice::flight {
namespace {

constexpr size_t kWord = sizeof(uint64_t);
constexpr size_t kMostBytes = size_t{1} << 30;
constexpr uint64_t kMostWorld = 65536;
constexpr size_t kMostNames = size_t{1} << 20;
// Times beyond these are no times. The sum of both and of a clock's distance does not overflow.
constexpr int64_t kFarthest = std::numeric_limits<int64_t>::max() / 4;
constexpr int64_t kFarthestWall = std::numeric_limits<int64_t>::max() / 2;

// The words of a file; those that it lacks are zero.
class Words final {
 public:
  explicit Words(std::span<const std::byte> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size() / kWord; }
  uint64_t operator[](size_t word) const {
    uint64_t value = 0;
    if (word < size()) std::memcpy(&value, bytes_.data() + word * kWord, kWord);
    return value;
  }
  // Returns a text that begins with this word, of so many bytes or as many as there are.
  std::string text(size_t word, size_t bytes) const {
    if (word >= size()) return {};
    const size_t there = std::min(bytes, (size() - word) * kWord);
    std::string text(there, '\0');
    std::memcpy(text.data(), bytes_.data() + word * kWord, there);
    return base::printable(text);
  }

 private:
  const std::span<const std::byte> bytes_;
};

std::string untilZero(const Words& words, size_t word) {
  std::string text;
  for (size_t i = 0; i < kHeaderTextWords * kWord; ++i) {
    const auto c = static_cast<char>(words[word + i / kWord] >> (8 * (i % kWord)));
    if (c == '\0') break;
    text += c;
  }
  return base::printable(text);
}

std::optional<int64_t> timeIn(uint64_t word, int64_t farthest = kFarthest) {
  const auto time = static_cast<int64_t>(word);
  if (time < -farthest || time > farthest) return std::nullopt;
  return time;
}

Status damaged(std::string_view what) {
  return {Code::kDataLoss, fmt::format("the flight recorder's file is damaged: {}", what)};
}

// A part of the file: where it begins, and how much of it is there.
struct Part {
  size_t at = 0;
  size_t words = 0;
};

Result<Part> partAt(const Words& words, uint64_t at, uint64_t size, std::string_view what) {
  if (at < kHeaderWords || at > kMostBytes || size > kMostBytes)
    return damaged(fmt::format("its {} lie outside", what));
  const size_t there = at >= words.size() ? 0 : std::min<uint64_t>(size, words.size() - at);
  return Part{.at = at, .words = there};
}

void readNames(const Words& words, const Part& part, SavedFlight& flight) {
  const size_t used = std::min<uint64_t>(words[kNamesUsed], part.words);
  for (size_t next = 0; next < used && flight.names.size() < kMostNames;) {
    const uint64_t length = words[part.at + next];
    const uint64_t its = 1 + (length + kWord - 1) / kWord;
    if (length > kMostNameBytes || its > used - next) return;  // what follows cannot be found
    flight.names.push_back(words.text(part.at + next + 1, length));
    next += its;
  }
}

// Returns the place of each text by its number in the file.
std::map<uint32_t, uint32_t> readTexts(const Words& words, const Part& part, SavedFlight& flight) {
  std::map<uint32_t, uint32_t> places;
  for (size_t slot = 0; (slot + 1) * kTextWords <= part.words; ++slot) {
    const size_t at = part.at + slot * kTextWords;
    const uint32_t number = lowOf(words[at]);
    const uint32_t length = highOf(words[at]);
    if (number == 0 || length > kMostTextBytes) continue;
    places[number] = static_cast<uint32_t>(flight.texts.size());
    flight.texts.push_back(words.text(at + 1, length));
  }
  return places;
}

bool isKnown(EventKind kind) {
  return name(kind) != "?";
}

void readRecords(const Words& words, const Part& part, uint64_t capacity,
                 const std::map<uint32_t, uint32_t>& texts, SavedFlight& flight) {
  const uint64_t next = words[kRecordsNext];
  const uint64_t there = std::min<uint64_t>(capacity, part.words / kRecordWords);
  std::vector<std::pair<uint64_t, SavedEvent>> found;
  for (uint64_t slot = 0; slot < there && slot < next; ++slot) {
    const size_t at = part.at + slot * kRecordWords;
    // The last record that has this slot, or the one before if that was not finished.
    uint64_t number = next - 1 - (next - 1 - slot) % capacity;
    const uint32_t kept = lowOf(words[at]);
    if (kept != static_cast<uint32_t>(number + 1)) {
      if (number < capacity || kept != static_cast<uint32_t>(number - capacity + 1)) {
        ++flight.damaged;
        continue;
      }
      number -= capacity;
    }
    const uint32_t what = highOf(words[at]);
    SavedEvent event{.kind = static_cast<EventKind>(what & 0xff),
                     .detail = static_cast<uint8_t>(what >> 8 & 0xff),
                     .session = static_cast<uint16_t>(what >> 16),
                     .step = words[at + 2],
                     .name = lowOf(words[at + 3]),
                     .slice = highOf(words[at + 3]),
                     .peer = lowOf(words[at + 4]),
                     .bytes = highOf(words[at + 4])};
    const auto time = timeIn(words[at + 1]);
    if (!isKnown(event.kind) || !time) {
      ++flight.damaged;
      continue;
    }
    event.at = TimePoint(Duration(*time));
    if (event.name >= flight.names.size()) event.name = 0;
    if (event.peer >= flight.worldSize) event.peer = kNobody;
    if (hasText(event.kind)) {
      const auto text = texts.find(std::exchange(event.bytes, 0));
      if (text != texts.end()) event.text = text->second;
    }
    found.emplace_back(number, event);
  }
  std::ranges::sort(found, {}, [](const auto& each) { return each.first; });
  for (const auto& [number, event] : found) flight.events.push_back(event);
  flight.lost = next > capacity ? next - capacity : 0;
}

}  // namespace

Result<SavedFlight> parseFlight(std::span<const std::byte> bytes) {
  const Words words(bytes);
  if (words.size() < 2 || words[kMagicWord] != kMagic)
    return Status(Code::kInvalidArgument, "is not a file of a flight recorder");
  if (const uint32_t version = lowOf(words[kVersionAndHeaderWords]); version != kFileVersion) {
    return Status(Code::kInvalidArgument,
                  fmt::format("has version {} of the format, and this sluice reads version {}",
                              version, kFileVersion));
  }
  if (words.size() < kHeaderWords || highOf(words[kVersionAndHeaderWords]) != kHeaderWords)
    return damaged("its header is not whole");
  SavedFlight flight{.rank = lowOf(words[kRankAndWorld]),
                     .worldSize = highOf(words[kRankAndWorld]),
                     .pid = lowOf(words[kPidAndState]),
                     .state = static_cast<RunState>(highOf(words[kPidAndState])),
                     .isMapped = words[kSaved] == 0,
                     .run = words[kRun],
                     .job = untilZero(words, kJobText),
                     .host = untilZero(words, kHostText),
                     .names = {""},
                     .texts = {""}};
  if (flight.worldSize > kMostWorld || flight.rank >= flight.worldSize)
    return damaged(fmt::format("rank {} of {}", flight.rank, flight.worldSize));
  if (flight.state > RunState::kEnded) return damaged("its state is unknown");
  const auto began = timeIn(words[kBegan]);
  const auto ahead = timeIn(words[kWallAhead], kFarthestWall);
  if (!began || !ahead) return damaged("its clock is no clock");
  flight.began = TimePoint(Duration(*began));
  flight.wallAhead = Duration(*ahead);
  const uint64_t capacity = words[kRecords];
  const uint64_t slots = words[kTexts];
  if (capacity == 0 || capacity > kMostBytes || slots > kMostBytes)
    return damaged("it has no room for events");
  SLUICE_ASSIGN_OR_RETURN(const Part names,
                          partAt(words, words[kNamesAt], words[kNamesWords], "names"));
  SLUICE_ASSIGN_OR_RETURN(const Part texts,
                          partAt(words, words[kTextsAt], slots * kTextWords, "texts"));
  SLUICE_ASSIGN_OR_RETURN(const Part records,
                          partAt(words, words[kRecordsAt], capacity * kRecordWords, "events"));
  readNames(words, names, flight);
  const auto places = readTexts(words, texts, flight);
  readRecords(words, records, capacity, places, flight);
  return flight;
}

Result<SavedFlight> readFlight(const std::string& path) {
  SLUICE_ASSIGN_OR_RETURN(const std::string text,
                          base::readFile("the flight recorder's file", path, kMostBytes));
  auto flight = parseFlight(std::as_bytes(std::span(text)));
  if (!flight.isOk()) return flight.status().withContext(path);
  flight->path = path;
  return flight;
}

}  // namespace sluice::flight
