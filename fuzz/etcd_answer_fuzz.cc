// Answers and watch lines of a server in etcd's place: any bytes at all. What is read lies within the
// limits, and comes from the bytes alone.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <sluice/join/membership/etcd/etcd_json.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::membership;
  constexpr size_t kMost = 3;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto isOneLine = [](std::string_view text) {
    return text.find('\n') == std::string_view::npos;
  };
  if (const auto line = readWatchLine(bytes); line.isOk()) {
    if (!isOneLine(line->ended) || line->puts.size() > size) std::abort();
  } else if (!isOneLine(line.status().message())) {
    std::abort();
  }
  const auto answer = parseAnswer(bytes);
  if (!answer.isOk()) {
    if (!isOneLine(answer.status().message())) std::abort();
    return 0;
  }
  if (const auto error = readError(*answer)) {
    if (!isOneLine(error->message)) std::abort();
    (void)error->isAboutToken();
  }
  (void)readRevision(*answer);
  (void)readGrantedLease(*answer);
  (void)readKeptLease(*answer);
  if (const auto token = readToken(*answer); token.isOk() && !isOneLine(*token)) std::abort();
  if (const auto appended = readAppended(*answer);
      appended.isOk() && appended->there.entries.size() > kEntriesShown)
    std::abort();
  if (const auto listing = readListing(*answer, kMost);
      listing.isOk() && listing->entries.size() > kMost)
    std::abort();
  return 0;
}
