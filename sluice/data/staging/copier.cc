#include <sluice/data/staging/copier.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

namespace sluice::staging {

Copier::Copier(Device& device, size_t pinnedBytes)
    : device_(device),
      stripBytes_(pieceBytesOf(pinnedBytes)),
      out_(device, stripBytes_),
      in_(device, stripBytes_),
      thread_("sluice-copies", {.advance = [this] { return advance(); },
                                .isIdle = [this] { return out_.isEmpty() && in_.isEmpty(); },
                                .onFailure = [this](const Status& why) { fail(why); }}) {}

void Copier::stop() {
  // The thread goes first, so that nobody else touches the lanes. Copies that the device has
  // begun cannot be recalled; their memory has to stay until they end.
  if (std::exchange(isEnding_, true)) return;
  thread_.stop();
  fail({Code::kCancelled, "the process group has ended"});
  out_.drain(kLimitOfCopies);
  in_.drain(kLimitOfCopies);
}

void Copier::toHost(std::shared_ptr<const DeviceBytes> from,
                    std::shared_ptr<const DeviceMark> ready, std::span<std::byte> to,
                    const Arrived& arrived) {
  Status failure;
  {
    // The completion runs outside the lock: it is the caller's code, and it may call this
    // copier again.
    const base::Lock lock(mutex_);
    failure = failure_;
    if (failure.isOk()) {
      ++toHost_;
      newOutward_.push_back({std::move(from), std::move(ready), to, arrived});
    }
  }
  if (!failure.isOk()) return arrived(failure);
  thread_.wake();
}

bool Copier::hasToHost() const {
  const base::Lock lock(mutex_);
  return toHost_ > 0;
}

void Copier::toDevice(std::span<const std::byte> from, std::shared_ptr<DeviceBytes> to,
                      std::shared_ptr<const DeviceMark> ready, const Queued& queued) {
  Status failure;
  {
    const base::Lock lock(mutex_);
    failure = failure_;
    if (failure.isOk()) newInward_.push_back({from, std::move(to), std::move(ready), queued});
  }
  if (!failure.isOk()) return queued(failure);
  thread_.wake();
}

void Copier::fail(const Status& why) {
  std::vector<Outward> outward;
  std::vector<Inward> inward;
  {
    const base::Lock lock(mutex_);
    if (failure_.isOk()) failure_ = why;
    outward.swap(newOutward_);
    inward.swap(newInward_);
  }
  // The lists of the thread are taken without the lock: this runs on the thread itself, or
  // after it has ended.
  std::ranges::move(std::exchange(outward_, {}), std::back_inserter(outward));
  std::ranges::move(std::exchange(inward_, {}), std::back_inserter(inward));
  for (const Outward& one : outward) one.arrived(why);
  for (const Inward& one : inward) one.queued(why);
}

Result<bool> Copier::advance() {
  bool moved = false;
  {
    const base::Lock lock(mutex_);
    moved = !newOutward_.empty() || !newInward_.empty();
    std::ranges::move(std::exchange(newOutward_, {}), std::back_inserter(outward_));
    std::ranges::move(std::exchange(newInward_, {}), std::back_inserter(inward_));
  }
  // Ends before beginnings: what has ended frees the pinned buffers that the next copies need.
  // The way to the device comes first, as results are what training waits for.
  for (const auto part :
       {&Copier::finishIn, &Copier::fillIn, &Copier::finishOut, &Copier::fillOut}) {
    SLUICE_ASSIGN_OR_RETURN(const bool has, (this->*part)());
    moved |= has;
  }
  return moved;
}

Result<bool> Copier::fillOut() {
  bool moved = false;
  for (; issuing_ < outward_.size(); ++issuing_) {
    Outward& one = outward_[issuing_];
    while (one.issued < one.to.size()) {
      if (!out_.hasRoom()) return moved;
      const size_t count = countOf(one.to.size(), one.issued);
      SLUICE_ASSIGN_OR_RETURN(Buffer buffer, out_.takeBuffer());
      SLUICE_ASSIGN_OR_RETURN(
          auto end, device_.copyToHost(*one.from, one.issued, *buffer, count, one.ready.get()));
      // The lane keeps the tensor's memory alive until the device has read all of it, whatever
      // the caller does meanwhile.
      out_.push({.buffer = std::move(buffer), .end = std::move(end), .keeps = one.from});
      one.issued += count;
      moved = true;
    }
  }
  return moved;
}

Result<bool> Copier::finishOut() {
  bool moved = false;
  while (!outward_.empty()) {
    Outward& one = outward_.front();
    if (one.here < one.to.size()) {
      SLUICE_ASSIGN_OR_RETURN(auto copy, out_.popEnded());
      if (!copy) return moved;
      const size_t count = countOf(one.to.size(), one.here);
      std::memcpy(one.to.data() + one.here, copy->buffer->bytes().data(), count);
      out_.returnBuffer(std::move(copy->buffer));
      one.here += count;
      moved = true;
      continue;
    }
    const Outward ended = std::move(one);
    outward_.pop_front();
    if (issuing_ > 0) --issuing_;
    // The count falls only after the completion has run, so that hasToHost() is true for as
    // long as the caller may still touch the tensor's memory.
    ended.arrived(base::ok());
    const base::Lock lock(mutex_);
    --toHost_;
    moved = true;
  }
  return moved;
}

Result<bool> Copier::fillIn() {
  bool moved = false;
  while (!inward_.empty() && in_.hasRoom()) {
    Inward& one = inward_.front();
    const size_t count = countOf(one.from.size(), one.issued);
    SLUICE_ASSIGN_OR_RETURN(Buffer buffer, in_.takeBuffer());
    std::memcpy(buffer->bytes().data(), one.from.data() + one.issued, count);
    SLUICE_ASSIGN_OR_RETURN(
        auto end, device_.copyToDevice(*buffer, *one.to, one.issued, count, one.ready.get()));
    in_.push({.buffer = std::move(buffer), .end = end, .keeps = one.to});
    one.issued += count;
    moved = true;
    // The caller goes on once its last copy is queued. What it does next on the device waits
    // there for the mark.
    if (one.issued < one.from.size()) continue;
    const Inward ended = std::move(one);
    inward_.pop_front();
    ended.queued(std::shared_ptr<const DeviceMark>(std::move(end)));
  }
  return moved;
}

Result<bool> Copier::finishIn() {
  bool moved = false;
  while (true) {
    SLUICE_ASSIGN_OR_RETURN(auto copy, in_.popEnded());
    if (!copy) return moved;
    in_.returnBuffer(std::move(copy->buffer));
    moved = true;
  }
}

}  // namespace sluice::staging
