// One member of a job sends what the bytes say: the first picks an algorithm or the process group,
// the others make every choice of the mad rank, and the order of events
// (algorithms/testing/mad_world.h).
#include <cstddef>
#include <cstdint>

#include <sluice/algorithms/testing/mad_world.h>
#include <sluice/data/collective/testing/mad_communicator.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  constexpr size_t kInputs = 60;
  const auto settings = sluice::algorithms::madSettings();
  const size_t which = data[0] % (settings.size() + 1);
  sluice::fabric::Choices choices(std::span(data + 1, size - 1));
  if (which < settings.size()) {
    sluice::algorithms::playMad(settings[which], choices, kInputs);
  } else {
    sluice::collective::MadGroup group(3, sluice::Rank{static_cast<uint32_t>(choices.below(3))},
                                       choices);
    group.play(kInputs);
  }
  return 0;
}
