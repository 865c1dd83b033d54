// GCC 12 gave std::condition_variable::wait() a new version, GLIBCXX_3.4.30, without changing what it
// does. Distributions of 2021 (RHEL 9, Amazon Linux 2023) have libraries up to 3.4.29, and would
// refuse to load a file that asks for it. The linker sends all calls here (--wrap), and this one asks
// for the version of 2004, which every library has.
extern "C" {
void sluice_older_wait(void* self, void* lock);
__asm__(
    ".symver sluice_older_wait,"
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");

__attribute__((visibility("hidden"))) void
__wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(  // NOLINT: the linker's name
    void* self, void* lock) {
  sluice_older_wait(self, lock);
}
}
