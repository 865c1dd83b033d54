// Files of flight recorders, as anybody may hand them to `sluice trace flight`: any bytes at all. A
// file is read, and what it says is reported, within bounds of time and memory.
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <tools/trace/flight_report.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice::flight;
  // Without these words no other byte is looked at.
  std::vector<uint8_t> bytes(data, data + size);
  const auto put = [&](size_t word, uint64_t value) {
    if ((word + 1) * sizeof value <= bytes.size())
      std::memcpy(bytes.data() + word * sizeof value, &value, sizeof value);
  };
  put(kMagicWord, kMagic);
  put(kVersionAndHeaderWords, wordOf(kFileVersion, kHeaderWords));
  std::vector<SavedFlight> files;
  if (auto whole = parseFlight(std::as_bytes(std::span(bytes))); whole.isOk())
    files.push_back(*std::move(whole));
  // The same as another rank, without its end.
  put(kRankAndWorld, wordOf(1, 3));
  const auto most = std::as_bytes(std::span(bytes)).first(bytes.size() - bytes.size() / 4);
  if (auto part = parseFlight(most); part.isOk()) files.push_back(*std::move(part));
  if (!files.empty()) (void)reportOf(files);
  return 0;
}
