#include <sluice/base/config.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include <sluice/base/options.h>

namespace sluice::base {
namespace {

using namespace std::chrono_literals;

std::string writeFile(const std::string& name, const std::string& text) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path) << text;
  return path;
}

TEST(Config, WithNothingSaidEveryValueIsItsValidDefault) {
  const Config config = Config::read({}, {{"PATH", "/bin"}}).value();
  for (const Option* option : allOptions()) {
    EXPECT_EQ(config.value(*option).text, option->fallback);
    EXPECT_EQ(config.value(*option).source, Source::kDefault);
    Config copy;
    EXPECT_TRUE(copy.set(*option, option->fallback).isOk()) << option->name;
    EXPECT_FALSE(option->help.empty()) << option->name;
  }
  EXPECT_TRUE(config.warnings().empty());
}

TEST(Config, NearerWins) {
  const std::string path = writeFile("nearer.json", R"({"log": "trace"})");
  const auto logOf = [](const Config& config) { return config.value(option::kLog); };

  const Config file = Config::read({{"config", path}}, {}).value();
  EXPECT_EQ(logOf(file).text, "trace");
  EXPECT_EQ(logOf(file).source, Source::kFile);
  EXPECT_EQ(logOf(file).origin, path);

  const Config::Values environment{{"SLUICE_CONFIG", path}, {"SLUICE_LOG", "warn"}};
  const Config variable = Config::read({}, environment).value();
  EXPECT_EQ(logOf(variable).text, "warn");
  EXPECT_EQ(logOf(variable).origin, "SLUICE_LOG");

  const Config flag = Config::read({{"log", "error"}}, environment).value();
  EXPECT_EQ(logOf(flag).text, "error");
  EXPECT_EQ(logOf(flag).source, Source::kFlag);
  EXPECT_EQ(logOf(flag).origin, "--log");
}

TEST(Config, AFileWithASecretIsItsOwnersAlone) {
  const std::string path = writeFile("secret.json", R"({"job-key": "0123"})");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const Status refused = Config::read({{"config", path}}, {}).status();
  EXPECT_EQ(refused.code(), Code::kPermissionDenied);
  EXPECT_EQ(refused.message(),
            path +
                " holds the secret 'job-key' but others may open it (mode 0640); run: chmod 600 " +
                path);
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_EQ(Config::read({{"config", path}}, {}).value().text(option::kJobKey), "0123");
}

