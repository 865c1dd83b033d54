// fork() copies a process's descriptors and memory, but only one of its threads. A child of a rank
// (a DataLoader's worker, os.fork()) must therefore neither keep a connection of the rank open nor
// wait for a thread that it does not have. When this process forks, the child closes every
// descriptor that an Fd owns (fd.h), and objects that were made before the fork find out by their
// ProcessMark.
//
// Code that forks to start another program and hands descriptors over calls _Fork(), which skips
// all of this.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace sluice::base {

namespace detail {
// The number of forks between the process that loaded this code and the calling process. A fork is
// an event of the whole process, so this cannot belong to an object.
inline std::atomic<uint32_t> forkDepth{0};
}  // namespace detail

// Remembers in which process an object was made. Any thread; a value.
class ProcessMark final {
 public:
  ProcessMark() : depth_(detail::forkDepth.load(std::memory_order_relaxed)) {}

  // True iff the object was made before this process was forked: its threads are the parent's.
  bool isInherited() const { return depth_ != detail::forkDepth.load(std::memory_order_relaxed); }

 private:
  uint32_t depth_;
};

// Adds a descriptor to those that a forked child closes, or takes it off the list. Any thread;
// without a lock, so that fork() never waits here. Descriptors of 2^20 and more, which Linux does
// not give out by default, are ignored.
void closeInForkedChildren(int fd);
void keepInForkedChildren(int fd);

// Destroys an object, except in a forked child of the process that made it. There the object may be
// half changed by a thread that is gone, and its destructor may wait for that thread, so it stays
// as it is.
template <typename T>
class DeleteAtHome final {
 public:
  DeleteAtHome() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): so that a std::unique_ptr can be handed over
  DeleteAtHome(const std::default_delete<T>& /*plain*/) {}

  void operator()(T* object) const {
    if (!mark_.isInherited()) delete object;
  }

 private:
  ProcessMark mark_;
};

template <typename T>
using HomePtr = std::unique_ptr<T, DeleteAtHome<T>>;

}  // namespace sluice::base
