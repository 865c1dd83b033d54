// Outgoing messages: from the queue of a lane through its window to UCX, and the news of taken
// messages.
#include <utility>

#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/ucx/envelope.h>
#include <sluice/transport/fabric/ucx/library.h>
#include <sluice/transport/fabric/ucx/node.h>

namespace sluice::fabric::ucx {

void Node::startSends(Peer& peer, Lane lane) {
  PeerLane& stream = peer.stream(lane);
  // The window counts what the receiver has taken, not what UCX has swallowed. A message that does
  // not fit stays here, where a more urgent one of another lane can still pass it.
  while (!stream.queue.empty() && stream.window.admits(stream.queue.front().payload.bytes)) {
    if (endpoint(peer, lane) == nullptr) return;
    Queued next = std::move(stream.queue.front());
    stream.queue.pop_front();
    stream.window.sent(next.payload.bytes);
    startSend(peer, lane, dataId(lane), std::move(next));
  }
}

void Node::startSend(Peer& peer, Lane lane, unsigned id, Queued message) {
  const bool isChecked = options_.checksPayloads && message.payload.bytes > 0;
  const uint32_t checksum = isChecked
                                ? wire::payloadCrc32c(message.header.sequence,
                                                      {message.payload.data, message.payload.bytes})
                                : 0;
  // UCX reads envelope and payload until its callback has come. The record lives in a list, so
  // that its address stays good whatever else is sent meanwhile.
  peer.flying.push_back({.node = this,
                         .to = peer.rank,
                         .bytes = message.payload.bytes,
                         .done = std::move(message.done),
                         .envelope = sealEnvelope(message.header, checksum, headerKey_),
                         .self = {}});
  Flying& flying = peer.flying.back();
  flying.self = std::prev(peer.flying.end());
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.flags =
      message.payload.bytes <= options_.eagerBytes ? UCP_AM_SEND_FLAG_EAGER : UCP_AM_SEND_FLAG_RNDV;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.cb.send = onSendEnded;
  params.user_data = &flying;
  ucs_status_ptr_t request = library().ucp_am_send_nbx(
      peer.stream(lane).endpoint->get(), id, flying.envelope.data(), flying.envelope.size(),
      message.payload.data, message.payload.bytes, &params);
  if (!UCS_PTR_IS_PTR(request)) sendEnded(flying, UCS_PTR_STATUS(request));
}

void Node::onSendEnded(void* request, ucs_status_t status, void* flying) {
  library().ucp_request_free(request);
  auto& ended = *static_cast<Flying*>(flying);
  ended.node->sendEnded(ended, status);
}

void Node::sendEnded(Flying& flying, ucs_status_t status) {
  Peer& to = peer(flying.to);
  // A send that fails tells of the loss before the endpoint does; the reason is the same.
  if (status != UCS_OK && to.gone.isOk() && state_ != State::kEnded) breaks(to.rank, status);
  if (flying.done) {
    if (status == UCS_OK) {
      counters_.with([&](Counters& counters) {
        ++counters.messagesSent;
        counters.bytesSent += flying.bytes;
      });
    }
    // The reason is read when the news is told, as the peer's end may not be known yet.
    news_.emplace_back([done = std::move(flying.done), &to, isSent = status == UCS_OK] {
      if (isSent) return done(Status());
      done(to.gone.isOk() ? closedStatus() : to.gone);
    });
  }
  to.flying.erase(flying.self);
  tellIfGone(to);
}

// Uses the control lane's endpoint, where no bulk is in the way.
void Node::tellTaken(Peer& peer, Lane lane) {
  PeerLane& stream = peer.stream(lane);
  if (stream.toldTaken == stream.taken.upTo() || !peer.gone.isOk() || isSelf(peer)) return;
  if (endpoint(peer, Lane::kControl) == nullptr) return;
  stream.toldTaken = stream.taken.upTo();
  stream.untoldBytes = 0;
  Message message;
  message.flags = wire::Flags::kTaken;
  startSend(peer, Lane::kControl, takenId(lane),
            {makeHeader(message, options_.epoch, options_.rank, peer.rank, lane, stream.toldTaken,
                        /*length=*/0),
             {},
             nullptr});
}

void Node::tellAllTaken() {
  for (const auto& [rank, lane] : std::exchange(tellDue_, {})) {
    Peer& sender = peer(rank);
    sender.stream(lane).isTellDue = false;
    tellTaken(sender, lane);
  }
}

// Tells the peer that this rank has given it up. Without a way to it nothing is lost: the peer then
// finds out by itself, and nobody here waits for an answer.
void Node::tellGivenUp(Peer& peer) {
  if (!peer.gone.isOk() || !peer.stream(Lane::kControl).endpoint) return;
  Message message;
  message.flags = kGivenUpFlags;
  startSend(
      peer, Lane::kControl, kGivenUpId,
      {makeHeader(message, options_.epoch, options_.rank, peer.rank, Lane::kControl, /*sequence=*/0,
                  /*length=*/0),
       {},
       nullptr});
}

}  // namespace sluice::fabric::ucx
