#include <sluice/data/kernel/level.h>

#include <array>

namespace sluice::kernel {
namespace {

struct Available {
  std::array<Level, 3> levels{Level::kPortable};
  size_t count = 1;
};

Available detect() {
  Available found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  // GCC and Clang also ask the operating system whether it saves the wider registers.
  // Levels ascend, and each contains the one before, so the first that is missing ends the
  // search.
  if (!__builtin_cpu_supports("avx2")) return found;
  found.levels[found.count++] = Level::kAvx2;
  // The code for this level may use all four groups (level.h), and some CPUs have only the
  // first.
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    found.levels[found.count++] = Level::kAvx512;
  }
#endif
  return found;
}

}  // namespace

std::string_view name(Level level) {
  switch (level) {
    case Level::kPortable: return "portable";
    case Level::kAvx2: return "avx2";
    case Level::kAvx512: return "avx512";
  }
  return "?";
}

std::span<const Level> levels() {
  static const Available kAvailable = detect();
  return std::span(kAvailable.levels).first(kAvailable.count);
}

Level bestLevel() {
  return levels().back();
}

}  // namespace sluice::kernel
