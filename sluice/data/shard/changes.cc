#include <sluice/data/shard/changes.h>

#include <bit>

namespace sluice::shard {
namespace {

constexpr uint32_t kWordBits = 64;

}  // namespace

Changes::Changes(size_t workers, size_t elements)
    : elements_(elements),
      marks_(workers, std::vector<uint64_t>((elements + kWordBits - 1) / kWordBits)) {}

void Changes::mark(std::span<const uint32_t> places) {
  // A bit for each worker and element takes a 32nd of the parameters' memory per worker. Lists
  // of places would grow without end for a worker that does not ask.
  for (auto& words : marks_) {
    for (const uint32_t place : places)
      words[place / kWordBits] |= uint64_t{1} << (place % kWordBits);
  }
}

void Changes::markAll() {
  for (auto& words : marks_) {
    for (size_t place = 0; place < elements_; ++place)
      words[place / kWordBits] |= uint64_t{1} << (place % kWordBits);
  }
}

std::vector<uint32_t> Changes::take(size_t worker) {
  std::vector<uint32_t> places;
  auto& words = marks_[worker];
  for (size_t w = 0; w < words.size(); ++w) {
    // Only set bits are visited, each found and cleared in one instruction: most words of a
    // sparse update are zero.
    for (; words[w] != 0; words[w] &= words[w] - 1) {
      places.push_back(static_cast<uint32_t>(w * kWordBits) +
                       static_cast<uint32_t>(std::countr_zero(words[w])));
    }
  }
  return places;
}

}  // namespace sluice::shard
