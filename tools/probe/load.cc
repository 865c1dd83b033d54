#include <tools/probe/load.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace sluice::probe {
namespace {

using namespace std::chrono_literals;

constexpr double kLeastWindow = 64 << 10;
constexpr double kLargestWindow = 16 << 20;
constexpr double kSmallestPiece = 8 << 10;
constexpr auto kRecent = 50ms;
constexpr double kLoopSeconds = 1e-3;  // the turns of the loops at both ends

double rateBetween(TimePoint from, uint64_t fromBytes, TimePoint to, uint64_t toBytes) {
  const double seconds = base::seconds(to - from);
  return seconds > 0 ? static_cast<double>(toBytes - fromBytes) / seconds : 0;
}

// The slope of the line with the least squares; 0 if there are too few points for one.
double slopeOf(const std::vector<std::pair<double, double>>& points) {
  constexpr size_t kFewest = 4;
  if (points.size() < kFewest) return 0;
  double x = 0;
  double y = 0;
  for (const auto& [px, py] : points) {
    x += px / static_cast<double>(points.size());
    y += py / static_cast<double>(points.size());
  }
  double xx = 0;
  double xy = 0;
  for (const auto& [px, py] : points) {
    xx += (px - x) * (px - x);
    xy += (px - x) * (py - y);
  }
  return xx > 0 ? xy / xx : 0;
}

}  // namespace

void Load::start(Loop& loop, Talker& talker, const LoadOptions& options, Done done) {
  const std::shared_ptr<Load> load(new Load(loop, talker, options, std::move(done)));
  load->begun_ = loop.now();
  load->timer_ = loop.after(options.length + options.patience, [load] {
    load->timer_.reset();
    load->hasEnded_ = true;
    load->talker_.forget(load->options_.to);
    load->finish();
  });
  load->pump();
}

size_t Load::window() const {
  double bytesPerSecond = 0;
  if (!deliveries_.empty()) {
    const bool isYoung = recent_ == 0;
    bytesPerSecond = rateBetween(isYoung ? begun_ : deliveries_[recent_ - 1].when,
                                 isYoung ? 0 : deliveries_[recent_ - 1].bytes,
                                 deliveries_.back().when, deliveries_.back().bytes);
  }
  const double held = bytesPerSecond * (2 * base::seconds(options_.roundTrip) + kLoopSeconds);
  return static_cast<size_t>(std::min(kLeastWindow + held, kLargestWindow));
}

void Load::pump() {
  if (loop_.now() - begun_ >= options_.length) hasEnded_ = true;
  if (options_.singleBytes > 0 && deliveries_.size() >= options_.mostSingles) hasEnded_ = true;
  if (hasEnded_ || !failed_.isOk()) {
    if (underWay_ == 0) finish();
    return;
  }
  const bool isSingle = options_.singleBytes > 0;
  const size_t window = isSingle ? options_.singleBytes : this->window();
  const auto piece =
      isSingle ? window
               : static_cast<size_t>(std::clamp(static_cast<double>(window) / 4, kSmallestPiece,
                                                static_cast<double>(kLargestPiece)));
  while (underWay_ + piece <= window) {
    underWay_ += piece;
    talker_.ask(options_.to, fabric::Lane::kBulk, piece,
                [self = shared_from_this(), piece](const Result<Duration>& answer) {
                  self->delivered(piece, answer.status());
                });
  }
}

void Load::delivered(size_t bytes, const Status& status) {
  underWay_ -= bytes;
  if (!status.isOk()) {
    if (failed_.isOk()) failed_ = status;
  } else {
    const uint64_t before = deliveries_.empty() ? 0 : deliveries_.back().bytes;
    deliveries_.push_back({loop_.now(), before + bytes});
    while (deliveries_[recent_].when + kRecent < loop_.now()) ++recent_;
  }
  pump();
}

void Load::finish() {
  if (!done_) return;
  if (timer_) loop_.cancel(*std::exchange(timer_, std::nullopt));
  std::exchange(done_, nullptr)(result());
}

// The first third does not count: windows grow, and buckets of a shaped link are still full. The
// slope of a line is the rate: answers come in clumps, and the ends of a clump are no measure.
LoadResult Load::result() const {
  LoadResult result;
  if (deliveries_.empty()) {
    result.status = failed_.isOk()
                        ? Status(Code::kTimeout, "no answer came while the link was loaded")
                        : failed_;
    return result;
  }
  const Delivery& last = deliveries_.back();
  result.bytes = last.bytes;
  result.bitsPerSecond = 8 * rateBetween(begun_, 0, last.when, last.bytes);
  std::vector<std::pair<double, double>> points;
  for (const Delivery& each : deliveries_) {
    if (each.when >= begun_ + options_.length / 3)
      points.emplace_back(base::seconds(each.when - begun_), static_cast<double>(each.bytes));
  }
  if (const double slope = slopeOf(points); slope > 0) result.bitsPerSecond = 8 * slope;
  return result;
}

}  // namespace sluice::probe
