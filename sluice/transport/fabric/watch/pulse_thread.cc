#include <sluice/transport/fabric/watch/pulse_thread.h>

#include <utility>

#include <sluice/base/log.h>
#include <sluice/base/units.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::fabric {

Result<std::unique_ptr<PulseThread>> PulseThread::start(const LivenessOptions& options,
                                                        const net::EpollLoop& work,
                                                        size_t worldSize,
                                                        const MakeEngine& makeEngine,
                                                        const base::TrainingThread* training) {
  std::unique_ptr<PulseThread> pulse(new PulseThread(options, work, worldSize, training));
  SLUICE_RETURN_IF_ERROR(pulse->thread_.status());
  SLUICE_ASSIGN_OR_RETURN(pulse->fabric_, makeEngine(pulse->thread_.loop(), *pulse));
  pulse->thread_.loop().post(
      [pulse = pulse.get(), engine = pulse->fabric_.get()] { pulse->begin(*engine); });
  return pulse;
}

PulseThread::PulseThread(const LivenessOptions& options, const net::EpollLoop& work,
                         size_t worldSize, const base::TrainingThread* training)
    : options_(options), work_(work), training_(training), peers_(worldSize) {
  words_.with([&](auto& words) { words.resize(worldSize); });
}

PulseThread::~PulseThread() {
  if (fabric_ == nullptr || thread_.loop().isInherited())
    return;  // a forked child has no such thread
  // The engine pointer is cleared on the thread, so a tick that is already queued finds nothing
  // to send with. Only then is the fabric closed: a goodbye tells the others that this pulse
  // has left, and they do not miss it.
  thread_.loop().post([this] { engine_ = nullptr; });
  if (const Status closed = closeAndWait(*fabric_); !closed.isOk())
    log("fabric").debug("closing the pulse: {}", closed.toString());
}

void PulseThread::exchangeWith(Rank peer) {
  thread_.loop().post([this, peer] { addPeer(peer); });
}

std::optional<Pulse::Word> PulseThread::lastWord(Rank peer) const {
  return words_.with([&](const auto& words) { return words.at(index(peer)); });
}

// ---- On the thread's loop ----

void PulseThread::begin(Fabric& fabric) {
  engine_ = &fabric;
  tick();
}

void PulseThread::addPeer(Rank rank) {
  Peer& peer = peers_.at(index(rank));
  if (peer.isGone || std::exchange(peer.isTold, true)) return;
  beat(rank);
}

void PulseThread::tick() {
  for (uint32_t r = 0; r < peers_.size(); ++r) {
    if (peers_[r].isTold) beat(Rank{r});
  }
  thread_.loop().after(options_.interval, [this] { tick(); });
}

void PulseThread::beat(Rank rank) {
  // Beats do not queue up for a peer that reads nothing: a stale beat is worthless, and the
  // next tick sends a fresh one. The bytes live in the completion, because the fabric reads
  // them until then.
  if (engine_ == nullptr || std::exchange(peers_[index(rank)].isBeatUnderWay, true)) return;
  Message message;
  message.flags = wire::Flags::kHeartbeat;
  const PulseBeat now{.busy = work_.overdue(),
                      .training = training_ == nullptr ? base::Whereabouts{} : training_->now()};
  const auto bytes = std::make_shared<const std::vector<std::byte>>(toBytes(now));
  engine_->send(rank, Lane::kControl, message, {bytes->data(), bytes->size()},
                [this, rank, bytes](const Status&) { peers_[index(rank)].isBeatUnderWay = false; });
}

Result<Landing> PulseThread::onMessage(Rank from, Lane, const wire::Header& header) {
  if (!wire::has(header.flags, wire::Flags::kHeartbeat) || header.length > kMaxLifeSignBytes)
    return Status(Code::kRefused, "not a pulse");
  const auto bytes = std::make_shared<std::vector<std::byte>>(header.length);
  return Landing{.buffer = {bytes->data(), bytes->size()},
                 .done = [this, from, bytes](const Status& status) {
                   if (!status.isOk()) return;
                   const auto sign = parseLifeSign(*bytes);
                   if (!sign) return;
                   if (const auto* beat = std::get_if<PulseBeat>(&*sign)) take(from, *beat);
                 }};
}

void PulseThread::take(Rank from, const PulseBeat& beat) {
  const Word word{.heard = thread_.loop().now(), .busy = beat.busy, .training = beat.training};
  words_.with([&](auto& words) { words[index(from)] = word; });
  addPeer(from);  // our work loop may be too busy to know it yet
  report(from, beat.busy);
}

void PulseThread::report(Rank from, Duration busy) {
  Duration& reported = peers_[index(from)].reported;
  if (busy >= options_.silenceLimit) {
    // Said once when the loop becomes busy and once when it is free again, with the longest
    // time that was seen, so that a long task makes two lines of log and not one per beat.
    if (reported == Duration::zero()) {
      log("fabric").warn(
          "rank {} is busy: its loop has not turned for {:.1f} s; waiting for it for up to {} "
          "(busy-limit)",
          from, base::seconds(busy), base::formatDuration(options_.busyLimit));
    }
    reported = busy;
  } else if (reported > Duration::zero()) {
    log("fabric").info("rank {} is no longer busy, after at least {:.1f} s", from,
                       base::seconds(reported));
    reported = Duration::zero();
  }
}

void PulseThread::forget(Rank rank) {
  peers_[index(rank)].isTold = false;
  peers_[index(rank)].isGone = true;
  words_.with([&](auto& words) { words[index(rank)].reset(); });
}

void PulseThread::onPeerLost(Rank from, const Status& why) {
  forget(from);
  // The watchmen report a rank that is lost altogether; this warning is for a rank that lives on
  // without its pulse.
  thread_.loop().after(2 * options_.silenceLimit, [this, from, why] {
    log("fabric").warn(
        "the pulse of rank {} is lost ({}): if its loop stays busy for longer than {} "
        "(silence-limit), the rank is taken for lost",
        from, why.message(), base::formatDuration(options_.silenceLimit));
  });
}

void PulseThread::onPeerLeft(Rank from) {
  forget(from);
}

}  // namespace sluice::fabric
