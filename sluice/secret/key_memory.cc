#include <sluice/secret/key_memory.h>

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <new>

#include <sluice/base/check.h>
#include <sluice/secret/key.h>
#include <sluice/secret/sodium.h>

namespace sluice::secret {
namespace {

constexpr size_t kPlacesPerWord = 64;
constexpr size_t kWordsPerBlock = 32;
constexpr size_t kBlockBytes = kWordsPerBlock * kPlacesPerWord * kKeyBytes;  // 64 KiB
constexpr size_t kMostBlocks = 256;  // for half a million keys; a connection has about five

// Blocks are made when they are needed and stay until the process ends. Only pages that were
// written to are backed by memory.
struct Block {
  std::atomic<std::byte*> memory{nullptr};
  std::array<std::atomic<uint64_t>, kWordsPerBlock> taken{};  // a bit for each place
};
constinit std::array<Block, kMostBlocks> blocks{};

// Returns the memory of a block, and makes it first if nobody has.
std::byte* memoryOf(Block& block) {
  std::byte* const known = block.memory.load();
  if (known != nullptr) return known;
  void* const made =
      ::mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) throw std::bad_alloc();
  // Without this advice everything still works.
  [[maybe_unused]] const int advised = ::madvise(made, kBlockBytes, MADV_DONTDUMP);
  std::byte* first = nullptr;
  if (block.memory.compare_exchange_strong(first, static_cast<std::byte*>(made)))
    return static_cast<std::byte*>(made);
  ::munmap(made, kBlockBytes);  // another thread was faster
  return first;
}

}  // namespace

std::byte* takeKeyPlace() {
  for (Block& block : blocks) {
    std::byte* const memory = memoryOf(block);
    for (size_t word = 0; word < kWordsPerBlock; ++word) {
      uint64_t taken = block.taken[word].load();
      while (~taken != 0) {
        const int place = std::countr_one(taken);
        if (!block.taken[word].compare_exchange_weak(taken, taken | uint64_t{1} << place)) continue;
        return memory + (word * kPlacesPerWord + static_cast<size_t>(place)) * kKeyBytes;
      }
    }
  }
  throw std::bad_alloc();
}

void giveBackKeyPlace(std::byte* place) noexcept {
  sodium_memzero(place, kKeyBytes);
  for (Block& block : blocks) {
    std::byte* const memory = block.memory.load();
    if (memory == nullptr) break;
    if (place < memory || place >= memory + kBlockBytes) continue;
    const size_t index = static_cast<size_t>(place - memory) / kKeyBytes;
    block.taken[index / kPlacesPerWord].fetch_and(~(uint64_t{1} << (index % kPlacesPerWord)));
    return;
  }
  SLUICE_CHECK(false);
}

}  // namespace sluice::secret
