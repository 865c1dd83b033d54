#include <tests/device/runtime/device_memory.h>

#include <algorithm>
#include <cstring>

namespace sluice::pretend {

namespace {

// Blocks start at addresses that suit every kernel, and are of few sizes so that they fit again.
size_t roundedBytes(size_t bytes) {
  const size_t step = bytes < (size_t{1} << 20) ? 512 : size_t{1} << 16;
  return std::max((bytes + step - 1) / step * step, step);
}

}  // namespace

DeviceMemory::DeviceMemory(size_t devices, size_t bytesPerDevice)
    : bytesPerDevice_(bytesPerDevice),
      mappings_(devices * bytesPerDevice),
      used_(devices, 0),
      peak_(devices, 0) {
  for (size_t device = 0; device < devices; ++device) {
    ranges_.emplace_back(mappings_.begin() + device * bytesPerDevice, bytesPerDevice);
  }
}

std::optional<uintptr_t> DeviceMemory::allocate(size_t device, size_t bytes, StreamIndex stream,
                                                const Schedule& schedule) {
  collect(schedule);
  const size_t rounded = roundedBytes(bytes);
  std::optional<uintptr_t> block;
  // The most recently freed block comes first: a program that still uses it is found soonest.
  const auto [first, last] = cached_.equal_range(Shelf{device, stream, rounded});
  if (first != last) {
    const auto newest = std::prev(last);
    block = newest->second;
    cached_.erase(newest);
  } else {
    block = ranges_[device].take(rounded);
    if (!block) return std::nullopt;
  }
  blocks_[*block] = {device, rounded, stream, {}};
  used_[device] += rounded;
  peak_[device] = std::max(peak_[device], used_[device]);
  return block;
}

std::optional<DeviceMemory::Freed> DeviceMemory::free(uintptr_t address, const Schedule& schedule) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) return std::nullopt;
  const Block block = std::move(found->second);
  blocks_.erase(found);
  used_[block.device] -= block.bytes;
  if (block.others.empty()) {
    cached_.emplace(Shelf{block.device, block.stream, block.bytes}, address);
    return Freed{address, block.bytes, block.stream};
  }
  Waiting waiting{address, block.device, block.bytes, block.stream, {}};
  waiting.places.push_back(schedule.end(block.stream));
  for (const StreamIndex other : block.others) waiting.places.push_back(schedule.end(other));
  waiting_.push_back(std::move(waiting));
  return std::nullopt;
}

void DeviceMemory::recordStream(uintptr_t address, StreamIndex stream) {
  const std::optional<uintptr_t> start = blockOf(address);
  if (!start) return;
  Block& block = blocks_[*start];
  if (stream != block.stream && std::ranges::find(block.others, stream) == block.others.end()) {
    block.others.push_back(stream);
  }
}

void DeviceMemory::emptyCache(const Schedule& schedule) {
  collect(schedule);
  for (const auto& [shelf, block] : cached_) {
    const auto [device, stream, bytes] = shelf;
    mappings_.forget(block, bytes);
    ranges_[device].giveBack(block, bytes);
  }
  cached_.clear();
}

std::optional<uintptr_t> DeviceMemory::blockOf(uintptr_t address) const {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const auto& [start, block] = *std::prev(after);
  return address < start + block.bytes ? std::optional(start) : std::nullopt;
}

void DeviceMemory::collect(const Schedule& schedule) {
  std::erase_if(waiting_, [&](const Waiting& freed) {
    const bool isPassed = std::ranges::all_of(
        freed.places, [&](const Place& place) { return schedule.isDone(place); });
    if (isPassed) {
      std::memset(mappings_.reach(freed.block), 0xff, freed.bytes);
      cached_.emplace(Shelf{freed.device, freed.stream, freed.bytes}, freed.block);
    }
    return isPassed;
  });
}

}  // namespace sluice::pretend
