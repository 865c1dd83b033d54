// One rank of a job sends anything at all: nobody crashes, hangs or holds more than it may. And any
// legal order of events ends with the same bits.
//
// SLUICE_MAD_ROUNDS=1000000 plays so many messages of a mad rank for each setting.
#include <cstdlib>

#include <gtest/gtest.h>

#include <sluice/algorithms/testing/mad_world.h>
#include <sluice/base/units.h>

namespace sluice::algorithms {
namespace {

uint64_t madRounds() {
  if (const char* text = std::getenv("SLUICE_MAD_ROUNDS")) return base::parseInteger(text).value();
  return 400;
}

std::string nameOf(const testing::TestParamInfo<MadSetting>& info) {
  std::string name = fmt::format("{}_{}_{}", info.index, info.param.algorithm, info.param.servers);
  if (info.param.dgc) name += "_dgc";
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

class MadMember : public testing::TestWithParam<MadSetting> {};

TEST_P(MadMember, NothingItSendsHarmsAnother) {
  constexpr size_t kInputsOfAWorld = 60;
  const uint64_t wanted = madRounds();
  uint64_t inputs = 0;
  for (uint64_t seed = 1; inputs < wanted; ++seed) {
    SCOPED_TRACE(seed);
    Choices choices(seed);
    inputs += std::max<uint64_t>(1, playMad(GetParam(), choices, kInputsOfAWorld));
  }
}

TEST_P(MadMember, AnyLegalOrderOfEventsGivesTheSameBits) {
  // In some the order of events decides: those must end without an error, and with nothing refused.
  constexpr uint64_t kSteps = 4;
  const uint64_t rounds = std::clamp<uint64_t>(madRounds() / 100, 3, 10'000);
  Choices first(uint64_t{0});
  const auto expected = playLegal(GetParam(), first, kSteps);
  for (uint64_t seed = 1; seed <= rounds; ++seed) {
    SCOPED_TRACE(seed);
    Choices choices(seed);
    const auto results = playLegal(GetParam(), choices, kSteps);
    if (isOrdered(GetParam())) {
      ASSERT_EQ(results, expected);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MadMember,
                         testing::ValuesIn(madSettings().begin(), madSettings().end()), nameOf);

}  // namespace
}  // namespace sluice::algorithms
