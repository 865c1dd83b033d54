#include <tools/lab/launcher.h>

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include <fmt/format.h>

#include <sluice/base/config.h>
#include <sluice/base/net/epoll_loop.h>
#include <sluice/base/net/fd.h>
#include <sluice/base/units.h>
#include <tools/lab/fork_inside.h>
#include <tools/lab/line_splitter.h>
#include <tools/lab/namespaces.h>
#include <tools/lab/pidfd.h>

namespace sluice::lab {
namespace {

using net::Fd;

constexpr std::array kForwarded{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

// Runs as the first process of the PID namespace: waits for the end of `lifeline` and takes all
// others with it.
[[noreturn]] void keepNamespace(int lifeline) {
  ::setsid();
  ::prctl(PR_SET_NAME, "sluice-lab-run");
  ::signal(SIGCHLD, SIG_IGN);  // orphans become our children; the kernel reaps them
  ::dup2(lifeline, 0);
  ::close_range(1, ~0U, 0);  // keep nothing else open
  char byte = 0;
  while (::read(0, &byte, 1) < 0 && errno == EINTR) {
  }
  ::_exit(0);
}

// The data that a rank's process needs after fork, prepared before it: memory must not be allocated
// after fork, as the caller may have threads.
struct Prepared {
  std::vector<std::string> environment;
  std::vector<char*> arguments;
  std::vector<char*> variables;

  Prepared(const std::vector<std::string>& command, const base::Config::Values& values) {
    for (const auto& [name, value] : values)
      environment.push_back(fmt::format("{}={}", name, value));
    for (auto& variable : environment) variables.push_back(variable.data());
    for (const auto& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
    variables.push_back(nullptr);
    arguments.push_back(nullptr);
  }
};

[[noreturn]] void giveUp(const char* what, int exitCode) {
  const char* why = ::strerrordesc_np(errno);
  for (const char* piece : {"sluice: ", what, ": ", why != nullptr ? why : "unknown error", "\n"}) {
    if (::write(STDERR_FILENO, piece, std::strlen(piece)) < 0) break;
  }
  ::_exit(exitCode);
}

[[noreturn]] void becomeRank(const Prepared& prepared, int number, int network, int out, int error,
                             const sigset_t& signals) {
  ::setpgid(0, 0);  // a signal to the group reaches the rank's own children too
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0) giveUp("cannot open /dev/null", 126);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(error, STDERR_FILENO);
  if (!enterNamespace(network)) giveUp("cannot enter the host", 126);
  if (!mountOwnSys() && number == 0) sayRefused("/sys");
  if (!mountOwnProc() && number == 0) sayRefused("/proc");
  ::pthread_sigmask(SIG_SETMASK, &signals, nullptr);
  ::execvpe(prepared.arguments[0], prepared.arguments.data(), prepared.variables.data());
  giveUp(prepared.arguments[0], errno == ENOENT ? 127 : 126);
}

// Runs on the caller's thread: it runs the loop itself, to its end.
class Run final {
 public:
  Run(const Realm& realm, const std::vector<Seat>& seats, const RunOptions& options)
      : realm_(realm), seats_(seats), options_(options) {}
  ~Run() {
    if (signalsBlocked_) ::pthread_sigmask(SIG_SETMASK, &callersSignals_, nullptr);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<int> toTheEnd() {
    SLUICE_RETURN_IF_ERROR(loop_.status());
    SLUICE_RETURN_IF_ERROR(takeSignals());
    if (const Status started = start(); !started.isOk()) {
      error_ = started;
      killAll();
    }
    if (keeper_ > 0) loop_.run();
    if (!error_.isOk()) return error_;
    return exitCode_;
  }

 private:
  struct Rank {
    int number;
    pid_t pid;
    Fd pidFd;
    bool running = true;
  };

  void say(const std::string& message) const {
    if (options_.onEvent) options_.onEvent(message);
  }

  Status takeSignals() {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &callersSignals_);
    if (!options_.forwardSignals) return base::ok();
    sigset_t forwarded;
    ::sigemptyset(&forwarded);
    for (const int signal : kForwarded) ::sigaddset(&forwarded, signal);
    ::pthread_sigmask(SIG_BLOCK, &forwarded, nullptr);
    signalsBlocked_ = true;
    signalFd_ = Fd(::signalfd(-1, &forwarded, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signalFd_.valid()) return base::fromErrno("signalfd");
    loop_.watch(signalFd_.get(), EPOLLIN, [this](uint32_t) {
      signalfd_siginfo info{};
      while (::read(signalFd_.get(), &info, sizeof info) == sizeof info) {
        onSignal(static_cast<int>(info.ssi_signo));
      }
    });
    return base::ok();
  }

  Status start() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return base::fromErrno("pipe");
    const Fd keepersEnd(ends[0]);
    lifeline_ = Fd(ends[1]);
    const Status started = startAll(keepersEnd.get());
    if (started.isOk() && options_.timeout > Duration(0)) {
      loop_.after(options_.timeout, [this] {
        fail(kTimeoutExitCode,
             fmt::format("the time limit of {} is over", base::formatDuration(options_.timeout)));
      });
    }
    return started;
  }

  Status startAll(int keepersEnd) {
    const pid_t keeper = forkInside(realm_, -1);
    if (keeper == 0) keepNamespace(keepersEnd);
    if (keeper < 0) return base::fromErrno("making a PID namespace");
    keeper_ = keeper;
    keeperFd_ = openProcess(keeper_);
    if (!keeperFd_.valid()) {
      const Status why = base::fromErrno("pidfd_open");
      killUnwatched(std::exchange(keeper_, -1));
      return why;
    }
    loop_.watch(keeperFd_.get(), EPOLLIN, [this](uint32_t) { onKeeperEnd(); });
    ranks_.reserve(seats_.size());  // handlers keep references
    for (size_t i = 0; i < seats_.size(); ++i)
      SLUICE_RETURN_IF_ERROR(startRank(static_cast<int>(i)));
    return base::ok();
  }

  // Ends a child that has just been started and cannot be watched.
  static void killUnwatched(pid_t child) {
    ::kill(child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  Status startRank(int number) {
    const Seat& seat = seats_[static_cast<size_t>(number)];
    auto values = base::processEnvironment();
    for (const auto* more : {&options_.environment, &seat.environment}) {
      for (const auto& [name, value] : *more) values[name] = value;
    }
    const Prepared prepared(options_.command, values);
    int out[2];
    int error[2];
    if (::pipe2(out, O_CLOEXEC) != 0) return base::fromErrno("pipe");
    Fd outRead(out[0]);
    const Fd outWrite(out[1]);
    if (::pipe2(error, O_CLOEXEC) != 0) return base::fromErrno("pipe");
    Fd errorRead(error[0]);
    const Fd errorWrite(error[1]);
    const pid_t pid = forkInside(realm_, keeperFd_.get());
    if (pid == 0) {
      becomeRank(prepared, number, seat.networkNamespace, outWrite.get(), errorWrite.get(),
                 callersSignals_);
    }
    if (pid < 0) return base::fromErrno("starting a rank");
    ::setpgid(pid, pid);  // parent and child both call it, since either may come first
    Fd pidFd = openProcess(pid);
    if (!pidFd.valid()) {
      const Status why = base::fromErrno("pidfd_open");
      killUnwatched(pid);
      return why;
    }
    Rank& rank = ranks_.emplace_back(Rank{number, pid, std::move(pidFd)});
    ++running_;
    loop_.watch(rank.pidFd.get(), EPOLLIN, [this, &rank](uint32_t) { onRankEnd(rank); });
    read(number, Stream::kOut, std::move(outRead));
    read(number, Stream::kError, std::move(errorRead));
    return base::ok();
  }

  void read(int rank, Stream stream, Fd fd) {
    ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
    auto pipe = std::make_shared<Fd>(std::move(fd));
    auto lines = std::make_shared<LineSplitter>(
        [this, rank, stream](std::string_view line) { options_.onLine(rank, stream, line); });
    ++openPipes_;
    loop_.watch(pipe->get(), EPOLLIN, [this, pipe, lines](uint32_t) {
      std::array<char, 65536> piece;
      const ssize_t got = ::read(pipe->get(), piece.data(), piece.size());
      if (got > 0) return lines->add(std::string_view(piece.data(), static_cast<size_t>(got)));
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      lines->finish();
      loop_.unwatch(pipe->get());
      --openPipes_;
      stopIfDone();
    });
  }

  void onRankEnd(Rank& rank) {
    int status = 0;
    if (::waitpid(rank.pid, &status, WNOHANG) != rank.pid) return;
    loop_.unwatch(rank.pidFd.get());
    rank.running = false;
    --running_;
    if (WIFSIGNALED(status)) {
      fail(128 + WTERMSIG(status), fmt::format("rank {} was ended by signal {} ({})", rank.number,
                                               WTERMSIG(status), ::sigdescr_np(WTERMSIG(status))));
    } else if (WEXITSTATUS(status) != 0) {
      fail(WEXITSTATUS(status),
           fmt::format("rank {} ended with exit code {}", rank.number, WEXITSTATUS(status)));
    }
    if (running_ == 0) killAll();  // ends background processes of the ranks
    stopIfDone();
  }

  void onKeeperEnd() {
    if (::waitpid(keeper_, nullptr, WNOHANG) != keeper_) return;
    loop_.unwatch(keeperFd_.get());
    keeper_ = -1;
    stopIfDone();
  }

  void onSignal(int signal) {
    const bool asksToEnd = signal == SIGINT || signal == SIGTERM;
    if (asksToEnd && askedToEnd_) {
      say("asked to end a second time: killing all ranks");
      return killAll();
    }
    askedToEnd_ = askedToEnd_ || asksToEnd;
    signalAll(signal);
  }

  // The first failure is the result; later failures follow from it.
  void fail(int exitCode, const std::string& message) {
    if (exitCode_ != 0) return;
    exitCode_ = exitCode;
    say(running_ > 0 ? message + "; ending the others" : message);
    signalAll(SIGTERM);
    loop_.after(options_.grace, [this] {
      if (running_ > 0) {
        say(fmt::format("{} ranks are still there after {}: killing them", running_,
                        base::formatDuration(options_.grace)));
      }
      killAll();
    });
  }

  void signalAll(int signal) {
    for (const Rank& rank : ranks_) {
      if (rank.running) ::kill(-rank.pid, signal);
    }
  }

  void killAll() { lifeline_.reset(); }

  void stopIfDone() {
    if (running_ == 0 && openPipes_ == 0 && keeper_ < 0) loop_.stop();
  }

  const Realm& realm_;
  const std::vector<Seat>& seats_;
  const RunOptions& options_;

  net::EpollLoop loop_;
  Fd lifeline_;  // the keeper ends when this is closed, and all ranks with it
  pid_t keeper_ = -1;
  Fd keeperFd_;
  Fd signalFd_;
  sigset_t callersSignals_{};
  bool signalsBlocked_ = false;

  std::vector<Rank> ranks_;
  int running_ = 0;
  int openPipes_ = 0;
  bool askedToEnd_ = false;
  int exitCode_ = 0;
  Status error_;
};

}  // namespace

Result<int> launch(const Realm& realm, const std::vector<Seat>& seats, const RunOptions& options) {
  SLUICE_CHECK(!options.command.empty() && options.onLine);
  return Run(realm, seats, options).toTheEnd();
}

}  // namespace sluice::lab
