#include <sluice/data/collective/operation.h>

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sluice/data/kernel/reduce.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::collective {
namespace {

// The number of strips under way at once if a round goes to many ranks: results must not wait
// behind everything else that is to be sent to the same ranks. 25 MB directly over 4 hosts at 1
// Gbit/s take 320 ms with this limit, and 412 ms if all strips begin at once. Between neighbours
// all strips begin at once: fewer strips leave the links idle (ring: 344 ms, or 364 ms with 24
// strips).
constexpr size_t kStripsAtOnce = 8;
constexpr size_t kFewRounds = 2;

}  // namespace

Operation::Operation(fabric::Fabric& fabric, const Call& call, const ReductionOptions& reduction,
                     Schedule schedule, PieceLayout layout, Done onEnd)
    : fabric_(fabric),
      call_(call),
      reduction_(reduction),
      schedule_(std::move(schedule)),
      layout_(layout),
      ordinals_(2 * static_cast<uint32_t>(fabric.worldSize())),
      onEnd_(std::move(onEnd)),
      strips_(layout.strips()),
      stripsLeft_(layout.strips()) {
  // Two ranks may count their rounds differently (a rank without a partner in a round skips
  // it), but they agree on the order of messages between the two of them. So a message carries
  // its number in that order, and each side looks up the round by it.
  std::map<Rank, uint32_t> sent;
  std::map<Rank, uint32_t> received;
  for (size_t round = 0; round < schedule_.size(); ++round) {
    auto& ordinals = sendOrdinals_.emplace_back();
    for (const OutgoingParts& outgoing : schedule_[round].sends)
      ordinals.push_back(sent[outgoing.to]++);
    for (size_t i = 0; i < schedule_[round].receives.size(); ++i) {
      const Rank from = schedule_[round].receives[i].from;
      placeOf_[{from, received[from]++}] = {round, i};
    }
    for (Strip& strip : strips_) strip.receipts.emplace_back(schedule_[round].receives.size());
  }
}

void Operation::start() {
  const auto self = shared_from_this();
  const size_t atOnce =
      schedule_.size() <= kFewRounds ? std::min(kStripsAtOnce, strips_.size()) : strips_.size();
  while (stripsBegun_ < atOnce && onEnd_) enter(stripsBegun_++);
  endIfDone();
}

void Operation::enter(uint32_t number) {
  Strip& strip = strips_[number];
  // A strip that is done makes room for the next one. Strips begin in order on every rank, so a
  // rank that waits for a strip waits for one that the others have begun as well.
  if (strip.round == schedule_.size()) {
    --stripsLeft_;
    if (stripsBegun_ < strips_.size()) enter(stripsBegun_++);
    return;
  }
  const ScheduleRound& round = schedule_[strip.round];
  std::shared_ptr<Bytes>
      encoded;  // of the parts last sent: a round may send the same parts to many ranks
  for (size_t i = 0; i < round.sends.size(); ++i) {
    if (i > 0 && round.sends[i].parts != round.sends[i - 1].parts) encoded = nullptr;
    send(number, round.sends[i], sendOrdinals_[strip.round][i], round.sendsResults, encoded);
  }
  advance(number);
}

void Operation::send(uint32_t strip, const OutgoingParts& outgoing, uint32_t ordinal, bool isResult,
                     std::shared_ptr<Bytes>& encoded) {
  const ElementRange range = layout_.of(strip, outgoing.parts);
  if (range.count == 0) return;
  std::span<std::byte> payload = dataOf(range);
  fabric::Message message{.step = call_.ticket.step,
                          .tensor = call_.ticket.number,
                          .slice = idOf(strip, ordinal),
                          .stage = isResult ? Stage::kPublish : Stage::kPush,
                          .dtype = call_.dtype};
  // A result must have the same bits everywhere. The other ranks decode what the codec has left
  // of it, so the sender decodes its own encoding too, and works on with that.
  if (reduction_.codec != nullptr) {
    if (encoded == nullptr) {
      encoded = std::make_shared<Bytes>(wireBytes(range));
      reduction_.codec->encode(payload, *encoded);
      if (isResult) reduction_.codec->decode(*encoded, payload);  // the other ranks decode the same
    }
    payload = *encoded;
    message.flags = wire::Flags::kEncoded;
  }
  ++sendsLeft_;
  fabric_.send(outgoing.to, fabric::Lane::kBulk, message, {payload.data(), payload.size()},
               [self = shared_from_this(), kept = encoded](const Status& status) {
                 --self->sendsLeft_;
                 if (!status.isOk()) return self->end(status);
                 self->endIfDone();
               });
}

Result<fabric::Landing> Operation::land(Rank from, const wire::Header& header) {
  const uint32_t number = index(header.slice) / ordinals_;
  const auto found = placeOf_.find({from, index(header.slice) % ordinals_});
  if (number >= strips_.size() || found == placeOf_.end())
    return fabric::refusedStatus(header, "no such message in this collective");
  const auto [round, i] = found->second;
  const ElementRange range = layout_.of(number, schedule_[round].receives[i].parts);
  const bool isEncoded = reduction_.codec != nullptr;
  if (header.dtype != call_.dtype || wire::has(header.flags, wire::Flags::kEncoded) != isEncoded)
    return fabric::refusedStatus(header, "of another type or codec than here");
  if (header.length != wireBytes(range))
    return fabric::refusedStatus(header, "not the length that is expected here");
  Receipt& receipt = strips_[number].receipts[round][i];
  if (receipt.state != Receipt::State::kMissing)
    return fabric::refusedStatus(header, "it came before");
  receipt.state = Receipt::State::kLanding;
  // A result can land in its place at once, whatever round this rank is in: it only exists because
  // our own part of it has arrived at the rank that summed it.
  std::span<std::byte> place = dataOf(range);
  // A contribution must not touch the data yet: this rank may still be sending that very part,
  // and the sum is made in rank order when all of the round are here. Encoded bytes need a
  // place of their own anyhow.
  if (isEncoded || schedule_[round].arriving == Arriving::kContributions) {
    receipt.bytes = std::make_shared<Bytes>(header.length);
    place = *receipt.bytes;
  }
  return fabric::Landing{
      {place.data(), place.size()},
      [self = shared_from_this(), &receipt, number, bytes = receipt.bytes](const Status& status) {
        if (!status.isOk()) return self->end(status);
        receipt.state = Receipt::State::kHere;
        // A strip that has not begun here looks for its messages when it begins.
        if (!self->onEnd_ || number >= self->stripsBegun_) return;
        self->advance(number);
        self->endIfDone();
      }};
}

void Operation::advance(uint32_t number) {
  Strip& strip = strips_[number];
  if (strip.round == schedule_.size()) return;
  const ScheduleRound& round = schedule_[strip.round];
  auto& receipts = strip.receipts[strip.round];
  for (size_t i = 0; i < receipts.size(); ++i) {
    const bool isEmpty = layout_.of(number, round.receives[i].parts).count == 0;
    if (!isEmpty && receipts[i].state != Receipt::State::kHere) return;
  }
  // The bytes of a round are freed as soon as they are summed, so a long ring holds one round's
  // memory and not all of them.
  use(number, round, receipts);
  for (Receipt& receipt : receipts) receipt.bytes = nullptr;
  ++strip.round;
  enter(number);
}

void Operation::use(uint32_t strip, const ScheduleRound& round,
                    const std::vector<Receipt>& receipts) {
  if (round.receives.empty()) return;
  if (round.arriving == Arriving::kContributions) {
    const ElementRange range = layout_.of(strip, round.receives.front().parts);
    if (range.count > 0) sum(range, round, receipts);
    return;
  }
  if (reduction_.codec == nullptr) return;  // they have landed in their places
  for (size_t i = 0; i < receipts.size(); ++i) {
    const ElementRange range = layout_.of(strip, round.receives[i].parts);
    if (range.count > 0) reduction_.codec->decode(*receipts[i].bytes, dataOf(range));
  }
}

void Operation::sum(const ElementRange& range, const ScheduleRound& round,
                    const std::vector<Receipt>& receipts) {
  const auto own = dataOf(range);
  std::vector<Bytes> decoded;
  // Sums are made in the order of ranks, whatever the order of arrival: floating-point addition
  // depends on it, and every rank must get the same bits as a parameter server would.
  std::map<Rank, std::span<const std::byte>> parts{{fabric_.rank(), own}};
  for (size_t i = 0; i < receipts.size(); ++i) {
    std::span<const std::byte> part = *receipts[i].bytes;
    if (reduction_.codec != nullptr) {
      reduction_.codec->decode(part, decoded.emplace_back(own.size()));
      part = decoded.back();
    }
    parts[round.receives[i].from] = part;
  }
  const bool isInPlace = kernel::accumulatorOf(call_.dtype) == call_.dtype;
  if (isInPlace && receipts.size() == 1 && reduction_.scale == 1) {
    // Addition of two numbers gives the same bits in either order.
    const auto& other = parts.begin()->first == fabric_.rank() ? std::prev(parts.end())->second
                                                               : parts.begin()->second;
    return kernel::addScaled(call_.dtype, own, other, 1);
  }
  std::vector<std::span<const std::byte>> inRankOrder;
  for (const auto& [rank, part] : parts) inRankOrder.push_back(part);
  sum_.resize(range.count * sizeOf(kernel::accumulatorOf(call_.dtype)));
  kernel::sumInRankOrder(call_.dtype, sum_, inRankOrder, reduction_.scale);
  kernel::narrow(call_.dtype, own, sum_);
}

void Operation::endIfDone() {
  // The end needs both: all results are here, and all sends have left, since until then the
  // fabric reads the caller's memory.
  if (stripsLeft_ == 0 && sendsLeft_ == 0) end(base::ok());
}

void Operation::end(const Status& status) {
  if (const Done done = std::exchange(onEnd_, nullptr)) done(status);
}

std::span<std::byte> Operation::dataOf(const ElementRange& range) const {
  const size_t size = sizeOf(call_.dtype);
  return call_.data.subspan(range.first * size, range.count * size);
}

size_t Operation::wireBytes(const ElementRange& range) const {
  return reduction_.codec != nullptr ? reduction_.codec->encodedBytes(range.count)
                                     : range.count * sizeOf(call_.dtype);
}

std::set<Rank> Operation::missing() const {
  std::set<Rank> ranks;
  // Strips that this rank has not begun do not count: the other ranks have not begun them either,
  // and are not to blame.
  for (uint32_t number = 0; number < stripsBegun_; ++number) {
    const Strip& strip = strips_[number];
    if (strip.round == schedule_.size()) continue;
    const ScheduleRound& round = schedule_[strip.round];
    for (size_t i = 0; i < round.receives.size(); ++i) {
      const bool isEmpty = layout_.of(number, round.receives[i].parts).count == 0;
      if (!isEmpty && strip.receipts[strip.round][i].state != Receipt::State::kHere)
        ranks.insert(round.receives[i].from);
    }
  }
  return ranks;
}

std::string Operation::describeWait() const {
  const auto ranks = missing();
  if (ranks.empty()) return fmt::format("{} sends are not through", sendsLeft_);
  return fmt::format("{} of {} strips are not done; waits for what rank {} sends", stripsLeft_,
                     strips_.size(), fmt::join(ranks, ", "));
}

}  // namespace sluice::collective
