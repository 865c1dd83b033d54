// Gradients that come slice by slice and results that are reported slice by slice, over all
// algorithms: every slice of a step is reported once, with its final bytes, before its tensor's gate
// opens; and gradients in parts, in any order, give the bits that whole ones give.
#include <cctype>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sluice/algorithms/testing/mad_world.h>

namespace sluice::algorithms {
namespace {

using Watched = MadSetting::Watched;

constexpr uint64_t kStepsWatched = 6;
constexpr uint64_t kSeedsWatched = 8;

// All of madSettings(), and forms in which slices wait for their tensor.
std::vector<MadSetting> watchedSettings() {
  std::vector<MadSetting> settings(madSettings().begin(), madSettings().end());
  settings.push_back({.algorithm = "kvstore", .servers = "dedicated:1", .overlaps = false});
  settings.push_back({.algorithm = "p3", .update = "adam:lr=0.5", .waitsForWord = true});
  settings.push_back({.algorithm = "sluice", .dgc = true, .clip = "1"});
  settings.push_back({.algorithm = "ssp:1", .dgc = true, .clip = "1"});
  settings.push_back({.algorithm = "asp", .waitsForWord = true});
  settings.push_back({.algorithm = "gosgd:1", .waitsForWord = true});
  settings.push_back({.algorithm = "allreduce", .waitsForWord = true, .dgc = true});
  return settings;
}

std::string nameOfWatched(const testing::TestParamInfo<MadSetting>& info) {
  std::string name = fmt::format("{}_{}_{}", info.index, info.param.algorithm, info.param.servers);
  if (info.param.dgc) name += "_dgc";
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

class Results : public testing::TestWithParam<MadSetting> {
 protected:
  static std::vector<std::vector<std::byte>> play(uint64_t seed, Watched watched, bool inParts) {
    MadSetting setting = GetParam();
    setting.watched = watched;
    setting.inParts = inParts;
    Choices choices(seed);
    return playLegal(setting, choices, kStepsWatched);
  }
};

TEST_P(Results, AreReportedOnceForEverySliceBeforeTheGateOpens) {
  for (uint64_t seed = 1; seed <= kSeedsWatched; ++seed) {
    SCOPED_TRACE(seed);
    const auto unheard = play(seed, Watched::kByObserver, /*inParts=*/false);
    const auto heard = play(seed, Watched::kBySink, /*inParts=*/false);
    EXPECT_EQ(heard, unheard);  // whoever listens changes nothing
  }
}

TEST_P(Results, AreTheSameBitsIfGradientsComeInParts) {
  const auto expected = play(0, Watched::kByObserver, /*inParts=*/false);
  for (uint64_t seed = 1; seed <= kSeedsWatched; ++seed) {
    SCOPED_TRACE(seed);
    for (const Watched watched : {Watched::kByObserver, Watched::kBySink}) {
      const auto inParts = play(seed, watched, /*inParts=*/true);
      if (isOrdered(GetParam())) {
        ASSERT_EQ(inParts, expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Results, testing::ValuesIn(watchedSettings()), nameOfWatched);

}  // namespace
}  // namespace sluice::algorithms
