#include <bench/staged_replay/core_load.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <sstream>

namespace sluice::bench {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(50);

}  // namespace

CoreLoad::CoreLoad() : thread_([this] { run(); }) {}

CoreLoad::~CoreLoad() {
  {
    const std::lock_guard lock(mutex_);
    isEnding_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

CoreLoad::Sample CoreLoad::read() {
  Sample sample{.at = base::RealClock().now()};
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("cpu") || line.size() < 4 || std::isdigit(line[3]) == 0) continue;
    std::istringstream words(line);
    std::string name;
    words >> name;
    Ticks ticks;
    constexpr int kColumns = 8;  // user nice system idle iowait irq softirq steal
    for (int column = 0; column < kColumns; ++column) {
      uint64_t value = 0;
      words >> value;
      ticks.all += value;
      const bool isIdle = column == 3 || column == 4;
      if (!isIdle) ticks.busy += value;
    }
    sample.cores.push_back(ticks);
  }
  return sample;
}

void CoreLoad::run() {
  std::unique_lock lock(mutex_);
  while (!isEnding_) {
    samples_.push_back(read());
    changed_.wait_for(lock, kPeriod, [this] { return isEnding_; });
  }
}

std::vector<double> CoreLoad::shares(TimePoint from, TimePoint to) const {
  const std::lock_guard lock(mutex_);
  const auto first = std::ranges::lower_bound(samples_, from, {}, &Sample::at);
  const auto end = std::ranges::upper_bound(samples_, to, {}, &Sample::at);
  std::vector<double> shares;
  if (end - first < 2) return shares;
  const Sample& last = *std::prev(end);
  for (size_t core = 0; core < first->cores.size(); ++core) {
    const auto all = static_cast<double>(last.cores[core].all - first->cores[core].all);
    const auto busy = static_cast<double>(last.cores[core].busy - first->cores[core].busy);
    shares.push_back(all > 0 ? busy / all : 0);
  }
  return shares;
}

}  // namespace sluice::bench
