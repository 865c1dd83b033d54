#include <sluice/join/membership/etcd/etcd_json.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <sluice/join/membership/etcd/base64.h>

namespace sluice::membership {
namespace {

using nlohmann::json;

TEST(Base64, ComesBack) {
  EXPECT_TRUE(rc::check(
      [](const std::string& bytes) { RC_ASSERT(*fromBase64(toBase64(bytes)) == bytes); }));
  EXPECT_EQ(toBase64("sluice"), "c2x1aWNl");
  EXPECT_EQ(toBase64("a"), "YQ==");
  for (const std::string wrong :
       {"a", "ab", "abc", "====", "a===", "ab=c", "ab?=", "\xff\xff\xff\xff"})
    EXPECT_FALSE(fromBase64(wrong)) << wrong;
}

TEST(EtcdJson, ZeroValuesAreAbsent) {
  const auto appended = readAppended(
      json::parse(R"({"header":{"revision":"7"},"responses":[{"response_range":{"header":{}}}]})"));
  ASSERT_TRUE(appended.isOk());
  EXPECT_FALSE(appended->done);
  EXPECT_TRUE(appended->there.entries.empty());
  EXPECT_EQ(appended->there.revision, 7U);
  EXPECT_TRUE(readListing(json::parse(R"({"header":{"revision":"7"}})"), 1)->entries.empty());
  EXPECT_FALSE(*readKeptLease(json::parse(R"({"result":{"ID":"5"}})")));
  EXPECT_TRUE(*readKeptLease(json::parse(R"({"result":{"ID":"5","TTL":"9"}})")));
}

TEST(EtcdJson, ALineOfAWatchIsReadWhole) {
  const auto created = readWatchLine(R"({"result":{"header":{"revision":"4"},"created":true}})");
  EXPECT_TRUE(created->isCreated);
  EXPECT_EQ(created->revision, 4U);
  const auto events = readWatchLine(
      R"({"result":{"header":{"revision":"8"},"events":[{"kv":{"key":"YQ==","value":"Yg==",)"
      R"("mod_revision":"5"}},{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"8"}}]}})");
  ASSERT_EQ(events->puts.size(), 1U);
  EXPECT_EQ(events->puts[0].key, "a");
  EXPECT_EQ(events->puts[0].value, "b");
  EXPECT_EQ(events->puts[0].revision, 5U);
  EXPECT_EQ(events->revision, 8U);
  EXPECT_EQ(readWatchLine(R"({"result":{"canceled":true,"compact_revision":"9"}})")->ended,
            "the server has cancelled the watch");
  EXPECT_EQ(readWatchLine(R"({"error":{"grpc_code":14,"message":"etcdserver: no leader"}})")->ended,
            "etcdserver: no leader");
}

TEST(EtcdJson, AnErrorIsFoundInAnswersAndStreams) {
  EXPECT_FALSE(readError(json::parse(R"({"header":{}})")));
  const auto plain = readError(json::parse(R"({"error":"a","message":"b","code":5})"));
  EXPECT_EQ(plain->code, 5);
  EXPECT_EQ(plain->message, "b");
  EXPECT_EQ(readError(json::parse(R"({"error":"a\u001b"})"))->message, "a\\x1b");
  EXPECT_EQ(readError(json::parse(R"({"error":{"grpc_code":14,"message":"c"}})"))->code, 14);
}

// Another server, or a stranger on the way, may answer anything.
TEST(EtcdJson, AnyOtherAnswerIsRefused) {
  for (const std::string& text :
       std::vector<std::string>{"", "x", "[]", "1", "null", "\"a\"", "{\"a\":", "{\"result\":5}x",
                                std::string(100'000, '[')})
    EXPECT_EQ(parseAnswer(text).status().code(), Code::kDataLoss) << text.substr(0, 20);
  for (const std::string text :
       {R"({"succeeded":5})", R"({"responses":[]})", R"({"responses":5})", R"({"responses":[5]})",
        R"({"responses":[{"response_range":{"kvs":5}}]})",
        R"({"responses":[{"response_range":{"kvs":[5]}}]})",
        R"({"responses":[{"response_range":{"kvs":[{"key":"?"}]}}]})",
        R"({"responses":[{"response_range":{"kvs":[{"key":5,"mod_revision":"x"}]}}]})",
        R"({"responses":[{"response_range":{"kvs":[{"mod_revision":"99999999999999999999"}]}}]})",
        R"({"responses":[{"response_range":{"kvs":[{"mod_revision":"-1"}]}}]})"})
    EXPECT_FALSE(readAppended(json::parse(text)).isOk()) << text;
  for (const std::string text :
       {R"({})", R"({"result":{"created":5}})", R"({"result":{"events":5}})",
        R"({"result":{"events":[5]}})", R"({"result":{"events":[{"kv":5}]}})",
        R"({"result":{"events":[{}]}})"})
    EXPECT_FALSE(readWatchLine(text).isOk()) << text;
  EXPECT_FALSE(readGrantedLease(json::parse("{}")).isOk());
  EXPECT_FALSE(readKeptLease(json::parse("{}")).isOk());
  EXPECT_FALSE(readKeptLease(json::parse(R"({"result":{"TTL":{}}})")).isOk());
}

std::string repeatedJson(const std::string& text, size_t times) {
  std::string all = "[" + text;
  for (size_t i = 1; i < times; ++i) all += "," + text;
  return all + "]";
}

TEST(EtcdJson, AnAnswerHasLimits) {
  const auto why = [](const std::string& text) { return parseAnswer(text).status().message(); };
  EXPECT_EQ(why(R"({"a":")" + std::string(kLargestEtcdAnswer, 'x') + "\"}"),
            "it has more than 1048576 bytes");
  EXPECT_EQ(why(R"({"a":)" + std::string(100, '[')),
            "it has more than 64 levels of lists and objects");
  EXPECT_EQ(why(R"({"a":)" + repeatedJson("0", 10'000) + "}"), "it has more than 10000 values");
  const std::string entry = R"({"key":"YQ==","mod_revision":"5"})";
  const auto three = json::parse(R"({"kvs":)" + repeatedJson(entry, 3) + "}");
  EXPECT_EQ(readListing(three, 3)->entries.size(), 3U);
  EXPECT_FALSE(readListing(three, 2).isOk());
  EXPECT_FALSE(readWatchLine(R"({"result":{"events":)" +
                             repeatedJson(R"({"kv":)" + entry + "}", 1001) + "}}")
                   .isOk());
}

TEST(EtcdJson, ATokenIsOneWord) {
  EXPECT_EQ(readToken(json::parse(R"({"token":"aB.17"})")).value(), "aB.17");
  for (const std::string text : {R"({})", R"({"token":""})", R"({"token":7})", R"({"token":"a b"})",
                                 R"({"token":"a\r\nX-Other: b"})", R"({"token":"\u00e4"})"})
    EXPECT_EQ(readToken(json::parse(text)).status().code(), Code::kDataLoss) << text;
  EXPECT_FALSE(readToken(json{{"token", std::string(8193, 'a')}}).isOk());
}

TEST(EtcdJson, ErrorsThatANewTokenHelpsAgainstAreKnown) {
  EXPECT_TRUE((EtcdError{16, "anything"}.isAboutToken()));
  EXPECT_TRUE((EtcdError{3, "etcdserver: revision of auth store is old"}.isAboutToken()));
  EXPECT_TRUE((EtcdError{3, "etcdserver: user name is empty"}.isAboutToken()));
  EXPECT_FALSE((EtcdError{7, "etcdserver: permission denied"}.isAboutToken()));
  const std::string denied =
      R"({"result":{"created":true,"canceled":true,"cancel_reason":"etcdserver: permission denied"}})";
  EXPECT_TRUE(readWatchLine(denied)->mayNeedToken);
  EXPECT_FALSE(readWatchLine(R"({"result":{"canceled":true}})")->mayNeedToken);
  EXPECT_TRUE(
      readWatchLine(R"({"error":{"grpc_code":16,"message":"invalid auth token"}})")->mayNeedToken);
}

TEST(EtcdJson, ARequestHasWhatEtcdExpects) {
  const KeyRange range{"a", "b"};
  const auto append = json::parse(appendRequest({.key = "k",
                                                 .value = "v",
                                                 .latch = "l",
                                                 .absent = range,
                                                 .opened = Latch{"o", 7},
                                                 .forgotten = range}));
  EXPECT_EQ(append["compare"][0]["create_revision"], "0");
  EXPECT_EQ(append["compare"][0]["range_end"], "Yg==");
  EXPECT_EQ(append["compare"][1]["create_revision"], "7");
  EXPECT_EQ(append["success"][0]["request_put"]["value"], "dg==");
  EXPECT_EQ(json::parse(loginRequest("a", "b")), json({{"name", "a"}, {"password", "b"}}));
  const auto watch = json::parse(watchRequest(range, 0));
  EXPECT_FALSE(watch["create_request"].contains("start_revision"));
  EXPECT_EQ(json::parse(watchRequest(range, 5))["create_request"]["start_revision"], "5");
}

}  // namespace
}  // namespace sluice::membership
