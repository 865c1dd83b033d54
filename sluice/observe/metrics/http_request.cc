#include <sluice/observe/metrics/http_request.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::metrics {
namespace {

// The format of a page of Prometheus.
constexpr std::string_view kPageType = "text/plain; version=0.0.4; charset=utf-8";
constexpr std::string_view kTextType = "text/plain; charset=utf-8";

bool isPrintable(std::string_view line) {
  return std::ranges::all_of(line, [](char c) { return c >= ' ' && c < 0x7f; });
}

std::string answer(std::string_view status, std::string_view type, std::string_view more,
                   size_t bytes, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nX-Content-Type-Options: nosniff\r\n"
      "{}Connection: close\r\n\r\n{}",
      status, type, bytes, more, body);
}

}  // namespace

Asked readRequest(std::string_view received, std::string_view path) {
  // A client may end lines with the second character alone.
  const size_t end = std::min(received.find("\n\r\n"), received.find("\n\n"));
  if (std::min(end, received.size()) >= kLargestRequestBytes) return Asked::kTooLong;
  if (end == std::string_view::npos) return Asked::kMore;
  std::string_view line = received.substr(0, received.find('\n'));
  if (line.ends_with('\r')) line.remove_suffix(1);
  // "GET /metrics?name=value HTTP/1.1"
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || last == first || !isPrintable(line))
    return Asked::kMalformed;
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if ((version != "HTTP/1.1" && version != "HTTP/1.0") || !target.starts_with('/') ||
      target.find(' ') != std::string_view::npos)
    return Asked::kMalformed;
  if (target.substr(0, target.find('?')) != path) return Asked::kElsewhere;
  if (method == "GET") return Asked::kPage;
  return method == "HEAD" ? Asked::kHead : Asked::kOtherMethod;
}

std::string answerTo(Asked asked, std::string_view path, std::string_view page) {
  const auto refuse = [](std::string_view status, std::string_view more, const std::string& why) {
    return answer(status, kTextType, more, why.size(), why);
  };
  switch (asked) {
    case Asked::kPage: return answer("200 OK", kPageType, "", page.size(), page);
    case Asked::kHead: return answer("200 OK", kPageType, "", page.size(), "");
    case Asked::kElsewhere:
      return refuse("404 Not Found", "", fmt::format("the only page here is {}\n", path));
    case Asked::kOtherMethod:
      return refuse("405 Method Not Allowed", "Allow: GET, HEAD\r\n",
                    "the page can only be read\n");
    case Asked::kTooLong:
      return refuse("431 Request Header Fields Too Large", "",
                    fmt::format("a request has {} bytes at most\n", kLargestRequestBytes));
    case Asked::kMalformed:
      return refuse("400 Bad Request", "", "this is no request of HTTP/1.1\n");
    case Asked::kMore: break;
  }
  SLUICE_CHECK(asked != Asked::kMore);
  return {};
}

}  // namespace sluice::metrics
