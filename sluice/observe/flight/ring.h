// The memory of a flight recorder: the latest events of a rank, in the form of its file
// (flight_format.h). It may be a mapped file, which outlives the process.
//
// Thread safety: any thread may add events, without a lock. add() and addText() may also be called
// in a signal handler.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <sluice/base/clock.h>
#include <sluice/base/ids.h>
#include <sluice/base/mutex.h>
#include <sluice/base/status.h>
#include <sluice/observe/flight/flight_format.h>

namespace sluice::flight {

// What a recorder says of its process.
struct About {
  Rank rank{};
  uint32_t worldSize = 1;
  std::string job{};
  uint64_t run = 0;  // the same on all ranks of a job, and different for the next one
};

struct Event {
  EventKind kind{};
  uint8_t detail = 0;
  uint16_t session = 0;
  TimePoint at{};
  uint64_t step = 0;
  uint32_t name = 0;  // of Ring::nameOf(); 0: no name
  uint32_t slice = 0;
  uint32_t peer = kNobody;
  uint32_t bytes = 0;  // or the number of a text
};

class Ring final {
 public:
  static constexpr size_t kLeastBytes = size_t{1} << 16;

  // Takes about `bytes` of memory, which are given to the process page by page as they are used.
  // REQUIRES: bytes >= kLeastBytes
  static Result<std::unique_ptr<Ring>> inMemory(const About& about, size_t bytes);
  // Maps a new file of this user alone, in place of what has its name, and takes its space on the
  // disk at once.
  static Result<std::unique_ptr<Ring>> inFile(const About& about, size_t bytes,
                                              const std::string& path);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  void add(const Event& event) noexcept;
  // Keeps a text, cut to kMostTextBytes, until many more have come. Returns what an event keeps of
  // it.
  uint32_t addText(std::string_view text) noexcept;
  // Returns the number of a name; 0 if there is no room for it. Not in a signal handler.
  uint32_t nameOf(std::string_view name);

  void setSaved(TimePoint at) noexcept {
    set(kSaved, static_cast<uint64_t>(at.time_since_epoch().count()));
  }
  void setState(RunState state) noexcept { set(kPidAndState, wordOf(pid_, uint32_t(state))); }

  // Returns the words of the file, for readers that load each atomically.
  std::span<uint64_t> words() const { return words_; }

 private:
  Ring(std::span<uint64_t> words, const About& about);
  static Result<std::span<uint64_t>> map(size_t bytes, int fd);
  static std::atomic_ref<uint64_t> at(uint64_t& word) { return std::atomic_ref(word); }
  void set(size_t word, uint64_t value) noexcept {
    at(words_[word]).store(value, std::memory_order_relaxed);
  }
  void setText(size_t word, std::string_view text) noexcept;

  const std::span<uint64_t> words_;
  const uint32_t pid_;
  // Places and sizes of the parts, kept here since the words of a file may be changed by others.
  size_t namesAt_ = 0;
  size_t namesWords_ = 0;
  size_t textsAt_ = 0;
  size_t texts_ = 0;
  size_t recordsAt_ = 0;
  size_t records_ = 0;
  struct Names {
    std::map<std::string, uint32_t, std::less<>> numbers;
    size_t used = 0;  // words
  };
  base::Guarded<Names> names_;
};

// Writes words to a file of this user alone, through loads of whole words, so that other threads may
// go on. Words that are zero take no room on the disk. Returns 0 or an errno. Calls only what is
// safe in a signal handler.
int writeWords(const char* path, std::span<uint64_t> words) noexcept;

}  // namespace sluice::flight
