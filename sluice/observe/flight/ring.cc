#include <sluice/observe/flight/ring.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <sluice/base/check.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/text.h>
#include <sluice/observe/trace/wall_clock.h>

namespace sluice::flight {
namespace {

constexpr size_t kWord = sizeof(uint64_t);
// Reasons are rare: a job that loses a member each minute keeps those of two hours.
constexpr size_t kTextSlots = 128;
constexpr size_t kNamesShare = 8;  // one of so many parts of the memory is for names

// Opens a file for this user alone; returns -1 and sets errno if it cannot be. Opening a file that
// is there already must not follow a link or fill a file that another user would read.
int openOwn(const char* path, int access) noexcept {
  const int fd = ::open(path, access | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  struct stat found{};
  if (::fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_uid == ::geteuid() &&
      found.st_nlink == 1 && ::fchmod(fd, 0600) == 0) {
    return fd;
  }
  ::close(fd);
  errno = EPERM;
  return -1;
}

}  // namespace

Result<std::span<uint64_t>> Ring::map(size_t bytes, int fd) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) return base::fromErrno("cannot map the memory of the flight recorder");
  return std::span(static_cast<uint64_t*>(memory), bytes / kWord);
}

Result<std::unique_ptr<Ring>> Ring::inMemory(const About& about, size_t bytes) {
  SLUICE_CHECK(bytes >= kLeastBytes, bytes);
  SLUICE_ASSIGN_OR_RETURN(const auto words, map(bytes / kWord * kWord, -1));
  return std::unique_ptr<Ring>(new Ring(words, about));
}

Result<std::unique_ptr<Ring>> Ring::inFile(const About& about, size_t bytes,
                                           const std::string& path) {
  SLUICE_CHECK(bytes >= kLeastBytes, bytes);
  const size_t whole = bytes / kWord * kWord;
  // A leftover may still be the memory of another process, so it is replaced and not cut.
  ::unlink(path.c_str());
  const net::Fd fd(openOwn(path.c_str(), O_RDWR | O_EXCL));
  if (!fd.valid()) return base::fromErrno("cannot make " + path);
  // The space is taken now: a store to a page that a full disk has no room for would end the
  // process.
  if (const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(whole)); error != 0) {
    ::unlink(path.c_str());
    return base::fromErrno("no room for " + path, error);
  }
  SLUICE_ASSIGN_OR_RETURN(const auto words, map(whole, fd.get()));
  return std::unique_ptr<Ring>(new Ring(words, about));
}

Ring::Ring(std::span<uint64_t> words, const About& about)
    : words_(words), pid_(static_cast<uint32_t>(::getpid())) {
  namesAt_ = kHeaderWords;
  namesWords_ = words.size() / kNamesShare;
  textsAt_ = namesAt_ + namesWords_;
  texts_ = std::min(kTextSlots, words.size() / kNamesShare / kTextWords);
  recordsAt_ = textsAt_ + texts_ * kTextWords;
  records_ = (words.size() - recordsAt_) / kRecordWords;
  const trace::WallClock wall = trace::readWallClock();
  set(kVersionAndHeaderWords, wordOf(kFileVersion, kHeaderWords));
  set(kRankAndWorld, wordOf(index(about.rank), about.worldSize));
  setState(RunState::kRunning);
  set(kRun, about.run);
  set(kBegan, static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()));
  set(kWallAhead, static_cast<uint64_t>(wall.ahead.count()));
  set(kWallUncertainty, static_cast<uint64_t>(wall.uncertainty.count()));
  set(kNamesAt, namesAt_);
  set(kNamesWords, namesWords_);
  set(kTextsAt, textsAt_);
  set(kTexts, texts_);
  set(kRecordsAt, recordsAt_);
  set(kRecords, records_);
  setText(kJobText, about.job);
  std::array<char, kHeaderTextWords * kWord + 1> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) setText(kHostText, host.data());
  // Last, so that a file without it was never begun.
  at(words_[kMagicWord]).store(kMagic, std::memory_order_release);
}

Ring::~Ring() {
  ::munmap(words_.data(), words_.size_bytes());
}

void Ring::setText(size_t word, std::string_view text) noexcept {
  text = text.substr(0, kHeaderTextWords * kWord);
  for (size_t i = 0; i < text.size(); i += kWord) {
    uint64_t value = 0;
    std::memcpy(&value, text.data() + i, std::min(kWord, text.size() - i));
    set(word + i / kWord, value);
  }
}

