// Signs of life that a broken member of the job sends: heartbeats, notices of losses and pulses with
// what its training thread does. An accepted sign must come out the same when it is encoded again,
// but for what is clamped or escaped as it is read; that must not change a second time.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <variant>

#include <sluice/base/whereabouts.h>
#include <sluice/transport/fabric/watch/life_sign.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::fabric;
  const auto sign = parseLifeSign(std::as_bytes(std::span(data, size)));
  if (!sign) return 0;
  const auto bytes = toBytes(*sign);
  if (bytes.size() > kMaxLifeSignBytes) std::abort();
  const auto again = parseLifeSign(bytes);
  if (!again || again->index() != sign->index()) std::abort();
  if (const auto* beat = std::get_if<PulseBeat>(&*sign)) {
    if (*again != *sign || bytes.size() != size) std::abort();
    if (sluice::base::describe(beat->training).empty()) std::abort();
    (void)sluice::base::describeSince(beat->training.since);
  }
  return 0;
}
