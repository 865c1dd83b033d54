#include <sluice/join/rendezvous/newcomer.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>

#include <sluice/base/text.h>
#include <sluice/base/units.h>
#include <sluice/secret/digest.h>

namespace sluice::rendezvous {
namespace {

// The bytes of a newcomer, as offset, field and length: 0 agreement hash (32), 32 process (16), 48
// job (16), 64 age in ms (8), 72 waits in ms (8), 80 pid (4).
constexpr size_t kProcessAt = secret::kDigestBytes;
constexpr size_t kJobAt = kProcessAt + sizeof(secret::JobNonce);
constexpr size_t kAgeAt = kJobAt + sizeof(secret::JobNonce);
constexpr size_t kWaitsAt = kAgeAt + 8;
constexpr size_t kPidAt = kWaitsAt + 8;
constexpr size_t kNewcomerBytes = kPidAt + 4;

void putNumber(std::string& out, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> (8 * i) & 0xff));
}

uint64_t getNumber(std::string_view from, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i) value |= uint64_t{static_cast<uint8_t>(from[i])} << (8 * i);
  return value;
}

// A time that another process sent: at most a year, so that sums of a few cannot overflow.
std::chrono::milliseconds getTime(std::string_view from) {
  constexpr uint64_t kYear = uint64_t{365} * 24 * 3600 * 1000;
  return std::chrono::milliseconds(std::min(getNumber(from, 8), kYear));
}

}  // namespace

std::string Newcomer::encode() const {
  std::string out = agreementHash;
  out.resize(secret::kDigestBytes);
  out.append(reinterpret_cast<const char*>(process.data()), process.size());
  out.append(reinterpret_cast<const char*>(job.data()), job.size());
  putNumber(out, static_cast<uint64_t>(age.count()), 8);
  putNumber(out, static_cast<uint64_t>(waits.count()), 8);
  putNumber(out, pid, 4);
  return out;
}

Result<Newcomer> Newcomer::decode(std::string_view bytes) {
  if (bytes.size() != kNewcomerBytes)
    return Status(Code::kDataLoss,
                  "a request to join has a wrong length; run the same sluice everywhere");
  Newcomer newcomer;
  newcomer.agreementHash = bytes.substr(0, secret::kDigestBytes);
  std::memcpy(newcomer.process.data(), bytes.data() + kProcessAt, newcomer.process.size());
  std::memcpy(newcomer.job.data(), bytes.data() + kJobAt, newcomer.job.size());
  newcomer.age = getTime(bytes.substr(kAgeAt));
  newcomer.waits = getTime(bytes.substr(kWaitsAt));
  newcomer.pid = static_cast<uint32_t>(getNumber(bytes.substr(kPidAt), 4));
  return newcomer;
}

std::chrono::milliseconds processAge() {
  std::ifstream file("/proc/self/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // "pid (name) state ...": the name may hold blanks and brackets, and the start is the 20th field
  // after it.
  constexpr size_t kStartTime = 20;
  const size_t nameEnd = text.rfind(") ");
  if (nameEnd == std::string::npos) return {};
  const auto fields = base::split(std::string_view(text).substr(nameEnd + 2), ' ');
  if (fields.size() < kStartTime) return {};
  const auto ticks = base::parseInteger(fields[kStartTime - 1]);
  timespec now{};
  // Both times count from the machine's start, so a clock that is set in between changes
  // nothing. Without them the age is zero, and the process counts as young.
  if (!ticks.isOk() || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return {};
  const auto sinceBoot = std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  const auto started = std::chrono::milliseconds(*ticks * 1000 / ::sysconf(_SC_CLK_TCK));
  return std::max(std::chrono::duration_cast<std::chrono::milliseconds>(sinceBoot - started),
                  std::chrono::milliseconds(0));
}

}  // namespace sluice::rendezvous
