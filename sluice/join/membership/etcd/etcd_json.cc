#include <sluice/join/membership/etcd/etcd_json.h>

#include <algorithm>
#include <charconv>

#include <sluice/base/json.h>
#include <sluice/base/text.h>
#include <sluice/join/membership/etcd/base64.h>

namespace sluice::membership {
namespace {

using nlohmann::json;

constexpr size_t kLongestEtcdMessage = 256;
constexpr size_t kLongestToken = 8192;
// A listing shows some hundred entries, each an object of seven values.
constexpr size_t kMostAnswerValues = 10'000;
// One for each change of the members since the watch was cut.
constexpr size_t kMostEvents = 1000;

Status malformedAnswer() {
  return {Code::kDataLoss, "the answer of an etcd server is malformed; is it an etcd server?"};
}

json rangeJson(const KeyRange& range) {
  return {{"key", toBase64(range.first)}, {"range_end", toBase64(range.end)}};
}

json highestFirst(const KeyRange& range, size_t most) {
  json request = rangeJson(range);
  request["sort_order"] = "DESCEND";
  request["sort_target"] = "KEY";
  request["limit"] = std::to_string(most);
  return request;
}

json putJson(const std::string& key, const std::string& value) {
  return {{"request_put", json{{"key", toBase64(key)}, {"value", toBase64(value)}}}};
}

// Makes the condition that the keys came to be there in this revision; with 0, that no such key is
// there.
json isCreatedIn(json keys, uint64_t revision) {
  keys["target"] = "CREATE";
  keys["result"] = "EQUAL";
  keys["create_revision"] = std::to_string(revision);
  return keys;
}

// Returns a member of an object; null if the object lacks it.
const json* find(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

// Returns a 64-bit number, which is a text or a number or, if it is 0, absent.
std::optional<int64_t> readNumber(const json& object, const char* name) {
  const json* value = find(object, name);
  if (value == nullptr) return 0;
  if (value->is_number_integer()) return value->get<int64_t>();
  if (!value->is_string()) return std::nullopt;
  const auto& text = value->get_ref<const std::string&>();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::optional<bool> readFlag(const json& object, const char* name) {
  const json* value = find(object, name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) return std::nullopt;
  return value->get<bool>();
}

std::string readText(const json& object, const char* name) {
  const json* value = find(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<std::string> readBytes(const json& object, const char* name) {
  const json* value = find(object, name);
  if (value == nullptr || !value->is_string()) return std::string();
  return fromBase64(value->get_ref<const std::string&>());
}

std::optional<Entry> readEntry(const json& kv) {
  if (!kv.is_object()) return std::nullopt;
  auto key = readBytes(kv, "key");
  auto value = readBytes(kv, "value");
  const auto revision = readNumber(kv, "mod_revision");
  const auto created = readNumber(kv, "create_revision");
  if (!key || !value || !revision || !created || *revision < 0 || *created < 0) return std::nullopt;
  return Entry{*std::move(key), *std::move(value), static_cast<uint64_t>(*revision),
               static_cast<uint64_t>(*created)};
}

Result<std::vector<Entry>> readEntries(const json& object, size_t most) {
  std::vector<Entry> entries;
  const json* kvs = find(object, "kvs");
  if (kvs == nullptr) return entries;
  if (!kvs->is_array() || kvs->size() > most) return malformedAnswer();
  for (const json& kv : *kvs) {
    auto entry = readEntry(kv);
    if (!entry) return malformedAnswer();
    entries.push_back(*std::move(entry));
  }
  return entries;
}

}  // namespace

// ---- Requests ----

std::string appendRequest(const Append& append) {
  // The compare and the puts are one transaction, which is what makes epochs agreed: of several
  // members that propose at once, etcd lets exactly one find the range empty. The latch makes
  // sure that the proposer has seen the epoch before this one, for a restored backup may have
  // lost it.
  json compare = json::array({isCreatedIn(rangeJson(append.absent), 0)});
  json success = json::array({putJson(append.key, append.value), putJson(append.latch, ""),
                              json{{"request_delete_range", rangeJson(append.forgotten)}}});
  if (append.opened) {
    const json key{{"key", toBase64(append.opened->key)}};
    compare.push_back(isCreatedIn(key, append.opened->created));
    success.push_back(json{{"request_delete_range", key}});
  }
  const json request{
      {"compare", std::move(compare)},
      {"success", std::move(success)},
      {"failure",
       json::array({json{{"request_range", highestFirst(append.absent, kEntriesShown)}}})}};
  return request.dump();
}

std::string listRequest(const KeyRange& range, size_t most) {
  return highestFirst(range, most).dump();
}

std::string removeRequest(const Entry& entry) {
  const std::string key = toBase64(entry.key);
  // The key goes only if nobody has written it since it was read. Its owner may have come back
  // in between and announced itself anew.
  const json request{
      {"compare", json::array({json{{"key", key},
                                    {"target", "MOD"},
                                    {"result", "EQUAL"},
                                    {"mod_revision", std::to_string(entry.revision)}}})},
      {"success", json::array({json{{"request_delete_range", json{{"key", key}}}}})}};
  return request.dump();
}

std::string grantRequest(int64_t seconds) {
  return json{{"TTL", std::to_string(seconds)}}.dump();
}

std::string leaseRequest(int64_t lease) {
  return json{{"ID", std::to_string(lease)}}.dump();
}

std::string leasedPutRequest(const std::string& key, const std::string& value, int64_t lease) {
  return json{{"key", toBase64(key)}, {"value", toBase64(value)}, {"lease", std::to_string(lease)}}
      .dump();
}

std::string isThereRequest(const std::string& key) {
  return json{{"key", toBase64(key)}, {"keys_only", true}}.dump();
}

std::string watchRequest(const KeyRange& range, uint64_t startRevision) {
  json create = rangeJson(range);
  if (startRevision != 0) create["start_revision"] = std::to_string(startRevision);
  return json{{"create_request", create}}.dump();
}

std::string loginRequest(const std::string& user, const std::string& password) {
  // A password may have bytes that are no UTF-8. etcd would get others, and refuse them.
  return json{{"name", user}, {"password", password}}.dump(-1, ' ', false,
                                                           json::error_handler_t::replace);
}

// ---- Answers ----

Result<json> parseAnswer(std::string_view text) {
  auto answer =
      base::parseJson(text, {.mostBytes = kLargestEtcdAnswer, .mostValues = kMostAnswerValues});
  if (!answer.isOk()) return Status(Code::kDataLoss, answer.status().message());
  if (!answer->is_object()) return malformedAnswer();
  return answer;
}

std::optional<EtcdError> readError(const json& answer) {
  const json* error = find(answer, "error");
  if (error == nullptr) return std::nullopt;
  // A stream wraps its errors in an object of its own, with another name for the code. Both
  // forms are cut to a length and made printable, since they come from outside and end in logs.
  const bool isNested = error->is_object();  // in streams
  const json& holder = isNested ? *error : answer;
  EtcdError read;
  read.code = readNumber(holder, isNested ? "grpc_code" : "code").value_or(0);
  read.message = readText(holder, "message");
  if (read.message.empty() && error->is_string()) read.message = error->get<std::string>();
  read.message = base::printable(std::string_view(read.message).substr(0, kLongestEtcdMessage));
  return read;
}

bool EtcdError::isAboutToken() const {
  // A token has ended, or its server has started anew and forgotten it; the users were changed since
  // it was given; or there was no token.
  constexpr int64_t kUnauthenticated = 16;
  return code == kUnauthenticated || message.find("invalid auth token") != std::string::npos ||
         message.find("revision of auth store is old") != std::string::npos ||
         message.find("user name is empty") != std::string::npos;
}

Result<std::string> readToken(const json& answer) {
  std::string token = readText(answer, "token");
  // Whoever answers must not be able to add lines to the header of a request.
  const bool isWord = std::ranges::all_of(token, [](char c) { return c > ' ' && c < '\x7f'; });
  if (token.empty() || token.size() > kLongestToken || !isWord) return malformedAnswer();
  return token;
}

uint64_t readRevision(const json& answer) {
  const json* header = find(answer, "header");
  if (header == nullptr) return 0;
  const auto revision = readNumber(*header, "revision");
  return revision && *revision > 0 ? static_cast<uint64_t>(*revision) : 0;
}

Result<Appended> readAppended(const json& answer) {
  const auto isDone = readFlag(answer, "succeeded");
  // A flag or number that is 0 is left out of the JSON by etcd, so an absent "succeeded" is a
  // no and not a malformed answer (readFlag).
  if (!isDone) return malformedAnswer();
  Appended appended{.done = *isDone, .there = {.entries = {}, .revision = readRevision(answer)}};
  if (appended.done) return appended;
  const json* responses = find(answer, "responses");
  if (responses == nullptr || !responses->is_array() || responses->empty())
    return malformedAnswer();
  const json* range = find(responses->front(), "response_range");
  if (range == nullptr) return malformedAnswer();
  SLUICE_ASSIGN_OR_RETURN(appended.there.entries, readEntries(*range, kEntriesShown));
  return appended;
}

Result<Listing> readListing(const json& answer, size_t most) {
  Listing listing{.entries = {}, .revision = readRevision(answer)};
  SLUICE_ASSIGN_OR_RETURN(listing.entries, readEntries(answer, most));
  return listing;
}

Result<int64_t> readGrantedLease(const json& answer) {
  const auto lease = readNumber(answer, "ID");
  if (!lease || *lease == 0) return malformedAnswer();
  return *lease;
}

Result<bool> readKeptLease(const json& answer) {
  const json* result = find(answer, "result");
  if (result == nullptr) return malformedAnswer();
  const auto seconds = readNumber(*result, "TTL");
  if (!seconds) return malformedAnswer();
  return *seconds > 0;
}

Result<WatchLine> readWatchLine(std::string_view text) {
  SLUICE_ASSIGN_OR_RETURN(const json answer, parseAnswer(text));
  WatchLine line;
  if (const auto error = readError(answer)) {
    line.ended = error->message.empty() ? "the server has ended the watch" : error->message;
    line.mayNeedToken = error->isAboutToken();
    return line;
  }
  const json* result = find(answer, "result");
  if (result == nullptr) return malformedAnswer();
  const auto isCreated = readFlag(*result, "created");
  const auto isCanceled = readFlag(*result, "canceled");
  if (!isCreated || !isCanceled) return malformedAnswer();
  line.isCreated = *isCreated;
  line.revision = readRevision(*result);
  if (*isCanceled) {
    const std::string reason = readText(*result, "cancel_reason");
    line.ended = reason.empty()
                     ? "the server has cancelled the watch"
                     : base::printable(std::string_view(reason).substr(0, kLongestEtcdMessage));
    // etcd 3.4 says of a token that has ended only that the permission is denied.
    line.mayNeedToken = EtcdError{.message = line.ended}.isAboutToken() ||
                        line.ended.find("permission denied") != std::string::npos;
    return line;
  }
  const json* events = find(*result, "events");
  if (events == nullptr) return line;
  if (!events->is_array() || events->size() > kMostEvents) return malformedAnswer();
  for (const json& event : *events) {
    // Removed keys are of no interest: a member that is gone is noticed by listing. The type of
    // a put is 0 in etcd's enumeration, so its name is absent as well.
    if (!readText(event, "type").empty() && readText(event, "type") != "PUT") continue;
    const json* kv = find(event, "kv");
    auto entry = kv == nullptr ? std::nullopt : readEntry(*kv);
    if (!entry) return malformedAnswer();
    line.puts.push_back(*std::move(entry));
  }
  return line;
}

}  // namespace sluice::membership
