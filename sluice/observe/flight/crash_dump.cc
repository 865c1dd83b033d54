#include <sluice/observe/flight/crash_dump.h>

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <thread>

#include <sluice/base/check.h>
#include <sluice/base/mutex.h>

namespace sluice::flight {
namespace {

// These are globals, since a signal handler can reach nothing else. A process seldom has more than
// one job; tests have some.
constexpr size_t kMost = 64;
std::array<std::atomic<const CrashTarget*>, kMost> targets{};
std::atomic<int> handlersAtWork{0};  // who must not lose the target that they look at
static_assert(std::atomic<const CrashTarget*>::is_always_lock_free);

struct Taken {
  size_t registered = 0;
  bool isAbortTaken = false;
};
base::Guarded<Taken>& taken() {
  static auto& all = *new base::Guarded<Taken>();  // outlives static objects of other files
  return all;
}
struct sigaction beforeAbort{};  // written before the handler is set

TimePoint steadyNow() {
  return std::chrono::steady_clock::now();  // clock_gettime() is safe in a handler
}

void saveAll(EventKind why, std::string_view text) {
  const int error = errno;
  handlersAtWork.fetch_add(1);
  for (const auto& place : targets) {
    const CrashTarget* const target = place.load();
    if (target == nullptr || target->process.isInherited()) continue;
    const uint32_t kept = text.empty() ? 0 : target->ring->addText(text);
    target->ring->add({.kind = why, .at = steadyNow(), .bytes = kept});
    if (why == EventKind::kAborted) target->ring->setState(RunState::kFailed);
    if (!target->path.empty() && writeWords(target->path.c_str(), target->ring->words()) != 0)
      continue;
    (void)!::write(STDERR_FILENO, target->words.data(), target->words.size());
  }
  handlersAtWork.fetch_sub(1);
  errno = error;
}

void onAbort(int signal) {
  saveAll(EventKind::kAborted, {});
  // The signal is blocked until this returns. Then the handler that was there before gets it, or
  // the process ends as it would have.
  ::sigaction(signal, &beforeAbort, nullptr);
  ::raise(signal);
}

void onAsked(int /*signal*/) {
  saveAll(EventKind::kAsked, {});
}

// The handler of SIGABRT says that the process aborts, and this why.
void onFailedCheck(std::string_view text) {
  handlersAtWork.fetch_add(1);
  for (const auto& place : targets) {
    const CrashTarget* const target = place.load();
    if (target == nullptr || target->process.isInherited()) continue;
    target->ring->add(
        {.kind = EventKind::kFailed, .at = steadyNow(), .bytes = target->ring->addText(text)});
  }
  handlersAtWork.fetch_sub(1);
}

void takeAbort(Taken& state) {
  if (state.isAbortTaken) return;
  struct sigaction found{};
  if (::sigaction(SIGABRT, nullptr, &found) != 0 || found.sa_handler == SIG_IGN) return;
  beforeAbort = found;
  struct sigaction save{};
  save.sa_handler = &onAbort;
  save.sa_flags = static_cast<int>(SA_ONSTACK);
  state.isAbortTaken = ::sigaction(SIGABRT, &save, nullptr) == 0;
  base::setCheckWitness(&onFailedCheck);
}

// A handler that came after ours stays, and may call ours, which then finds no ring.
void giveAbortBack(Taken& state) {
  struct sigaction found{};
  if (!state.isAbortTaken || ::sigaction(SIGABRT, nullptr, &found) != 0) return;
  if ((found.sa_flags & SA_SIGINFO) != 0 || found.sa_handler != &onAbort) return;
  ::sigaction(SIGABRT, &beforeAbort, nullptr);
  state.isAbortTaken = false;
}

}  // namespace

CrashDump::CrashDump(CrashTarget target) : target_(std::move(target)), place_(kMost) {
  taken().with([&](Taken& state) {
    for (size_t place = 0; place < kMost && place_ == kMost; ++place) {
      if (targets[place].load() != nullptr) continue;
      targets[place] = &target_;
      place_ = place;
    }
    if (place_ == kMost) return;
    ++state.registered;
    takeAbort(state);
  });
}

CrashDump::~CrashDump() {
  if (place_ == kMost) return;
  taken().with([&](Taken& state) {
    targets[place_] = nullptr;
    if (--state.registered == 0) giveAbortBack(state);
  });
  // A handler that runs in another thread may still read this. It takes milliseconds, or the
  // process ends meanwhile.
  while (handlersAtWork.load() != 0) std::this_thread::yield();
}

bool CrashDump::saveOn(int signal) {
  return taken().with([&](Taken&) {
    struct sigaction found{};
    if (::sigaction(signal, nullptr, &found) != 0) return false;
    const bool isOurs = (found.sa_flags & SA_SIGINFO) == 0 && found.sa_handler == &onAsked;
    if (isOurs) return true;
    if ((found.sa_flags & SA_SIGINFO) != 0 || found.sa_handler != SIG_DFL) return false;
    struct sigaction save{};
    save.sa_handler = &onAsked;
    save.sa_flags = static_cast<int>(SA_RESTART | SA_ONSTACK);
    return ::sigaction(signal, &save, nullptr) == 0;
  });
}

}  // namespace sluice::flight
