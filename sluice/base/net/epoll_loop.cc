#include <sluice/base/net/epoll_loop.h>

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>
#include <system_error>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/base/thread.h>

namespace sluice::net {
namespace {

const base::RealClock kRealClock;

// epoll carries the fd and the generation of its watch, so that a late event for a closed
// descriptor is told from one for a new descriptor of the same number.
uint64_t packKey(int fd, uint64_t generation) {
  return generation << 32 | static_cast<uint32_t>(fd);
}
int fdOf(uint64_t key) {
  return static_cast<int>(key & 0xffffffff);
}
uint32_t generationOf(uint64_t key) {
  return static_cast<uint32_t>(key >> 32);
}

}  // namespace

EpollLoop::EpollLoop() : EpollLoop(kRealClock) {}

EpollLoop::EpollLoop(const Clock& clock)
    : clock_(clock),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wakeUp_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      status_(begin()) {
  if (!status_.isOk()) end();
}

Status EpollLoop::begin() {
  if (!epoll_.valid() || !wakeUp_.valid())
    return base::fromErrno("cannot open the two files that a loop needs; raise ulimit -n");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = packKey(wakeUp_.get(), 0);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeUp_.get(), &event) != 0)
    return base::fromErrno("epoll_ctl");
  // Reading takes the count off the descriptor, which then stays quiet until the next post().
  watches_[wakeUp_.get()] =
      std::make_shared<Watch>(Watch{[this](uint32_t) {
                                      uint64_t count = 0;
                                      [[maybe_unused]] const auto got =
                                          ::read(wakeUp_.get(), &count, sizeof count);
                                    },
                                    0});
  return base::ok();
}

bool EpollLoop::hasEnded() const {
  return isInherited() || inbox_.with([](const Inbox& inbox) { return inbox.closed; });
}

EpollLoop::~EpollLoop() {
  SLUICE_CHECK(isInherited() || thread_.load() == std::thread::id{} || inLoop());
}

void EpollLoop::post(Task task) {
  if (isInherited()) return;  // nobody would run it, and a thread that is gone may hold the lock
#ifndef NDEBUG
  if (const auto hook = taskHook.load()) task = hook(std::move(task));
#endif
  const bool wasEmpty = inbox_.with([&](Inbox& inbox) {
    if (inbox.closed)
      return false;  // `task` is destroyed unrun, outside the lock, when post returns
    inbox.tasks.push_back(std::move(task));
    return inbox.tasks.size() == 1;
  });
  // Only the first task of a batch has to wake the loop: it takes all of them.
  if (wasEmpty && !inLoop()) {
    const uint64_t one = 1;
    [[maybe_unused]] const auto wrote = ::write(wakeUp_.get(), &one, sizeof one);
  }
}

TimerId EpollLoop::after(Duration delay, Task task) {
  SLUICE_DCHECK(inLoop() || thread_.load() == std::thread::id{});
  return timers_.add(now() + delay, std::move(task));
}

void EpollLoop::cancel(TimerId timer) {
  SLUICE_DCHECK(inLoop() || thread_.load() == std::thread::id{});
  timers_.cancel(timer);
}

bool EpollLoop::inLoop() const {
  return thread_.load() == std::this_thread::get_id();
}

void EpollLoop::watch(int fd, uint32_t events, FdHandler handler) {
  if (isInherited()) return;
  SLUICE_DCHECK(inLoop() || thread_.load() == std::thread::id{});
  const auto found = watches_.find(fd);
  const bool isNew = found == watches_.end();
  // A watch that is replaced keeps its generation, since the descriptor is still the same. Only
  // unwatch() and watch() make a new one, and late events of the old are dropped by dispatch().
  const uint64_t generation = isNew ? nextGeneration_++ : found->second->generation;
  watches_[fd] = std::make_shared<Watch>(Watch{std::move(handler), generation});
  epoll_event event{};
  event.events = events;
  event.data.u64 = packKey(fd, generation);
  if (::epoll_ctl(epoll_.get(), isNew ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event) == 0) return;
  log("base").error("{}: has another part of this program closed it?",
                    base::fromErrno(fmt::format("cannot watch descriptor {}", fd)).message());
  // The handler hears of the failure as of a broken socket, from the loop and not inside this
  // call: an owner has one path for a connection that does not work.
  post([this, fd, generation] { dispatch(packKey(fd, generation), EPOLLERR | EPOLLHUP); });
}

