#include <tests/device/runtime/two_mappings.h>

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace sluice::pretend {

namespace {

constexpr size_t kPage = 4096;

[[noreturn]] void failMapping(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

}  // namespace

TwoMappings::TwoMappings(size_t bytes) : bytes_(bytes) {
  const int file = ::memfd_create("pretend", MFD_CLOEXEC);
  if (file < 0) failMapping("memfd_create");
  if (::ftruncate(file, static_cast<off_t>(bytes)) != 0) failMapping("ftruncate");
  void* closed = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (closed == MAP_FAILED) failMapping("mmap");
  void* open = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (open == MAP_FAILED) failMapping("mmap");
  ::close(file);  // the mappings keep it
  // A core dump need not hold the memory twice. A forked child has nothing to do with it.
  ::madvise(closed, bytes, MADV_DONTDUMP);
  ::madvise(open, bytes, MADV_DONTFORK);
  closed_ = reinterpret_cast<uintptr_t>(closed);
  open_ = static_cast<std::byte*>(open);
}

TwoMappings::~TwoMappings() {
  ::munmap(open_, bytes_);
  ::munmap(reinterpret_cast<void*>(closed_), bytes_);
}

void TwoMappings::forget(uintptr_t address, size_t bytes) {
  const uintptr_t first = (address + kPage - 1) / kPage * kPage;
  const uintptr_t last = (address + bytes) / kPage * kPage;
  if (first < last) ::madvise(reach(first), last - first, MADV_REMOVE);
}

}  // namespace sluice::pretend
