#include <sluice/fabric/common.h>

#include <chrono>
#include <future>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::fabric {

Status checkSend(Rank to, size_t worldSize, const Message& message, const ConstBuffer& payload) {
  if (index(to) >= worldSize) {
    return {Code::kInvalidArgument,
            fmt::format("there is no rank {}: the job has ranks 0 to {}", index(to), worldSize - 1)};
  }
  if (payload.bytes > wire::kMaxLength) {
    return {Code::kInvalidArgument,
            fmt::format("a message of {} bytes is too long: send slices of at most {}", payload.bytes,
                        wire::kMaxLength)};
  }
  if (payload.data == nullptr && payload.bytes > 0) {
    return {Code::kInvalidArgument, "the payload has a length but no address"};
  }
  if (wire::has(message.flags, wire::Flags::kGoodbye)) {
    return {Code::kInvalidArgument, "a goodbye is said by close(), not by send()"};
  }
  if (wire::has(message.flags, wire::Flags::kTaken)) {
    return {Code::kInvalidArgument, "acknowledgements are the fabric's own"};
  }
  if (!wire::has(message.flags, wire::Flags::kEncoded) && payload.bytes % plan::sizeOf(message.dtype) != 0) {
    return {Code::kInvalidArgument,
            fmt::format("{} bytes are not a whole number of {}", payload.bytes, plan::name(message.dtype))};
  }
  return {};
}

wire::Header makeHeader(const Message& message, Epoch epoch, Rank from, Rank to, Lane lane, uint64_t sequence,
                        uint64_t length) {
  return {.epoch = epoch,
          .source = from,
          .destination = to,
          .lane = lane,
          .sequence = sequence,
          .step = message.step,
          .tensor = message.tensor,
          .slice = message.slice,
          .stage = message.stage,
          .flags = message.flags,
          .dtype = message.dtype,
          .length = length};
}

wire::Header makeGoodbye(Epoch epoch, Rank from, Rank to, Lane lane, uint64_t sequence) {
  Message message;
  message.flags = wire::Flags::kGoodbye;
  return makeHeader(message, epoch, from, to, lane, sequence, /*length=*/0);
}

Status lostStatus(Rank peer, const Status& why) {
  return {Code::kPeerLost, fmt::format("rank {} is lost: {}", index(peer), why.message())};
}

Status leftStatus(Rank peer) {
  return {Code::kUnavailable, fmt::format("rank {} has closed and takes nothing more", index(peer))};
}

Status closedStatus() {
  return {Code::kCancelled, "this rank's fabric is closed"};
}

Status refusedStatus(const wire::Header& header, std::string_view why) {
  return {Code::kRefused, fmt::format("{}: {}", header.toString(), why)};
}

Status checkLanding(const Landing& landing, const wire::Header& header) {
  const size_t room = landing.buffer.data != nullptr ? landing.buffer.bytes : 0;
  if (room >= header.length) return {};
  return refusedStatus(header, fmt::format("its receiver has room for {} bytes only", room));
}

void runAndWait(Loop& loop, Task task) {
  if (loop.inLoop()) return task();
  // A task that the ended loop destroys unrun breaks the promise, which ends the wait as well.
  auto ran = std::make_shared<std::promise<void>>();
  const auto end = ran->get_future();
  loop.post([ran = std::move(ran), task = std::move(task)] {
    task();
    ran->set_value();
  });
  SLUICE_CHECK(end.wait_for(std::chrono::seconds(30)) == std::future_status::ready,
               "the loop of a fabric must run until the fabric is destroyed");
}

Status closeAndWait(Fabric& fabric) {
  SLUICE_DCHECK(!fabric.loop().inLoop());
  std::promise<Status> closed;
  fabric.close([&](const Status& status) { closed.set_value(status); });
  return closed.get_future().get();
}

}  // namespace sluice::fabric
