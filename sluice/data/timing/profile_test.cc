#include <sluice/data/timing/profile.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

namespace sluice::timing {
namespace {

TEST(Profile, TheBuiltInOnesHaveTheSizesOfTheirModels) {
  const struct {
    const char* name;
    size_t tensors;
    uint64_t parameters;
  } cases[] =
      {
          {"resnet50", 161, 25'557'032},  // torchvision's counts
          {"vgg19", 38, 143'667'240},     {"inceptionv3", 284, 23'834'568},
          {"vgg16", 32, 138'357'544},     {"resnet18", 62, 11'689'512},
          {"resnet110", 329, 1'727'962},   // with shortcuts that have no parameters
          {"alexnet", 16, 60'965'224},     // as first published, with groups
          {"googlenet", 128, 13'378'280},  // Caffe's, with the classifiers that help training
          {"sockeye", 21, 48'855'704},     // a reconstruction: the sum of its own table
      };
  EXPECT_EQ(builtInProfiles().size(), std::size(cases));
  for (const auto& c : cases) {
    const auto profile = findProfile(c.name);
    ASSERT_TRUE(profile.isOk()) << profile.status().toString();
    EXPECT_EQ(profile->tensors.size(), c.tensors) << c.name;
    EXPECT_EQ(profile->parameters(), c.parameters) << c.name;
    EXPECT_EQ(profile->toModel(DType::kBF16).bytes(), 2 * profile->parameters());
    double forward = 0;
    for (const auto& tensor : profile->tensors) forward += tensor.forward;
    EXPECT_NEAR(forward, 1.0 / 3, 1e-4) << c.name;  // backward takes twice forward
  }
}

TEST(Profile, IsFoundByPathToo) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "sluice_profile_test.json";
  std::ofstream(path) << R"({"model": "m", "note": "n", "tensors": [
    {"name": "w", "parameters": 5, "forward": 0.25, "backward": 0.75}]})";
  const auto profile = findProfile(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(profile.isOk()) << profile.status().toString();
  EXPECT_EQ(profile->tensors, (std::vector<ProfileTensor>{{"w", 5, 0.25, 0.75}}));
  EXPECT_EQ(
      findProfile("resnet5").status().message(),
      "there is no profile 'resnet5': name a file, or one of alexnet, googlenet, inceptionv3, "
      "resnet110, resnet18, resnet50, sockeye, vgg16, vgg19");
}

// P3 and the analysis paper print them.
TEST(Profile, TheLargestLayersOfVggHaveTheSharesThatThePapersPrint) {
  for (const auto& [name, share] : {std::pair("vgg19", 0.715), std::pair("vgg16", 0.743)}) {
    const Profile profile = findProfile(name).value();
    uint64_t largest = 0;
    for (const auto& tensor : profile.tensors) largest = std::max(largest, tensor.parameters);
    EXPECT_NEAR(static_cast<double>(largest) / static_cast<double>(profile.parameters()), share,
                0.0005)
        << name;
  }
}

TEST(Profile, ShrinkingDividesSizesAndLeavesTimes) {
  const Profile whole = findProfile("resnet50").value();
  const Profile small = whole.shrunk(8);
  EXPECT_EQ(whole.shrunk(1).tensors, whole.tensors);
  ASSERT_EQ(small.tensors.size(), whole.tensors.size());
  for (size_t t = 0; t < whole.tensors.size(); ++t) {
    EXPECT_EQ(small.tensors[t].parameters, (whole.tensors[t].parameters + 7) / 8);
    EXPECT_EQ(small.tensors[t].forward, whole.tensors[t].forward);
    EXPECT_EQ(small.tensors[t].backward, whole.tensors[t].backward);
  }
}

TEST(Profile, MistakesAreNamedInOneLine) {
  const std::string head = R"({"model": "m", "note": "n", "tensors": [)";
  const std::pair<std::string, std::string> cases[] = {
      {"", "f: it is not JSON at byte 1"},
      {std::string(1'000'000, '['), "f: it has more than 64 levels of lists and objects"},
      {"[1]", "f: it must be a JSON object"},
      {"{}", "f: 'model' must be a text"},
      {R"({"model": 3})", "f: 'model' must be a text"},
      {R"({"model": "m", "note": "n"})", "f: 'tensors' must be a list"},
      {head + "]}", "f: the model has no tensors: there is nothing to synchronise"},
      {head + "1]}", "f: tensor 0: it must be a JSON object"},
      {head + R"({"name": "w"}]})", "f: tensor 0: 'parameters' must be a whole number"},
      {head + R"({"name": "w", "parameters": -1}]})",
       "f: tensor 0: 'parameters' must be a whole number"},
      {head + R"({"name": "w", "parameters": 1.5}]})",
       "f: tensor 0: 'parameters' must be a whole number"},
      {head + R"({"name": "w", "parameters": 1, "forward": 2}]})",
       "f: tensor 0: 'forward' must be a number from 0 to 1"},
      {head + R"({"name": "w", "parameters": 1, "forward": 0.5, "backward": "x"}]})",
       "f: tensor 0: 'backward' must be a number from 0 to 1"},
      {head + R"({"name": "w", "parameters": 0, "forward": 0.5, "backward": 0.5}]})",
       "f: tensor 0 'w' has no elements: leave it out of the model"},
      {head + R"({"name": "w", "parameters": 1, "forward": 0.5, "backward": 0.25}]})",
       "f: the shares of forward and backward add up to 0.750000, not to 1"},
  };
  for (const auto& [json, message] : cases) {
    EXPECT_EQ(parseProfile(json, "f").status().message(), message) << json;
  }
}

}  // namespace
}  // namespace sluice::timing
