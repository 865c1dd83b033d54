// The requests and answers of etcd's JSON gateway. Pure functions; any thread.
//
// The gateway leaves out fields of value zero, writes 64-bit numbers as texts, and ignores fields of
// a request that it does not know, so a misspelt name would go unnoticed: the tests run against a
// real server. An answer may come from anybody, so every field is checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include <sluice/base/status.h>
#include <sluice/join/membership/key_values.h>

namespace sluice::membership {

// How many entries an append that was not done shows.
inline constexpr size_t kEntriesShown = 2;

std::string appendRequest(const Append& append);
std::string listRequest(const KeyRange& range, size_t most);
std::string removeRequest(const Entry& entry);
std::string grantRequest(int64_t seconds);
std::string leaseRequest(int64_t lease);  // for keepalive and revoke
std::string leasedPutRequest(const std::string& key, const std::string& value, int64_t lease);
std::string isThereRequest(const std::string& key);
std::string watchRequest(const KeyRange& range, uint64_t startRevision);  // 0: from now on
std::string loginRequest(const std::string& user, const std::string& password);

Result<Appended> readAppended(const nlohmann::json& answer);
// Fails if the answer has more than `most` entries: the server was asked for no more.
Result<Listing> readListing(const nlohmann::json& answer, size_t most);
Result<int64_t> readGrantedLease(const nlohmann::json& answer);
// Returns true iff the lease lives still.
Result<bool> readKeptLease(const nlohmann::json& answer);
uint64_t readRevision(const nlohmann::json& answer);  // 0 if the answer names no revision
// Returns the token of a login, which may stand in a header of HTTP.
Result<std::string> readToken(const nlohmann::json& answer);

// One line of a watch.
struct WatchLine {
  bool isCreated = false;
  std::string ended;          // the reason, if the server has ended the watch
  bool mayNeedToken = false;  // a new token may help
  uint64_t revision = 0;
  std::vector<Entry> puts;
};
Result<WatchLine> readWatchLine(std::string_view line);

// A record of 2048 members has some 340 KB in base64. The loop waits for the parser meanwhile, which
// takes some 20 ms for so much.
inline constexpr size_t kLargestEtcdAnswer = size_t{1} << 20;

// Returns an answer's JSON object. Fails with kDataLoss if the text is not one, or breaks a limit.
Result<nlohmann::json> parseAnswer(std::string_view text);
// The error in an answer; empty if there is none.
struct EtcdError {
  int64_t code = 0;  // of gRPC
  std::string message;

  // True iff the server wants another token than the one it got, or one at all.
  bool isAboutToken() const;
};
std::optional<EtcdError> readError(const nlohmann::json& answer);

}  // namespace sluice::membership
