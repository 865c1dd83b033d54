#include <sluice/session/metering.h>

#include <sluice/transport/fabric/common.h>

namespace sluice::session {
namespace {

// The time limit of a scrape: a loop that is busy for longer misses it. The web client gives up
// soon after.
constexpr auto kScrapeLimit = std::chrono::seconds(5);

}  // namespace

void Metering::begin(Trainer& trainer, const fabric::PeerAwareFabric& fabric) {
  trainer_ = &trainer;
  fabric_ = &fabric;
  endpoint_.add(*this);
}

void Metering::end() {
  endpoint_.remove(*this);
}

Result<metrics::Reading> Metering::read() {
  metrics::Reading reading{.session = session_,
                           .rank = fabric_->rank(),
                           .steps = trainer_->stepsBegun(),
                           .fabric = fabric_->counters(),
                           .slicesByStage = counts_.slicesByStage(),
                           .waited = counts_.waitedByTensor()};
  for (const auto& tensor : trainer_->plan().model().tensors)
    reading.tensors.push_back(tensor.name);
  SLUICE_ASSIGN_OR_RETURN(const algorithms::Statistics statistics,
                          trainer_->statistics(kScrapeLimit));
  reading.creditUsed = statistics.bytesInFlight;
  reading.bytesWaiting = statistics.bytesWaiting;
  reading.inversion = statistics.inversion;
  const auto readPeers = [&] {
    const TimePoint now = fabric_->loop().now();
    for (uint32_t r = 0; r < fabric_->worldSize(); ++r) {
      const auto heard = fabric_->lastHeard(Rank{r});
      if (heard && Rank{r} != reading.rank)
        reading.peers[Rank{r}] = {.isUp = !trainer_->isGone(Rank{r}),
                                  .silence = now - *heard,
                                  .busy = fabric_->busyFor(Rank{r}).value_or(Duration::zero())};
    }
  };
  SLUICE_RETURN_IF_ERROR(fabric::runAndWait(fabric_->loop(), readPeers, kScrapeLimit));
  return reading;
}

}  // namespace sluice::session
