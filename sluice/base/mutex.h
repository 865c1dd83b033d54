// A mutex that clang's -Wthread-safety understands, and Guarded<T>, a value that can only be
// reached under its lock. Prefer confining an object to a loop (loop.h); these are for data that
// threads truly share.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>

#include <sluice/base/clock.h>

#if defined(__clang__)
#define SLUICE_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define SLUICE_THREAD_ANNOTATION(x)
#endif
#define SLUICE_CAPABILITY(x) SLUICE_THREAD_ANNOTATION(capability(x))
#define SLUICE_SCOPED_CAPABILITY SLUICE_THREAD_ANNOTATION(scoped_lockable)
#define SLUICE_GUARDED_BY(x) SLUICE_THREAD_ANNOTATION(guarded_by(x))
#define SLUICE_REQUIRES(...) SLUICE_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define SLUICE_ACQUIRE(...) SLUICE_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define SLUICE_RELEASE(...) SLUICE_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define SLUICE_NO_THREAD_SAFETY_ANALYSIS SLUICE_THREAD_ANNOTATION(no_thread_safety_analysis)

namespace sluice::base {

class SLUICE_CAPABILITY("mutex") Mutex final {
 public:
  void lock() SLUICE_ACQUIRE() { mutex_.lock(); }
  void unlock() SLUICE_RELEASE() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class SLUICE_SCOPED_CAPABILITY Lock final {
 public:
  explicit Lock(Mutex& mutex) SLUICE_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~Lock() SLUICE_RELEASE() { mutex_.unlock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits for a condition over data that a Mutex guards. Every wait has a time limit.
class Condition final {
 public:
  void notifyAll() { condition_.notify_all(); }

  // Waits until `holds()` or until `until`; returns whether it holds. `holds` runs with the mutex
  // held.
  template <typename Holds>
  bool waitUntil(Mutex& mutex, TimePoint until, Holds&& holds) SLUICE_REQUIRES(mutex) {
    // The wait uses real time on purpose: a thread that blocks cannot be stepped by a manual clock.
    return condition_.wait_until(mutex, until, std::forward<Holds>(holds));
  }

 private:
  std::condition_variable_any condition_;
};

// A T that can only be reached while its lock is held.
template <typename T>
class Guarded final {
 public:
  Guarded() = default;
  explicit Guarded(T value) : value_(std::move(value)) {}

  // Runs f(value) under the lock and returns what f returns. Keep f short; never call user code
  // from it.
  template <typename F>
  decltype(auto) with(F&& f) {
    Lock lock(mutex_);
    return std::forward<F>(f)(value_);
  }
  template <typename F>
  decltype(auto) with(F&& f) const {
    Lock lock(mutex_);
    return std::forward<F>(f)(value_);
  }

 private:
  mutable Mutex mutex_;
  T value_ SLUICE_GUARDED_BY(mutex_){};
};

}  // namespace sluice::base