// Another file takes the place of one that others may open, while that one is read.
TEST(Config, TheFileThatIsReadIsTheOneThatIsChecked) {
  const std::string path = testing::TempDir() + "swapped.json";
  ::unlink(path.c_str());
  const std::string other = writeFile("private.json", "{}");
  ASSERT_EQ(::chmod(other.c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(path.c_str(), 0644), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  std::jthread writer([&] {
    std::ofstream pipe(path);  // waits for the reader
    EXPECT_EQ(::rename(other.c_str(), path.c_str()), 0);
    pipe << R"({"job-key": "0123"})";
  });
  EXPECT_EQ(Config::read({{"config", path}}, {}).status().code(), Code::kPermissionDenied);
}

TEST(Config, AnUnknownVariableIsAnsweredWithTheNearestName) {
  const Config config =
      Config::read({}, {{"SLUICE_LGO", "info"}, {"SLUICE_XYZZY_PLUGH", "1"}}).value();
  ASSERT_EQ(config.warnings().size(), 2U);
  EXPECT_EQ(config.warnings()[0], "unknown variable 'SLUICE_LGO'; did you mean 'SLUICE_LOG'?");
  EXPECT_EQ(config.warnings()[1],
            "unknown variable 'SLUICE_XYZZY_PLUGH'; 'sluice config show' lists all");
}

TEST(Config, AFormerNameIsStillReadWithALineThatSaysSo) {
  const std::string path = writeFile("former.json", R"({"stall-s": "1s"})");
  const Config file = Config::read({{"config", path}}, {}).value();
  EXPECT_EQ(file.duration(option::kStallAfter), 1s);
  EXPECT_EQ(file.warnings(), std::vector<std::string>{"'stall-s' is now called 'stall-after'"});

  const Config variable = Config::read({}, {{"SLUICE_STALL_S", "2s"}}).value();
  EXPECT_EQ(variable.duration(option::kStallAfter), 2s);
  EXPECT_EQ(variable.warnings(),
            std::vector<std::string>{"'SLUICE_STALL_S' is now called 'SLUICE_STALL_AFTER'"});

  const Config both =
      Config::read({}, {{"SLUICE_STALL_S", "2s"}, {"SLUICE_STALL_AFTER", "3s"}}).value();
  EXPECT_EQ(both.duration(option::kStallAfter), 3s);
  EXPECT_EQ(both.warnings().size(), 1U);

  const Config flag = Config::read({{"stall-s", "4s"}}, {}).value();
  EXPECT_EQ(flag.duration(option::kStallAfter), 4s);
  EXPECT_EQ(flag.warnings(), std::vector<std::string>{"'stall-s' is now called 'stall-after'"});
}

TEST(Config, AutoIsReadAsSluiceWithOneWarningForAllThatIsLeftOfIt) {
  const std::string path = writeFile("auto.json", R"({"algorithm": "auto", "auto-steps": 5})");
  const Config all = Config::read({{"config", path}, {"auto-planner-timeout", "60s"}},
                                  {{"SLUICE_ALGORITHM", "auto"}, {"SLUICE_AUTO_PLANNER", "x"}})
                         .value();
  EXPECT_EQ(all.text(option::kAlgorithm), "sluice");
  ASSERT_EQ(all.warnings().size(), 1U);
  EXPECT_TRUE(all.warnings()[0].starts_with("algorithm=auto is gone and now means"));

  const Config option = Config::read({{"algorithm", "p3"}, {"auto-steps", "5"}}, {}).value();
  EXPECT_EQ(option.text(option::kAlgorithm), "p3");
  EXPECT_EQ(option.warnings(), all.warnings());
  EXPECT_TRUE(Config::read({{"algorithm", "sluice"}}, {}).value().warnings().empty());
}

TEST(Config, MistakesInAFileAreOneLineThatNamesIt) {
  const auto errorOf = [](const std::string& path) {
    return Config::read({{"config", path}}, {}).status().message();
  };
  const std::string typo = writeFile("typo.json", R"({"lgo": "info"})");
  EXPECT_EQ(errorOf(typo), typo + ": unknown option 'lgo'; did you mean 'log'?");
  const std::string broken = writeFile("broken.json", "log: info");
  const std::string noOptions = R"( is not a JSON object of options, like {"log": "debug"})";
  EXPECT_EQ(errorOf(broken), broken + noOptions + ": it is not JSON at byte 1");
  const std::string list = writeFile("list.json", "[]");
  EXPECT_EQ(errorOf(list), list + noOptions);
  const std::string deep = writeFile("deep.json", std::string(1'000'000, '['));
  EXPECT_EQ(errorOf(deep), deep + noOptions + ": it has more than 64 levels of lists and objects");
  const std::string large = writeFile("large.json", std::string(1'048'577, ' '));
  EXPECT_EQ(errorOf(large), "the configuration file " + large + " has more than 1048576 bytes");
  EXPECT_NE(errorOf("/nowhere/x.json").find("No such file"), std::string::npos);
}

TEST(Config, ASecretBeforeAnAtIsRefusedAndNotRepeated) {
  const std::string address = "etcd://root:hunter2@a:2379";
  const std::string path = writeFile("members.json", "{\"members\": \"" + address + "\"}");
  for (const Status& status : {Config::read({{"members", address}}, {}).status(),
                               Config::read({}, {{"SLUICE_MEMBERS", address}}).status(),
                               Config::read({{"config", path}}, {}).status()}) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_EQ(status.message().find("hunter2"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("root"), std::string::npos) << status.message();
    EXPECT_NE(status.message().find("members-password-file"), std::string::npos);
  }
}

TEST(Options, NamesAreUniqueAndMapToVariables) {
  std::set<std::string_view> names;
  for (const Option* option : allOptions()) {
    EXPECT_TRUE(names.insert(option->name).second) << option->name;
    EXPECT_EQ(findOption(option->name), option);
  }
  EXPECT_EQ(environmentName("stall-after"), "SLUICE_STALL_AFTER");
  EXPECT_EQ(findOption("nothing"), nullptr);
}

TEST(Config, ALineBreakIsRefused) {
  const Status status = Config::read({{"algorithm", "p3\nsluice"}}, {}).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("line break"), std::string::npos) << status.message();
  EXPECT_FALSE(Config::read({}, {{"SLUICE_IFACE", "eth0\n"}}).isOk());
}

TEST(Config, AnUnknownFlagIsAnsweredWithTheNearestName) {
  const Status status = Config::read({{"algo-rithm", "p3"}}, {}).status();
  EXPECT_EQ(status, Status(Code::kInvalidArgument,
                           "unknown option 'algo-rithm'; did you mean 'algorithm'?"));
}

}  // namespace
}  // namespace sluice::base
