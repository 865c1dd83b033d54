#include <sluice/transport/fabric/self_lanes.h>

#include <cstring>
#include <utility>

#include <sluice/transport/fabric/common.h>

namespace sluice::fabric {

void SelfLanes::push(const wire::Header& header, ConstBuffer payload, Done done) {
  Queue& queue = queues_[static_cast<size_t>(header.lane)];
  queue.items.push_back({header, payload, std::move(done)});
  pump(queue);
}

void SelfLanes::resume(Lane lane) {
  Queue& queue = queues_[static_cast<size_t>(lane)];
  if (std::exchange(queue.isWaiting, false)) pump(queue);
}

void SelfLanes::pump(Queue& queue) {
  // The header is copied, and the item leaves the queue before its completions run: a
  // completion may send to this rank again, or end the fabric.
  while (!queue.items.empty() && !queue.isWaiting) {
    const wire::Header header = queue.items.front().header;
    auto answer = receiver_.onMessage(header.source, header.lane, header);
    if (answer.isOk() && answer->isLater) {
      queue.isWaiting = true;
      return;
    }
    Item item = std::move(queue.items.front());
    queue.items.pop_front();
    const Status fits = answer.isOk() ? checkLanding(*answer, header) : answer.status();
    if (fits.isOk() && header.length > 0) {
      std::memcpy(answer->buffer.data, item.payload.data, header.length);
    }
    counters_.with([&](Counters& counters) {
      ++counters.messagesSent;
      counters.bytesSent += header.length;
      if (!answer.isOk()) return counters.drops.count(wire::Drop::kRefused);
      if (!fits.isOk()) return counters.drops.count(wire::Drop::kNoRoom);
      ++counters.messagesReceived;
      counters.bytesReceived += header.length;
    });
    if (answer.isOk()) answer->done(fits);
    item.done(Status());
  }
}

void SelfLanes::fail(const Status& why) {
  for (Queue& queue : queues_) {
    for (Item& item : std::exchange(queue.items, {})) item.done(why);
    queue.isWaiting = false;
  }
}

bool SelfLanes::isEmpty() const {
  for (const Queue& queue : queues_) {
    if (!queue.items.empty()) return false;
  }
  return true;
}

}  // namespace sluice::fabric
