#include <tools/doctor/reach.h>

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>

#include <nlohmann/json.hpp>

#include <sluice/base/net/fd.h>
#include <sluice/base/text.h>
#include <tools/probe/json_fields.h>

namespace sluice::doctor {
namespace {

constexpr uint32_t kSmallJob = 64;

std::string reasonOf(int error) {
  return std::system_category().message(error);
}

struct Attempt {
  uint32_t rank;
  net::Fd socket;
};

}  // namespace

std::vector<uint32_t> ranksToTry(uint32_t rank, uint32_t worldSize) {
  std::vector<uint32_t> ranks;
  for (uint32_t distance = 1; distance < worldSize;
       distance = worldSize <= kSmallJob ? distance + 1 : distance * 2)
    ranks.push_back((rank + distance) % worldSize);
  return ranks;
}

std::map<uint32_t, std::string> findUnreachable(const std::vector<Address>& addresses,
                                                const std::vector<uint32_t>& ranks,
                                                Duration atMost) {
  std::map<uint32_t, std::string> unreachable;
  std::vector<Attempt> attempts;
  for (const uint32_t rank : ranks) {
    const Address& to = addresses.at(rank);
    net::Fd socket(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket.valid() ||
        (::connect(socket.get(), to.raw(), to.rawSize()) != 0 && errno != EINPROGRESS)) {
      unreachable[rank] = reasonOf(errno);
      continue;
    }
    attempts.push_back({rank, std::move(socket)});
  }
  const base::RealClock clock;
  const TimePoint end = clock.now() + atMost;
  while (!attempts.empty()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.now());
    if (left.count() <= 0) break;
    std::vector<pollfd> waiting;
    waiting.reserve(attempts.size());
    for (const Attempt& each : attempts)
      waiting.push_back({.fd = each.socket.get(), .events = POLLOUT, .revents = 0});
    if (::poll(waiting.data(), waiting.size(), static_cast<int>(left.count())) <= 0) continue;
    std::vector<Attempt> open;
    for (size_t i = 0; i < attempts.size(); ++i) {
      if (waiting[i].revents == 0) {
        open.push_back(std::move(attempts[i]));
        continue;
      }
      int error = 0;
      socklen_t size = sizeof(error);
      ::getsockopt(attempts[i].socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
      if (error != 0) unreachable[attempts[i].rank] = reasonOf(error);
    }
    attempts = std::move(open);
  }
  for (const Attempt& each : attempts) unreachable[each.rank] = "no answer";
  return unreachable;
}

std::string encodeUnreachable(const std::map<uint32_t, std::string>& unreachable) {
  nlohmann::json document = nlohmann::json::object();
  for (const auto& [rank, why] : unreachable) document[std::to_string(rank)] = why;
  return probe::dumped(document);
}

Result<std::map<uint32_t, std::string>> decodeUnreachable(std::string_view text,
                                                          uint32_t worldSize) {
  const auto document = probe::noteFrom(text);
  if (!document.is_object())
    return Status(Code::kDataLoss, "the report of a rank cannot be read; is it another version?");
  std::map<uint32_t, std::string> unreachable;
  for (const auto& [key, value] : document.items()) {
    uint32_t rank = worldSize;
    std::from_chars(key.data(), key.data() + key.size(), rank);
    if (rank < worldSize) unreachable[rank] = base::printable(probe::textIn(document, key.c_str()));
  }
  return unreachable;
}

}  // namespace sluice::doctor