void EpollLoop::unwatch(int fd) {
  if (isInherited()) return;
  SLUICE_DCHECK(inLoop() || thread_.load() == std::thread::id{});
  if (watches_.erase(fd) == 0) return;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0) return;
  log("base").error(
      "{}: has another part of this program closed it?",
      base::fromErrno(fmt::format("descriptor {} was no longer watched", fd)).message());
}

void EpollLoop::dispatch(uint64_t key, uint32_t events) {
  // Events of one epoll_wait are handed out one by one. A handler may have closed the
  // descriptor of a later one, or opened another under its number.
  const auto found = watches_.find(fdOf(key));
  if (found == watches_.end()) return;
  if (static_cast<uint32_t>(found->second->generation) != generationOf(key)) return;
  const std::shared_ptr<Watch> keep = found->second;  // the handler may unwatch itself
  keep->handler(events);
}

void EpollLoop::run() {
  SLUICE_CHECK(thread_.load() == std::thread::id{});
  if (!status_.isOk()) return;
  thread_ = std::this_thread::get_id();
  std::array<epoll_event, 64> ready{};
  oweTurnFrom(now());
  while (true) {
    runPosted();
    runDueTimers();
    if (stopping_) break;
    const int wait = waitMilliseconds();
    if (wait != 0)
      // While the loop sleeps it owes nothing until its next timer is due, so a machine that
      // does not let it run shows as overdue from then on; afterwards it owes a turn from the
      // moment it woke up. Other threads read this without a lock.
      oweTurnFrom(wait < 0 ? TimePoint::max() : now() + std::chrono::milliseconds(wait));
    const int count = ::epoll_wait(epoll_.get(), ready.data(), ready.size(), wait);
    const int error = errno;
    oweTurnFrom(now());
    if (count < 0 && error != EINTR) {
      log("base").critical(
          "{}: the loop ends; has another part of this program closed its descriptor?",
          base::fromErrno("epoll_wait", error).message());
      break;
    }
    for (int i = 0; i < count; ++i) dispatch(ready[i].data.u64, ready[i].events);
  }
  // Tasks that were posted before stop() still run; later ones are destroyed.
  runPosted();
  end();
  thread_ = std::thread::id{};
}

void EpollLoop::end() {
  // Tasks are destroyed outside the lock: a destructor of a task may post, or release the last
  // reference to an object that does.
  auto unrun = inbox_.with([](Inbox& inbox) {
    inbox.closed = true;
    return std::exchange(inbox.tasks, {});
  });
  unrun.clear();
  oweTurnFrom(TimePoint::max());
}

void EpollLoop::stop() {
  stopping_ = true;
  const uint64_t one = 1;
  [[maybe_unused]] const auto wrote = ::write(wakeUp_.get(), &one, sizeof one);
}

Duration EpollLoop::overdue() const {
  return std::max(Duration::zero(), now() - TimePoint(Duration(owedFrom_.load())));
}

void EpollLoop::runPosted() {
  // Runs one batch: a task that posts again waits its turn behind sockets and timers.
  auto batch = inbox_.with([](Inbox& inbox) { return std::exchange(inbox.tasks, {}); });
  for (auto& task : batch) {
    task();
    task = nullptr;  // releases its captures now, not after the batch
  }
}

void EpollLoop::runDueTimers() {
  const TimePoint batchTime =
      now();  // a timer of no delay that re-arms itself must not starve the sockets
  while (auto task = timers_.takeDue(batchTime)) (*task)();
}

int EpollLoop::waitMilliseconds() const {
  if (inbox_.with([](const Inbox& inbox) { return !inbox.tasks.empty(); })) return 0;
  const auto due = timers_.nextDue();
  if (!due) return -1;
  // Rounded up, or the loop would wake up before the timer is due and turn without doing
  // anything.
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - now()).count();
  // epoll takes milliseconds as an int. With a timer further away the loop merely turns once a
  // minute.
  return static_cast<int>(std::clamp<int64_t>(left, 0, 60'000));
}

LoopThread::LoopThread(std::string_view threadName) : parts_(std::make_unique<Parts>()) {
  parts_->status = loop().status();
  if (!parts_->status.isOk()) return;
  try {
    parts_->thread = base::startThread(threadName, [loop = &parts_->loop] { loop->run(); });
  } catch (const std::system_error& error) {
    parts_->status = base::fromErrno("cannot start a thread", error.code().value());
    return;
  }
  // The loop must have its thread before anybody asks inLoop().
  std::promise<void> running;
  loop().post([&] { running.set_value(); });
  running.get_future().wait();
}

LoopThread::~LoopThread() {
  if (loop().isInherited()) return;
  loop().stop();
  if (parts_->thread.joinable()) parts_->thread.join();
}

}  // namespace sluice::net
