// Shows on standard error how far a command is that does several runs.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include <sluice/base/clock.h>

namespace sluice::cli {

// Says on stderr which run this is and how long the rest will take; on a terminal, on one line.
class RunProgress final {
 public:
  explicit RunProgress(size_t total) : total_(total) {}
  ~RunProgress() { clear(); }
  RunProgress(const RunProgress&) = delete;
  RunProgress& operator=(const RunProgress&) = delete;

  void next(std::string_view what) {
    const double elapsed = base::seconds(base::RealClock().now() - start_);
    std::string text = fmt::format("run {} of {}: {}", done_ + 1, total_, what);
    if (done_ > 0) {
      text += fmt::format(", about {:.0f} s left", elapsed / static_cast<double>(done_) *
                                                       static_cast<double>(total_ - done_));
    }
    ++done_;
    clear();
    fmt::print(stderr, "{}{}", text, isTerminal_ ? "" : "\n");
    std::fflush(stderr);
  }

  // Clears the line, before something else is printed.
  void clear() const {
    if (isTerminal_) fmt::print(stderr, "\r\033[K");
  }

 private:
  const bool isTerminal_ = ::isatty(STDERR_FILENO) != 0;
  const TimePoint start_ = base::RealClock().now();
  const size_t total_;
  size_t done_ = 0;
};

}  // namespace sluice::cli
