#include <sluice/base/json.h>

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace sluice::base {
namespace {

using nlohmann::json;
using testing::ElementsAre;

std::string nested(size_t levels) {
  return std::string(levels, '[') + std::string(levels, ']');
}

std::string errorOf(const std::string& text, const JsonLimits& limits = {}) {
  const auto parsed = parseJson(text, limits);
  return parsed.isOk() ? "ok" : parsed.status().message();
}

TEST(Json, IsReadAsTheLibraryReadsIt) {
  for (const std::string text :
       {R"({})", R"([])", R"(7)", R"("a")", R"(null)", R"([1,-2,3.5,true,false,null,"x",[],{}])",
        R"({"a":{"b":[{"c":1},{"d":[2,[3]]}],"e":{}},"f":"\u00e4","g":18446744073709551615})",
        R"({"a":1,"a":{"b":2},"c":[[1],[2,3]]})", R"([[[[]]],{"a":[[]]},5])"}) {
    const auto parsed = parseJson(text);
    ASSERT_TRUE(parsed.isOk()) << text << parsed.status().toString();
    EXPECT_EQ(*parsed, json::parse(text)) << text;
  }
}

TEST(Json, WhatIsNotJsonIsNamedByItsPlace) {
  EXPECT_EQ(errorOf(""), "it is not JSON at byte 1");
  EXPECT_EQ(errorOf("x"), "it is not JSON at byte 1");
  EXPECT_EQ(errorOf("{\"a\":"), "it is not JSON at byte 6");
  EXPECT_EQ(errorOf("[1] x"), "it is not JSON at byte 5");
  EXPECT_EQ(errorOf("[\"\xff\"]"), "it is not JSON at byte 3");
  EXPECT_EQ(errorOf("[1e999]"), "it has a number that is not possible, at byte 6");
  EXPECT_EQ(errorOf("[1] // one"), "it is not JSON at byte 5");
  EXPECT_EQ(errorOf("[1] // one\n", {.mayHaveComments = true}), "ok");
}

TEST(Json, EveryLimitEndsTheParser) {
  EXPECT_EQ(errorOf(nested(kDeepestJson)), "ok");
  EXPECT_EQ(errorOf(nested(kDeepestJson + 1)), "it has more than 64 levels of lists and objects");
  EXPECT_EQ(errorOf("[1,2,3]", {.mostValues = 4}), "ok");
  EXPECT_EQ(errorOf("[1,2,3,4]", {.mostValues = 4}), "it has more than 4 values");
  EXPECT_EQ(errorOf(R"({"a":1,"b":{}})", {.mostValues = 2}), "it has more than 2 values");
  EXPECT_EQ(errorOf("[1,2]", {.mostBytes = 5}), "ok");
  EXPECT_EQ(errorOf("[1,2] ", {.mostBytes = 5}), "it has more than 5 bytes");
  // The text behind a limit is not even looked at.
  EXPECT_EQ(errorOf(std::string(1'000'000, '[')),
            "it has more than 64 levels of lists and objects");
  std::string wide = "[";
  for (int i = 0; i < 100'000; ++i) wide += "{\"\":";
  EXPECT_EQ(errorOf(wide), "it has more than 64 levels of lists and objects");
}

struct PartsRead {
  std::vector<std::string> elements;
  Result<json> beside;
};

PartsRead read(const std::string& text, const JsonLimits& limits = {}) {
  std::vector<std::string> elements;
  std::istringstream stream(text);
  auto beside =
      readJsonParts(stream,
                    {.list = "all",
                     .kept = {"kept", "more"},
                     .take = [&](json& element, uint64_t number, const json& before) -> Status {
                       EXPECT_EQ(number, elements.size());
                       EXPECT_FALSE(before.contains("more"));
                       if (element == "stop") return {Code::kCancelled, "stopped"};
                       elements.push_back(element.dump());
                       return ok();
                     }},
                    limits);
  return {std::move(elements), std::move(beside)};
}

TEST(Json, AnErrorShowsTheBeginningOfAValue) {
  EXPECT_EQ(shortText(json::parse("[1,\"a\"]")), "[1,\"a\"]");
  EXPECT_EQ(shortText(std::string(1000, 'x')), "\"" + std::string(59, 'x') + "...");
}

TEST(JsonParts, ElementsAreHandedOutAndTheRestIsKeptOrNot) {
  const auto parts = read(
      R"({"none":[[{"all":[1]}]],"kept":{"all":[1]},"all":[1,"a",[],[[2],3],{"b":{"c":[4]}},null],)"
      R"("more":5,"also":{"kept":6}})");
  ASSERT_TRUE(parts.beside.isOk()) << parts.beside.status().toString();
  EXPECT_EQ(*parts.beside, json::parse(R"({"kept":{"all":[1]},"more":5})"));
  EXPECT_THAT(parts.elements,
              ElementsAre("1", "\"a\"", "[]", "[[2],3]", "{\"b\":{\"c\":[4]}}", "null"));
  EXPECT_TRUE(read(R"({"all":[]})").beside.isOk());
}

TEST(JsonParts, OtherTextsAreRefusedInOneLine) {
  const auto why = [](const std::string& text, const JsonLimits& limits = {}) {
    const auto parts = read(text, limits);
    return parts.beside.isOk() ? "ok" : parts.beside.status().message();
  };
  for (const char* text : {"7", "[]", "null", "\"all\""})
    EXPECT_EQ(why(text), "it is not a JSON object") << text;
  EXPECT_EQ(why("{}"), "it has no list 'all'");
  EXPECT_EQ(why(R"({"kept":{"all":[]}})"), "it has no list 'all'");
  for (const char* text : {R"({"all":7})", R"({"all":{}})", R"({"all":"x"})"})
    EXPECT_EQ(why(text), "its 'all' is not a list") << text;
  EXPECT_EQ(why(R"({"all":[1,"stop",2]})"), "stopped");
  EXPECT_EQ(why(R"({"all":[)"), "it is not JSON at byte 9");
  const std::string deep = "it has more than 64 levels of lists and objects";
  for (const char* member : {"other", "kept", "all"})
    EXPECT_EQ(why("{\"" + std::string(member) + "\":" + nested(kDeepestJson)), deep) << member;
  // The number of values is that of one element, or of one member.
  EXPECT_EQ(why(R"({"all":[[1],[2],[3],[4]],"kept":[1]})", {.mostValues = 2}), "ok");
  EXPECT_EQ(why(R"({"all":[[1],[2,3]]})", {.mostValues = 2}), "it has more than 2 values");
  EXPECT_EQ(why(R"({"kept":[1,2],"all":[]})", {.mostValues = 2}), "it has more than 2 values");
  EXPECT_EQ(why(R"({"other":[1,2,3],"all":[]})", {.mostValues = 2}), "ok");
}

}  // namespace
}  // namespace sluice::base
