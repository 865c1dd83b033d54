#include <tests/device/runtime/pinned_memory.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace sluice::pretend {

void* PinnedMemory::allocate(size_t bytes, const Schedule& schedule) {
  const size_t rounded = std::bit_ceil(std::max(bytes, size_t{512}));
  Block block;
  const auto [first, last] = cached_.equal_range(rounded);
  const auto found =
      std::find_if(first, last, [&](const auto& entry) { return isFree(entry.second, schedule); });
  if (found != last) {
    block = std::move(found->second);
    cached_.erase(found);
    std::memset(block.memory.get(), 0xff, rounded);  // what it held is gone
  } else {
    block.memory.reset(static_cast<std::byte*>(::operator new[](rounded, kAlignment)));
    block.bytes = rounded;
  }
  block.wanted = bytes;
  block.works.clear();
  used_ += bytes;
  peak_ = std::max(peak_, used_);
  std::byte* address = block.memory.get();
  blocks_.emplace(address, std::move(block));
  return address;
}

void PinnedMemory::free(void* address) {
  const auto found = blocks_.find(static_cast<std::byte*>(address));
  if (found == blocks_.end()) return;
  Block block = std::move(found->second);
  blocks_.erase(found);
  used_ -= block.wanted;
  const size_t bytes = block.bytes;
  cached_.emplace(bytes, std::move(block));
}

void PinnedMemory::emptyCache(const Schedule& schedule) {
  std::erase_if(cached_, [&](const auto& entry) { return isFree(entry.second, schedule); });
}

void* PinnedMemory::blockOf(const void* address) const {
  const auto* byte = static_cast<const std::byte*>(address);
  auto after = blocks_.upper_bound(byte);
  if (after == blocks_.begin()) return nullptr;
  const Block& block = std::prev(after)->second;
  return byte < block.memory.get() + block.bytes ? block.memory.get() : nullptr;
}

bool PinnedMemory::contains(const void* address, size_t bytes) const {
  const auto* start = static_cast<const std::byte*>(blockOf(address));
  return start != nullptr &&
         static_cast<const std::byte*>(address) + bytes <= start + blocks_.at(start).bytes;
}

void PinnedMemory::use(void* address, Place place, bool writes, const Schedule& schedule) {
  Block& block = blocks_.at(static_cast<std::byte*>(address));
  std::erase_if(block.works, [&](const Work& work) { return schedule.isDone(work.place); });
  block.works.push_back({place, writes});
}

bool PinnedMemory::isWritten(void* address, const Schedule& schedule) const {
  const Block& block = blocks_.at(static_cast<std::byte*>(address));
  return std::ranges::any_of(
      block.works, [&](const Work& work) { return work.writes && !schedule.isDone(work.place); });
}

bool PinnedMemory::isFree(const Block& block, const Schedule& schedule) {
  return std::ranges::all_of(block.works,
                             [&](const Work& work) { return schedule.isDone(work.place); });
}

}  // namespace sluice::pretend
