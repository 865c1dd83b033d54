#include <sluice/base/fork.h>

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstddef>

namespace sluice::base {
namespace {

constexpr size_t kBitsPerWord = 64;
constexpr size_t kMostDescriptors = size_t{1} << 20;  // fs.nr_open by default

// One bit per descriptor. Its pages are only backed by memory where a bit was set.
std::array<std::atomic<uint64_t>, kMostDescriptors / kBitsPerWord> owned{};

// Runs in the child before fork() returns there, so it makes only calls that are safe in a signal
// handler.
void closeOwned() {
  detail::forkDepth.fetch_add(1, std::memory_order_relaxed);
  for (size_t word = 0; word < owned.size(); ++word) {
    uint64_t bits = owned[word].load(std::memory_order_relaxed);
    // The table covers every descriptor that Linux gives out by default, but only words with a
    // bit set are touched: a fork of a process with few connections reads one page or two.
    if (bits == 0) continue;
    owned[word].store(0, std::memory_order_relaxed);
    for (; bits != 0; bits &= bits - 1)
      ::close(static_cast<int>(word * kBitsPerWord) + std::countr_zero(bits));
  }
}

[[maybe_unused]] const int kIsRegistered = ::pthread_atfork(nullptr, nullptr, &closeOwned);

bool isTracked(int fd) {
  return fd >= 0 && static_cast<size_t>(fd) < kMostDescriptors;
}

uint64_t bitOf(int fd) {
  return uint64_t{1} << (static_cast<size_t>(fd) % kBitsPerWord);
}

}  // namespace

void closeInForkedChildren(int fd) {
  // One word has the bits of many descriptors, which threads open and close at the same time,
  // hence an atomic operation and not a plain store.
  if (isTracked(fd)) owned[static_cast<size_t>(fd) / kBitsPerWord].fetch_or(bitOf(fd));
}

void keepInForkedChildren(int fd) {
  // This must come before the descriptor is closed. Afterwards its number may be another
  // file's, and a child would lose that file.
  if (isTracked(fd)) owned[static_cast<size_t>(fd) / kBitsPerWord].fetch_and(~bitOf(fd));
}

}  // namespace sluice::base
