// The messages between a rank and rank 0 once both have proved that they hold the job key. All
// kinds have one flat shape. Pure functions on bytes; every length is checked before it is used.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <sluice/base/clock.h>
#include <sluice/base/status.h>

namespace sluice::rendezvous {

inline constexpr size_t kLargestKeyBytes = 256;
inline constexpr size_t kLargestValueBytes = size_t{64} << 10;
inline constexpr size_t kMessageOverheadBytes = 16;
inline constexpr size_t kLargestRequestBytes =
    kMessageOverheadBytes + kLargestKeyBytes + kLargestValueBytes;
// An answer may hold the values of all ranks at once. Rank 0 is trusted with more than the others,
// but not with everything.
inline constexpr size_t kLargestAnswerBytes = size_t{64} << 20;

// A wait without an end of its own: it ends with the job. Longer timeouts than 2^32 - 2 ms (49
// days) become this.
inline constexpr Duration kNoEnd = std::chrono::hours(24 * 365 * 100);

enum class MessageKind : uint8_t {
  // To rank 0.
  kJoin = 1,       // value: a Newcomer (newcomer.h)
  kAgreement = 2,  // value: the agreement itself, when asked for
  kSet = 3,        // key, value
  kGet = 4,        // key
  kWait = 5,       // key, timeout
  kGather = 6,     // key, value, timeout
  // From rank 0.
  kWelcome = 32,        // value: the nonce of the job
  kShowAgreement = 33,  // the hashes differ: say what yours is made of
  kRefused = 34,        // value: why, for the person who started the job
  kAnswer = 35,         // to the request `id`: code, and the value or the error text
};

struct Message {
  MessageKind kind{};
  Code code = Code::kOk;
  uint32_t id = 0;
  Duration timeout{};  // travels in whole milliseconds; see kNoEnd
  std::string key{};
  std::string value{};

  friend bool operator==(const Message&, const Message&) = default;
};

// Ok iff a Store takes this key and value; the error says what is too long.
Status checkSizes(const std::string& key, const std::string& value);

// REQUIRES: key.size() <= kLargestKeyBytes
std::string encode(const Message& message);
// Encodes all but the value, which is `valueBytes` long and sent after the head.
std::string encodeHead(const Message& message, size_t valueBytes);
Result<Message> decode(std::string_view bytes);

// Encodes a list of values as one value, for the answer to a gather.
std::string encodeList(const std::vector<std::string>& values);
Result<std::vector<std::string>> decodeList(std::string_view bytes);

}  // namespace sluice::rendezvous
