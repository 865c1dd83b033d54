// Hands items on one by one as they come, or, without overlap, all tensors' items together. Belongs
// to the fabric's loop.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace sluice::algorithms {

template <typename Item>
class Together final {
 public:
  // `atOnce`: how many items go on together, 1 for each by itself.
  explicit Together(size_t atOnce) : atOnce_(atOnce) {}

  // Returns the items that go on now, in the order in which they came.
  [[nodiscard]] std::vector<Item> add(const Item& item) {
    items_.push_back(item);
    return items_.size() < atOnce_ ? std::vector<Item>() : std::exchange(items_, {});
  }

 private:
  const size_t atOnce_;
  std::vector<Item> items_;
};

}  // namespace sluice::algorithms
