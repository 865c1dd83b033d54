// One loop, compiled once per instruction set and chosen when the program runs, so that one binary
// is fast on every CPU and needs no particular CPU. A loop body says what to do per element in
// plain C++; run<Body>() compiles it for each Level. No level may change a bit: there are no
// reductions inside a loop, no fused multiply-add (-ffp-contract=off) and no approximate
// instructions, so a wider register only does more elements at once. Pure functions, any thread.
//
// Not GCC's target_clones: its ifuncs run before the sanitizers' start-up and crash there, and a
// test could not ask for one level by name.
#pragma once

#include <cfloat>
#include <cstdint>
#include <span>
#include <string_view>

#include <sluice/base/check.h>

static_assert(FLT_EVAL_METHOD == 0,
              "sums must round after every operation, or CPUs would disagree");

// A loop body must be inlined into the function of its level, also in debug builds: only there does
// the compiler know which instructions it may use.
#define SLUICE_KERNEL [[gnu::always_inline]] inline

namespace sluice::kernel {

enum class Level : uint8_t { kPortable, kAvx2, kAvx512 };

std::string_view name(Level level);

// The levels this CPU can run, kPortable first, the best last.
std::span<const Level> levels();
Level bestLevel();

namespace detail {
template <typename Body, typename... Args>
void runPortable(Args... args) {
  Body::run(args...);
}
#if defined(__x86_64__)
template <typename Body, typename... Args>
[[gnu::target("avx2")]] void runAvx2(Args... args) {
  Body::run(args...);
}
template <typename Body, typename... Args>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void runAvx512(Args... args) {
  Body::run(args...);
}
#endif
}  // namespace detail

// Calls Body::run(args...), a static SLUICE_KERNEL function, as compiled for `level`. Arguments are
// passed by value: pointers, counts and scalars. REQUIRES: `level` is in levels()
template <typename Body, typename... Args>
void run(Level level, Args... args) {
  switch (level) {
    case Level::kPortable: return detail::runPortable<Body>(args...);
#if defined(__x86_64__)
    case Level::kAvx2: return detail::runAvx2<Body>(args...);
    case Level::kAvx512: return detail::runAvx512<Body>(args...);
#else
    case Level::kAvx2:
    case Level::kAvx512: break;
#endif
  }
  SLUICE_CHECK(false, name(level));
}

}  // namespace sluice::kernel
