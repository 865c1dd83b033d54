#include <sluice/join/rendezvous/agreement.h>

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <sluice/base/options.h>

namespace sluice::rendezvous {
namespace {

Agreement of(std::initializer_list<std::pair<std::string, std::string>> pairs) {
  Agreement agreement;
  for (const auto& [name, value] : pairs) agreement.add(name, value);
  return agreement;
}

TEST(Agreement, TheOrderOfAddingDoesNotMatter) {
  EXPECT_EQ(of({{"a", "1"}, {"b", "2"}}).hash(), of({{"b", "2"}, {"a", "1"}}).hash());
  EXPECT_NE(of({{"a", "1"}}).hash(), of({{"a", "2"}}).hash());
  EXPECT_NE(of({{"a", "1"}}).hash(), of({{"a", "1"}, {"b", ""}}).hash());
}

TEST(Agreement, NamesEveryDifferenceInOneLine) {
  const auto difference = [](const Agreement& theirs, const Agreement& ours) {
    return Agreement::describeDifference(theirs, "rank 3", ours, "rank 0");
  };
  EXPECT_EQ(difference(of({{"a", "1"}}), of({{"a", "1"}})), "");
  EXPECT_EQ(difference(of({{"world size", "4"}}), of({{"world size", "8"}})),
            "world size is 4 on rank 3 but 8 on rank 0");
  EXPECT_EQ(difference(of({{"a", "1"}, {"new", "x"}}), of({{"a", "2"}, {"old", "y"}})),
            "a is 1 on rank 3 but 2 on rank 0; new is x on rank 3 but unknown on rank 0; "
            "old is unknown on rank 3 but y on rank 0");
}

TEST(Agreement, ALaunchDiffersOnlyWhereBothSidesNameIt) {
  const auto launched = [](const std::string& id) {
    Agreement agreement = of({{"a", "1"}});
    agreement.addLaunchId("SLURM_JOB_ID", id);
    return agreement;
  };
  const auto other = [](const Agreement& theirs, const Agreement& ours) {
    return Agreement::describeOtherLaunch(theirs, "rank 3", ours, "rank 0");
  };
  EXPECT_EQ(other(launched("4"), launched("5")), "SLURM_JOB_ID is 4 on rank 3 but 5 on rank 0");
  EXPECT_EQ(other(launched("4"), launched("4")), "");
  EXPECT_EQ(other(of({{"a", "1"}}), launched("5")), "");
  EXPECT_EQ(Agreement::describeDifference(of({{"a", "1"}}), "rank 3", launched("5"), "rank 0"), "");
}

TEST(Agreement, ALineBreakInAValueDoesNotBreakIt) {
  EXPECT_EQ(Agreement::decode(of({{"a", "1\nb=2"}}).encode()).value().hash(),
            of({{"a", "1 b=2"}}).hash());
}

TEST(Agreement, HoldsVersionAndWorldSize) {
  const Agreement two(base::Config(), 2);
  EXPECT_NE(two.encode().find("world size=2\n"), std::string::npos);
  EXPECT_NE(two.encode().find("sluice version="), std::string::npos);
  EXPECT_NE(two.hash(), Agreement(base::Config(), 3).hash());
}

// A rank that differs in one of these could not talk to the others, or would compute something
// else.
TEST(Agreement, HoldsEveryOptionThatRanksMustShareAndNoOther) {
  const std::string defaults = Agreement(base::Config(), 2).encode();
  struct Case {
    const base::Option& option;
    std::string_view value;
    bool isShared;
  };
  for (const Case& c :
       {Case{option::kAlgorithm, "p3", true}, Case{option::kEncrypt, "on", true},
        Case{option::kFabric, "ucx", true}, Case{option::kHeartbeatInterval, "1s", true},
        Case{option::kServers, "1", true}, Case{option::kSilenceLimit, "20s", true},
        Case{option::kSliceElements, "7", true}, Case{option::kUcxTransports, "rc,tcp", true},
        Case{option::kCredit, "7", false}, Case{option::kIface, "eth7", false},
        Case{option::kLog, "debug", false}, Case{option::kMetricsPort, "9000", false},
        Case{option::kTrace, "here", false}, Case{option::kWaitTimeout, "7s", false}}) {
    base::Config config;
    ASSERT_TRUE(config.set(c.option, c.value).isOk()) << c.option.name;
    const std::string changed = Agreement(config, 2).encode();
    EXPECT_EQ(changed != defaults, c.isShared) << c.option.name;
  }
}

TEST(Agreement, IsDecodedAsItWasEncodedAndGarbageIsRefusedOrHarmless) {
  const Agreement agreement = of({{"a", "1=2"}, {"b", ""}});
  EXPECT_EQ(Agreement::decode(agreement.encode()).value().encode(), agreement.encode());
  EXPECT_FALSE(Agreement::decode("a=1").isOk());
  EXPECT_FALSE(Agreement::decode("a\n").isOk());
  EXPECT_TRUE(rc::check([](const std::string& text) {
    const auto decoded = Agreement::decode(text);
    if (decoded.isOk()) RC_ASSERT(Agreement::decode(decoded->encode()).isOk());
  }));
}

TEST(Agreement, ADifferenceIsPrintedWithControlCharactersEscaped) {
  Agreement theirs;
  theirs.add("algorithm", "\x1b[2Jp3");
  Agreement ours;
  ours.add("algorithm", "p3");
  EXPECT_EQ(Agreement::describeDifference(theirs, "rank 1", ours, "rank 0"),
            "algorithm is \\x1b[2Jp3 on rank 1 but p3 on rank 0");
}

}  // namespace
}  // namespace sluice::rendezvous
