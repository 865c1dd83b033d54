#include <sluice/observe/metrics/http_request.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice::metrics {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

Asked asked(std::string_view text) {
  return readRequest(text, "/metrics");
}

TEST(HttpRequest, IsReadByItsFirstLine) {
  EXPECT_EQ(asked("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Asked::kPage);
  EXPECT_EQ(asked("GET /metrics?name=a HTTP/1.0\r\n\r\n"), Asked::kPage);
  EXPECT_EQ(asked("GET /metrics HTTP/1.1\nHost: x\n\n"), Asked::kPage);
  EXPECT_EQ(asked("HEAD /metrics HTTP/1.1\r\n\r\n"), Asked::kHead);
  EXPECT_EQ(asked("POST /metrics HTTP/1.1\r\nContent-Length: 4000000000\r\n\r\nxxxx"),
            Asked::kOtherMethod);
  EXPECT_EQ(asked("GET / HTTP/1.1\r\n\r\n"), Asked::kElsewhere);
  EXPECT_EQ(asked("GET /metrics/ HTTP/1.1\r\n\r\n"), Asked::kElsewhere);
  EXPECT_EQ(asked("GET /../../etc/passwd HTTP/1.1\r\n\r\n"), Asked::kElsewhere);
  EXPECT_EQ(asked("GET /%6detrics HTTP/1.1\r\n\r\n"), Asked::kElsewhere);
}

TEST(HttpRequest, AnythingElseIsMalformed) {
  for (const std::string_view text :
       {"\r\n\r\n", "GET\r\n\r\n", "GET /metrics\r\n\r\n", "GET /metrics HTTP/2\r\n\r\n",
        "GET /metrics HTTP/1.1 \r\n\r\n", "GET metrics HTTP/1.1\r\n\r\n",
        "GET  /metrics HTTP/1.1\r\n\r\n", "GET /metrics\x01 HTTP/1.1\r\n\r\n",
        "GET /\xff HTTP/1.1\r\n\r\n", "GET http://x/metrics HTTP/1.1\r\n\r\n"}) {
    EXPECT_EQ(asked(text), Asked::kMalformed) << text;
  }
}

TEST(HttpRequest, WaitsForItsEndUpToALimit) {
  const std::string whole = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
  for (size_t got = 0; got < whole.size() - 1; ++got) {
    EXPECT_EQ(asked(std::string_view(whole).substr(0, got)), Asked::kMore) << got;
  }
  EXPECT_EQ(asked(std::string(kLargestRequestBytes - 1, 'a')), Asked::kMore);
  EXPECT_EQ(asked(std::string(kLargestRequestBytes, 'a')), Asked::kTooLong);
  EXPECT_EQ(
      asked("GET /metrics HTTP/1.1\r\nX: " + std::string(kLargestRequestBytes, 'a') + "\r\n\r\n"),
      Asked::kTooLong);
}

TEST(HttpRequest, EveryAnswerHasALengthAndEndsTheConnection) {
  for (const auto& [what, begin] :
       {std::pair{Asked::kPage, "HTTP/1.1 200 OK\r\n"}, std::pair{Asked::kHead, "HTTP/1.1 200 "},
        std::pair{Asked::kElsewhere, "HTTP/1.1 404 "},
        std::pair{Asked::kOtherMethod, "HTTP/1.1 405 "},
        std::pair{Asked::kTooLong, "HTTP/1.1 431 "},
        std::pair{Asked::kMalformed, "HTTP/1.1 400 "}}) {
    const std::string text = answerTo(what, "/metrics", "page\n");
    EXPECT_THAT(text, StartsWith(begin));
    EXPECT_THAT(text, HasSubstr("\r\nConnection: close\r\n"));
    const std::string body = text.substr(text.find("\r\n\r\n") + 4);
    const size_t length = what == Asked::kHead ? 5 : body.size();
    EXPECT_THAT(text, HasSubstr(fmt::format("\r\nContent-Length: {}\r\n", length)));
  }
  EXPECT_THAT(answerTo(Asked::kPage, "/metrics", "page\n"), EndsWith("\r\n\r\npage\n"));
  EXPECT_THAT(answerTo(Asked::kHead, "/metrics", "page\n"), EndsWith("\r\n\r\n"));
  EXPECT_THAT(answerTo(Asked::kOtherMethod, "/metrics", ""), HasSubstr("\r\nAllow: GET, HEAD\r\n"));
}

}  // namespace
}  // namespace sluice::metrics
