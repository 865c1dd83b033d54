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
inline constexpr size_t kEntriesShown = 8;

std::string appendRequest(const Append& append);
std::string listRequest(const KeyRange& range, size_t most);
std::string removeRequest(const Entry& entry);
std::string grantRequest(int64_t seconds);
std::string leaseRequest(int64_t lease);  // for keepalive and revoke
std::string leasedPutRequest(const std::string& key, const std::string& value, int64_t lease);
std::string isThereRequest(const std::string& key);
std::string watchRequest(const KeyRange& range, uint64_t startRevision);  // 0: from now on

Result<Appended> readAppended(const nlohmann::json& answer);
Result<Listing> readListing(const nlohmann::json& answer);
Result<int64_t> readGrantedLease(const nlohmann::json& answer);
// Returns true iff the lease lives still.
Result<bool> readKeptLease(const nlohmann::json& answer);
uint64_t readRevision(const nlohmann::json& answer);  // 0 if the answer names no revision

// One line of a watch.
struct WatchLine {
  bool isCreated = false;
  std::string ended;  // the reason, if the server has ended the watch
  uint64_t revision = 0;
  std::vector<Entry> puts;
};
Result<WatchLine> readWatchLine(std::string_view line);

// Returns an answer's JSON object. Fails with kDataLoss if the text is not one.
Result<nlohmann::json> parseAnswer(std::string_view text);
// The error in an answer; empty if there is none.
struct EtcdError {
  int64_t code = 0;  // of gRPC
  std::string message;
};
std::optional<EtcdError> readError(const nlohmann::json& answer);

}  // namespace sluice::membership
