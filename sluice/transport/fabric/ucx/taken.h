// Counts the messages of a lane that have been taken. They are taken in any order (a long payload
// is still coming while the next message is there already); the sender is told of the unbroken run
// from the start. One owner.
#pragma once

#include <cstdint>
#include <set>

namespace sluice::fabric::ucx {

class Taken final {
 public:
  void mark(uint64_t sequence) {
    beyond_.insert(sequence);
    while (!beyond_.empty() && *beyond_.begin() == upTo_) {
      beyond_.erase(beyond_.begin());
      ++upTo_;
    }
  }
  uint64_t upTo() const { return upTo_; }  // all before this number are taken

 private:
  uint64_t upTo_ = 0;
  std::set<uint64_t> beyond_;
};

}  // namespace sluice::fabric::ucx
