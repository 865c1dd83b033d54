// Distributions of 2021 (RHEL 9, Amazon Linux 2023) have GCC 11's C++ library, with versions up to
// GLIBCXX_3.4.29, and would refuse to load a file that asks for a later one. The linker sends all
// calls of two functions of GCC 12's here (--wrap).
#include <cstdio>
#include <cstdlib>

extern "C" {
// GCC 12 gave std::condition_variable::wait() a new version without changing what it does. This one
// asks for the version of 2004, which every library has.
void sluice_older_wait(void* self, void* lock);
__asm__(
    ".symver sluice_older_wait,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

__attribute__((visibility("hidden"))) void
__wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(  // NOLINT: the linker's name
    void* self, void* lock) {
  sluice_older_wait(self, lock);
}

// std::__glibcxx_assert_fail(), which ends the process when a precondition of the library fails
// (_GLIBCXX_ASSERTIONS).
__attribute__((visibility("hidden"), noreturn)) void
__wrap__ZSt21__glibcxx_assert_failPKciS0_S0_(  // NOLINT: the linker's name
    const char* file, int line, const char* function, const char* condition) {
  std::fprintf(stderr, "%s:%d: %s: Assertion '%s' failed.\n", file, line, function, condition);
  std::abort();
}
}
