// The part of HTTP/1.1 that a page needs: requests without a body, for one path. A pure function of
// the bytes that have come; page_server.cc has the sockets.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace sluice::metrics {

inline constexpr size_t kLargestRequestBytes = size_t{8} << 10;  // all header lines

enum class Asked {
  kMore,         // not known yet: more bytes have to come
  kPage,         // GET of the path
  kHead,         // HEAD of the path
  kElsewhere,    // another path
  kOtherMethod,  // POST and the like
  kTooLong,
  kMalformed,
};

// Reads the beginning of what a client has sent. Bytes after the header lines are not looked at.
Asked readRequest(std::string_view received, std::string_view path);

// Returns the whole answer. The body is for kPage only, and a HEAD tells its length.
// REQUIRES: asked != kMore
std::string answerTo(Asked asked, std::string_view path, std::string_view page);

}  // namespace sluice::metrics
