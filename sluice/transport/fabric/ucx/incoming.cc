// Incoming messages: from UCX's callback through the order of their lane to the receiver's landing.
#include <cstring>
#include <utility>

#include <sluice/base/check.h>
#include <sluice/base/log.h>
#include <sluice/transport/fabric/common.h>
#include <sluice/transport/fabric/ucx/envelope.h>
#include <sluice/transport/fabric/ucx/library.h>
#include <sluice/transport/fabric/ucx/node.h>
#include <sluice/transport/fabric/ucx/ucs_status.h>

namespace sluice::fabric::ucx {
namespace {

// No honest sender is further ahead: the window holds fewer messages.
constexpr uint64_t kFarthestAhead = 1 << 20;

bool isIntact(const wire::Header& header, std::optional<uint32_t> checksum,
              const std::byte* payload) {
  return !checksum || wire::payloadCrc32c(header.sequence, {payload, header.length}) == *checksum;
}

}  // namespace

template <Lane kLane>
ucs_status_t Node::onData(void* node, const void* header, size_t headerBytes, void* data,
                          size_t bytes, const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<Node*>(node);
  const std::span<const std::byte> envelope(static_cast<const std::byte*>(header), headerBytes);
  const auto opened = self.open(kLane, envelope);
  if (opened) return self.arrived(*opened, checksumOf(envelope), data, bytes, param->recv_attr);
  // A fetch that is never made must not look to its sender as if it had been.
  return (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 ? UCS_ERR_REJECTED : UCS_OK;
}

template <Lane kLane>
ucs_status_t Node::onTaken(void* node, const void* header, size_t headerBytes, void*, size_t,
                           const ucp_am_recv_param_t*) {
  auto& self = *static_cast<Node*>(node);
  const auto opened = self.open(kLane, {static_cast<const std::byte*>(header), headerBytes});
  if (opened) self.takenByPeer(self.peer(opened->source), *opened);
  return UCS_OK;
}

ucs_status_t Node::onGivenUp(void* node, const void* header, size_t headerBytes, void*, size_t,
                             const ucp_am_recv_param_t*) {
  auto& self = *static_cast<Node*>(node);
  const auto opened =
      self.open(Lane::kControl, {static_cast<const std::byte*>(header), headerBytes});
  if (opened && opened->flags == kGivenUpFlags) {
    self.breaks(opened->source, UCS_ERR_CONNECTION_RESET);
  }
  return UCS_OK;
}

void Node::listen() {
  const auto handle = [&](unsigned id, ucp_am_recv_callback_t callback) {
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                        UCP_AM_HANDLER_PARAM_FIELD_ARG;
    params.id = id;
    params.cb = callback;
    params.arg = this;
    const Status status =
        fromUcs(library().ucp_worker_set_am_recv_handler(worker_->get(), &params), "listening");
    SLUICE_CHECK(status.isOk(), status.toString());
  };
  handle(dataId(Lane::kControl), onData<Lane::kControl>);
  handle(dataId(Lane::kUrgent), onData<Lane::kUrgent>);
  handle(dataId(Lane::kBulk), onData<Lane::kBulk>);
  handle(takenId(Lane::kControl), onTaken<Lane::kControl>);
  handle(takenId(Lane::kUrgent), onTaken<Lane::kUrgent>);
  handle(takenId(Lane::kBulk), onTaken<Lane::kBulk>);
  handle(kGivenUpId, onGivenUp);
}

void Node::drop(wire::Drop why) {
  counters_.with([&](Counters& counters) { counters.drops.count(why); });
}

// Returns the header if a rank of this job has sealed it for us. A header that does not fit is
// dropped and counted; UCX keeps messages apart, so the stream need not end with it.
std::optional<wire::Header> Node::open(Lane lane, std::span<const std::byte> envelope) {
  const auto claim = readClaim(envelope);
  if (!claim) {
    drop(wire::Drop::kBadMagic);
    return std::nullopt;
  }
  const auto opened = wire::open(sealedPart(envelope), headerKey_,
                                 {.epoch = options_.epoch,
                                  .source = claim->source,
                                  .destination = options_.rank,
                                  .lane = lane,
                                  .sequence = claim->sequence});
  if (const auto* why = std::get_if<wire::Drop>(&opened)) {
    drop(*why);
    if (*why == wire::Drop::kBadCheck && !std::exchange(toldOfStrangers_, true)) {
      log("fabric").warn(
          "dropped a message that claims rank {}: no member of this job has sealed it (another "
          "job, another key, or bytes that changed on the way)",
          index(claim->source));
    }
    return std::nullopt;
  }
  if (index(claim->source) >= peers_.size() || claim->source == options_.rank) {
    drop(wire::Drop::kWrongSource);
    return std::nullopt;
  }
  Peer& from = peer(claim->source);
  if (!from.gone.isOk() || state_ == State::kEnded)
    return std::nullopt;  // an echo of a rank that is gone
  from.lastHeard = loop_.now();
  return std::get<wire::Header>(opened);
}

// Returns what UCX's callback has to: UCS_INPROGRESS iff the descriptor is kept.
ucs_status_t Node::arrived(const wire::Header& header, uint32_t checksum, void* data, size_t bytes,
                           uint64_t attributes) {
  // The callback must tell UCX at once whether the descriptor is kept. A message whose turn it
  // is goes to the receiver now, from UCX's own buffer; one that is early, or that the receiver
  // puts off, keeps its descriptor if it has one and is copied otherwise.
  const bool isRendezvous = (attributes & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  Peer& from = peer(header.source);
  Stream& stream = from.stream(header.lane);
  if (wire::has(header.flags, wire::Flags::kTaken) || bytes != header.length) {
    drop(wire::Drop::kUnknownFlags);
    return UCS_OK;
  }
  if (header.sequence < stream.nextToOffer ||
      header.sequence - stream.nextToOffer > kFarthestAhead ||
      stream.waiting.contains(header.sequence)) {
    drop(wire::Drop::kOutOfSequence);
    return UCS_OK;
  }
  // This rank hears of the sender's death only with an endpoint of its own to it.
  if (!stream.endpoint) contacts_.emplace_back(from.rank, header.lane);
  Arrived message{.header = header};
  if (options_.checksPayloads && header.length > 0) message.checksum = checksum;
  if (isRendezvous) {
    message.descriptor = data;
  } else {
    message.data = static_cast<const std::byte*>(data);
  }
  const bool isNext = header.sequence == stream.nextToOffer && !stream.isStopped;
  if (isNext && offer(from, message)) {
    offerWaiting(from, header.lane);
    return isRendezvous ? UCS_INPROGRESS : UCS_OK;
  }
  if (!isRendezvous && (attributes & UCP_AM_RECV_ATTR_FLAG_DATA) != 0) {
    message.descriptor = data;
  } else if (!isRendezvous) {
    message.copy.assign(message.data, message.data + bytes);
    message.data = message.copy.data();
  }
  const bool isKept = message.descriptor != nullptr;
  stream.waiting.emplace(header.sequence, std::move(message));
  return isKept ? UCS_INPROGRESS : UCS_OK;
}

void Node::offerWaiting(Peer& peer, Lane lane) {
  Stream& stream = peer.stream(lane);
  while (!stream.waiting.empty() && !stream.isStopped && state_ != State::kEnded) {
    const auto first = stream.waiting.begin();
    // Messages of one lane are offered in the order of their numbers, however they arrived: UCX
    // may hand over a short one before a long one that was sent first.
    if (first->first != stream.nextToOffer) return;
    if (!offer(peer, first->second)) return;
    Arrived& message = first->second;
    if (message.data != nullptr && message.descriptor != nullptr) release(message);
    stream.waiting.erase(first);
  }
}

// Asks the receiver where the next message of its lane goes, and sees to it that it gets there.
bool Node::offer(Peer& peer, Arrived& message) {
  const wire::Header& header = message.header;
  Stream& stream = peer.stream(header.lane);
  if (wire::has(header.flags, wire::Flags::kGoodbye)) {
    ++stream.nextToOffer;
    taken(peer, header);
    farewells_.push_back(peer.rank);
    return true;
  }
  auto answer = receiver_->onMessage(peer.rank, header.lane, header);
  if (answer.isOk() && answer->isLater) {
    stream.isStopped = true;
    return false;
  }
  ++stream.nextToOffer;
  const Status fits = answer.isOk() ? checkLanding(*answer, header) : answer.status();
  if (fits.isOk()) {
    land(peer, message, *std::move(answer));
  } else {
    drop(answer.isOk() ? wire::Drop::kNoRoom : wire::Drop::kRefused);
    if (answer.isOk()) news_.emplace_back([done = std::move(answer->done), fits] { done(fits); });
    if (message.data == nullptr) release(message);
    taken(peer, header);
  }
  if (message.senderDone) {
    counters_.with([&](Counters& counters) {
      ++counters.messagesSent;
      counters.bytesSent += header.length;
    });
    news_.emplace_back([done = std::move(message.senderDone)] { done(Status()); });
  }
  return true;
}

void Node::land(Peer& peer, Arrived& message, Landing landing) {
  const wire::Header& header = message.header;
  if (message.descriptor != nullptr && message.data == nullptr)
    return fetch(peer, message, std::move(landing));
  if (header.length > 0) std::memcpy(landing.buffer.data, message.data, header.length);
  if (!isIntact(header, message.checksum, landing.buffer.data)) {
    return endDamaged(peer, header, std::move(landing.done));
  }
  counters_.with([&](Counters& counters) {
    ++counters.messagesReceived;
    counters.bytesReceived += header.length;
  });
  news_.emplace_back([done = std::move(landing.done)] { done(Status()); });
  taken(peer, header);
}

void Node::fetch(Peer& peer, const Arrived& message, Landing landing) {
  // The list owns the record until UCX's callback has come, and its address is what UCX hands
  // back. A list keeps addresses when others come and go.
  peer.fetching.push_back({.node = this,
                           .header = message.header,
                           .checksum = message.checksum,
                           .landed = {landing.buffer.data, message.header.length},
                           .done = std::move(landing.done),
                           .self = {}});
  Fetching& fetching = peer.fetching.back();
  fetching.self = std::prev(peer.fetching.end());
  ucp_request_param_t params{};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  params.cb.recv_am = onFetched;
  params.user_data = &fetching;
  ucs_status_ptr_t request = library().ucp_am_recv_data_nbx(
      worker_->get(), message.descriptor, landing.buffer.data, message.header.length, &params);
  if (!UCS_PTR_IS_PTR(request)) fetchEnded(fetching, UCS_PTR_STATUS(request));
}

void Node::onFetched(void* request, ucs_status_t status, size_t, void* fetching) {
  library().ucp_request_free(request);
  auto& ended = *static_cast<Fetching*>(fetching);
  ended.node->fetchEnded(ended, status);
}

void Node::fetchEnded(Fetching& fetching, ucs_status_t status) {
  Peer& from = peer(fetching.header.source);
  if (status == UCS_OK && !isIntact(fetching.header, fetching.checksum, fetching.landed.data)) {
    endDamaged(from, fetching.header, std::move(fetching.done));
    from.fetching.erase(fetching.self);
    return tellIfGone(from);
  }
  if (status == UCS_OK) {
    counters_.with([&](Counters& counters) {
      ++counters.messagesReceived;
      counters.bytesReceived += fetching.header.length;
    });
    taken(from, fetching.header);
  } else if (from.gone.isOk() && state_ != State::kEnded) {
    breaks(from.rank, status);
  }
  news_.emplace_back([done = std::move(fetching.done), &from, isHere = status == UCS_OK] {
    if (isHere) return done(Status());
    done(from.gone.isOk() ? closedStatus() : from.gone);
  });
  from.fetching.erase(fetching.self);
  tellIfGone(from);
}

// The bytes in the landing are not those that the sender had: the sender is lost, and the landing
// ends with that error.
void Node::endDamaged(Peer& peer, const wire::Header& header, Done done) {
  drop(wire::Drop::kBadPayload);
  broken_.emplace_back(peer.rank, badPayloadStatus(header, wire::PayloadCheckKind::kCrc32c));
  news_.emplace_back(
      [done = std::move(done), &peer] { done(peer.gone.isOk() ? closedStatus() : peer.gone); });
}

// Called from a callback of UCX: the loss is told once UCX has returned.
void Node::breaks(Rank rank, ucs_status_t status) {
  broken_.emplace_back(rank, fromUcs(status, "the connection broke"));
}

void Node::release(Arrived& message) {
  if (message.descriptor == nullptr) return;
  library().ucp_am_data_release(worker_->get(), std::exchange(message.descriptor, nullptr));
}

// Notes that the message needs no room any more. Its sender will hear of it, at once if much has
// been taken since the last news.
void Node::taken(Peer& peer, const wire::Header& header) {
  Stream& stream = peer.stream(header.lane);
  stream.taken.mark(header.sequence);
  stream.untoldBytes += header.length;
  if (!std::exchange(stream.isTellDue, true)) tellDue_.emplace_back(peer.rank, header.lane);
  const bool isMuch = stream.untoldBytes >= options_.windowBytes / 4;
  if (isMuch && peer.stream(Lane::kControl).endpoint) tellTaken(peer, header.lane);
}

void Node::takenByPeer(Peer& peer, const wire::Header& header) {
  if (header.flags != wire::Flags::kTaken) return drop(wire::Drop::kUnknownFlags);
  // Acknowledgements may pass each other; an old one says nothing new.
  if (peer.stream(header.lane).window.taken(header.sequence)) lastTaken_ = loop_.now();
  startSends(peer, header.lane);
}

}  // namespace sluice::fabric::ucx
