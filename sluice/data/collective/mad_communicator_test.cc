// One rank of a process group sends anything at all: nobody crashes, hangs or keeps more than it
// may. And any legal order of events ends every call with the right bytes.
#include <cstdlib>

#include <gtest/gtest.h>

#include <sluice/base/units.h>
#include <sluice/data/collective/testing/mad_communicator.h>

namespace sluice::collective {
namespace {

uint64_t madRoundsOfGroup() {
  const char* text = std::getenv("SLUICE_MAD_ROUNDS");
  return text == nullptr ? 2000 : static_cast<uint64_t>(base::parseInteger(text).value());
}

TEST(MadCommunicator, NothingItSendsHarmsAnother) {
  const uint64_t wanted = madRoundsOfGroup();
  uint64_t inputs = 0;
  for (uint64_t seed = 1; inputs < wanted; ++seed) {
    SCOPED_TRACE(seed);
    fabric::Choices choices(seed);
    MadGroup group(3, Rank{static_cast<uint32_t>(choices.below(3))}, choices);
    group.play(30);
    inputs += std::max<uint64_t>(1, group.inputs());
  }
}

TEST(MadCommunicator, AnyLegalOrderOfEventsEndsEveryCallWithTheRightBytes) {
  const uint64_t rounds = std::clamp<uint64_t>(madRoundsOfGroup() / 500, 5, 10'000);
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    SCOPED_TRACE(seed);
    fabric::Choices choices(seed);
    MadGroup group(2 + seed % 3, std::nullopt, choices);
    ASSERT_TRUE(group.callAll(40));
    ASSERT_EQ(group.wrong(), 0U);
  }
}

}  // namespace
}  // namespace sluice::collective
