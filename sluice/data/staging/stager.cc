#include <sluice/data/staging/stager.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/units.h>
#include <sluice/data/staging/precautions.h>

namespace sluice::staging {
namespace {

constexpr Duration kInterruptionPeriod = std::chrono::milliseconds(100);

std::vector<std::vector<Piece>> cutAll(const plan::Plan& plan, size_t atMost) {
  std::vector<std::vector<Piece>> pieces;
  for (uint32_t t = 0; t < plan.model().tensors.size(); ++t)
    pieces.push_back(cutPieces(plan, TensorId{t}, atMost));
  return pieces;
}

std::vector<size_t> sizesOf(const std::vector<Piece>& pieces) {
  std::vector<size_t> sizes;
  for (const Piece& piece : pieces) sizes.push_back(piece.count);
  return sizes;
}

}  // namespace

Stager::Stager(Terms terms, Listener& listener)
    : terms_(std::move(terms)),
      listener_(listener),
      pieceBytes_(pieceBytesOf(terms_.pinnedBytes)),
      pieces_(cutAll(terms_.plan, pieceBytes_)),
      out_(terms_.device, pieceBytes_),
      in_(terms_.device, pieceBytes_),
      progress_(pieces_.size()),
      thread_("sluice-staging", {.advance = [this] { return advance(); },
                                 .isIdle = [this] { return out_.isEmpty() && in_.isEmpty(); },
                                 .onFailure = [this](const Status& why) { fail(why); }}) {
  for (const auto& pieces : pieces_) missing_.push_back(sizesOf(pieces));
}

Stager::~Stager() {
  stop();
}

void Stager::stop() {
  if (std::exchange(isStopped_, true)) return;
  {
    // Waiting threads are told before the thread ends: they hold results that will not come any
    // more.
    const base::Lock lock(mutex_);
    if (failure_.isOk()) failure_ = {Code::kCancelled, "the session has ended"};
  }
  queued_.notifyAll();
  thread_.stop();
  out_.drain(kLimitOfCopies);
  in_.drain(kLimitOfCopies, [this](const Copy& copy) { tellLanded(copy); });
}

void Stager::begin(TensorId tensor, DeviceMemory memory) {
  {
    // The state is set before the thread hears of the tensor. A wait() that follows must not
    // take the end of the former step for that of this one.
    const base::Lock lock(mutex_);
    progress_[index(tensor)] = {.isUnderWay = true};
  }
  tell({.kind = News::Kind::kBegun, .what = {tensor}, .memory = std::move(memory)});
}

void Stager::targetIs(TensorId tensor, std::span<std::byte> target) {
  tell({.kind = News::Kind::kTarget, .what = {tensor}, .target = target});
}

void Stager::onResult(TensorId tensor, Step step, size_t first, size_t count,
                      const HostResult& result) {
  const auto& pieces = piecesOf(tensor);
  auto& missing = missing_[index(tensor)];
  // Results come by slice and go on by piece. The loop counts down the missing bytes of each
  // piece and tells the thread of whole pieces only, so that no message is passed for a slice
  // that completes nothing.
  const size_t end = first + count;
  auto piece = std::ranges::upper_bound(pieces, first, {}, &Piece::end);
  for (; piece != pieces.end() && piece->begin < end; ++piece) {
    const auto number = static_cast<size_t>(piece - pieces.begin());
    missing[number] -= std::min(end, piece->end()) - std::max(first, piece->begin);
    if (missing[number] > 0) continue;
    missing[number] = piece->count;  // of the next step
    tell({.kind = News::Kind::kResult, .what = {tensor, number, step}, .result = result});
  }
}

void Stager::noResult(TensorId tensor) {
  // What was counted down for this step is forgotten: the next one begins with whole pieces.
  missing_[index(tensor)] = sizesOf(piecesOf(tensor));
  tell({.kind = News::Kind::kNoResult, .what = {tensor}});
}

void Stager::waitBeforeResults(std::shared_ptr<const DeviceMark> mark) {
  tell({.kind = News::Kind::kMark, .memory = {.ready = std::move(mark)}});
}

void Stager::tell(News news) {
  {
    const base::Lock lock(mutex_);
    inbox_.push_back(std::move(news));
  }
  thread_.wake();
}

Status Stager::wait(TensorId tensor, Duration atMost, const std::function<Status()>& interruption) {
  const base::RealClock clock;
  const TimePoint end = clock.now() + atMost;
  std::shared_ptr<const DeviceMark> landed;
  for (bool isQueued = false; !isQueued;) {
    {
      const base::Lock lock(mutex_);
      const Progress& progress = progress_[index(tensor)];
      // The wait wakes up now and then to ask the caller whether it should end (a signal, a
      // lost rank). The mark is taken under the lock together with the answer, since the next
      // step may replace it.
      isQueued = queued_.waitUntil(
          mutex_, std::min(end, clock.now() + kInterruptionPeriod), [&]() SLUICE_REQUIRES(mutex_) {
            return !progress.isUnderWay || !failure_.isOk() || !takes(Precaution::kWaitUntilQueued);
          });
      if (progress.isUnderWay && !failure_.isOk()) return failure_;
      landed = progress.landed;
    }
    if (isQueued) break;
    if (clock.now() >= end) {
      return {Code::kTimeout,
              fmt::format("the result of '{}' was not copied to {} within {}; it waits for {}",
                          terms_.plan.model()[tensor].name, terms_.device.name(),
                          base::formatDuration(atMost), describeWait(tensor))};
    }
    if (interruption) SLUICE_RETURN_IF_ERROR(interruption());
  }
  // The host does not wait for the copy itself: the caller's stream does, on the device. So the
  // host is free as soon as the last copy is queued.
  if (landed == nullptr || !takes(Precaution::kMakeReaderWait)) return base::ok();
  return terms_.device.makeStreamWait(*landed);
}

bool Stager::isQueued(TensorId tensor) const {
  const base::Lock lock(mutex_);
  return !progress_[index(tensor)].isUnderWay;
}

std::string Stager::describeWait(TensorId tensor) const {
  const base::Lock lock(mutex_);
  const Progress& progress = progress_[index(tensor)];
  const size_t slices = terms_.plan.slicesOf(tensor).size();
  if (progress.slicesHere < slices) {
    return fmt::format("{} of {} slices not yet copied from {}", slices - progress.slicesHere,
                       slices, terms_.device.name());
  }
  const size_t pieces = piecesOf(tensor).size();
  return fmt::format("{} of {} copies to {}", pieces - progress.piecesQueued, pieces,
                     terms_.device.name());
}

void Stager::fail(const Status& why) {
  {
    const base::Lock lock(mutex_);
    if (failure_.isOk()) failure_ = why;
  }
  queued_.notifyAll();
  listener_.onDeviceFailure(why);
}

}  // namespace sluice::staging