void Ring::add(const Event& event) noexcept {
  const uint64_t number = at(words_[kRecordsNext]).fetch_add(1, std::memory_order_relaxed);
  const std::span<uint64_t> record =
      words_.subspan(recordsAt_ + number % records_ * kRecordWords, kRecordWords);
  // A reader believes a record whose head has the right number. So the old head goes before the
  // first field changes, and the new one comes after the last.
  at(record[0]).store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const auto store = [&](size_t word, uint64_t value) {
    at(record[word]).store(value, std::memory_order_relaxed);
  };
  store(1, static_cast<uint64_t>(event.at.time_since_epoch().count()));
  store(2, event.step);
  store(3, wordOf(event.name, event.slice));
  store(4, wordOf(event.peer, event.bytes));
  const uint32_t what =
      uint32_t(event.kind) | uint32_t{event.detail} << 8 | uint32_t{event.session} << 16;
  at(record[0]).store(wordOf(static_cast<uint32_t>(number + 1), what), std::memory_order_release);
}

uint32_t Ring::addText(std::string_view text) noexcept {
  text = text.substr(0, kMostTextBytes);
  const uint64_t number = at(words_[kTextsNext]).fetch_add(1, std::memory_order_relaxed);
  const std::span<uint64_t> slot =
      words_.subspan(textsAt_ + number % texts_ * kTextWords, kTextWords);
  at(slot[0]).store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  for (size_t i = 0; i < text.size(); i += kWord) {
    uint64_t value = 0;
    std::memcpy(&value, text.data() + i, std::min(kWord, text.size() - i));
    at(slot[1 + i / kWord]).store(value, std::memory_order_relaxed);
  }
  const auto kept = static_cast<uint32_t>(number + 1);
  at(slot[0]).store(wordOf(kept, static_cast<uint32_t>(text.size())), std::memory_order_release);
  return kept;
}

uint32_t Ring::nameOf(std::string_view name) {
  name = name.substr(0, kMostNameBytes);
  return names_.with([&](Names& names) -> uint32_t {
    if (const auto found = names.numbers.find(name); found != names.numbers.end())
      return found->second;
    const size_t words = 1 + (name.size() + kWord - 1) / kWord;
    if (names.used + words > namesWords_) return 0;
    const size_t place = namesAt_ + names.used;
    for (size_t i = 0; i < name.size(); i += kWord) {
      uint64_t value = 0;
      std::memcpy(&value, name.data() + i, std::min(kWord, name.size() - i));
      set(place + 1 + i / kWord, value);
    }
    set(place, name.size());
    names.used += words;
    at(words_[kNamesUsed]).store(names.used, std::memory_order_release);
    const auto number = static_cast<uint32_t>(names.numbers.size() + 1);
    names.numbers.emplace(name, number);
    return number;
  });
}

int writeWords(const char* path, std::span<uint64_t> words) noexcept {
  constexpr size_t kChunk = 512;  // words: a handler may run on a small stack
  const int fd = openOwn(path, O_WRONLY);
  if (fd < 0) return errno;
  int error = ::ftruncate(fd, 0) == 0 ? 0 : errno;
  std::array<uint64_t, kChunk> chunk;  // NOLINT(*-member-init): filled below
  for (size_t first = 0; first < words.size() && error == 0; first += kChunk) {
    const size_t count = std::min(kChunk, words.size() - first);
    bool isEmpty = true;
    for (size_t i = 0; i < count; ++i) {
      chunk[i] = std::atomic_ref(words[first + i]).load(std::memory_order_relaxed);
      isEmpty = isEmpty && chunk[i] == 0;
    }
    if (isEmpty) continue;
    const char* bytes = reinterpret_cast<const char*>(chunk.data());
    for (size_t written = 0; written < count * kWord && error == 0;) {
      const ssize_t now = ::pwrite(fd, bytes + written, count * kWord - written,
                                   static_cast<off_t>(first * kWord + written));
      if (now > 0) written += static_cast<size_t>(now);
      if (now <= 0 && errno != EINTR) error = errno;
    }
  }
  if (error == 0 && ::ftruncate(fd, static_cast<off_t>(words.size() * kWord)) != 0) error = errno;
  ::close(fd);
  return error;
}

}  // namespace sluice::flight
