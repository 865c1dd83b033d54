#include <sluice/data/collective/mailbox.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/data/collective/paced_fabric.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::collective {
namespace {

constexpr size_t kLetterBytes = size_t{8} << 20;  // a longer message travels as several

// Returns the number of letters of a message; a message without bytes still takes one.
size_t lettersOf(size_t bytes) {
  return std::max<size_t>(1, (bytes + kLetterBytes - 1) / kLetterBytes);
}

}  // namespace

void Mailbox::send(Rank to, uint32_t tag, std::span<std::byte> bytes, fabric::Done done) {
  const size_t letters = lettersOf(bytes.size());
  const auto left = std::make_shared<size_t>(letters);
  const auto end = std::make_shared<fabric::Done>(std::move(done));
  for (size_t number = 0; number < letters; ++number) {
    const size_t begin = number * kLetterBytes;
    const auto letter = bytes.subspan(begin, std::min(kLetterBytes, bytes.size() - begin));
    const fabric::Message message{.tensor = TensorId{tag},
                                  .slice = SliceId{static_cast<uint32_t>(number)},
                                  .stage = Stage::kPush,
                                  .dtype = DType::kBytes};
    fabric_.send(to, kMailLane, message, {letter.data(), letter.size()},
                 [left, end](const Status& status) {
                   --*left;
                   if (*left > 0 && status.isOk()) return;
                   if (const auto once = std::exchange(*end, nullptr)) once(status);
                 });
  }
}

void Mailbox::receive(std::optional<Rank> from, uint32_t tag, std::span<std::byte> bytes,
                      Received done) {
  SLUICE_DCHECK(fabric_.loop().inLoop());
  const size_t letters = lettersOf(bytes.size());
  const auto wanted =
      std::make_shared<Wanted>(Wanted{from, tag, bytes, std::move(done), letters, letters});
  wanted_.push_back(wanted);
  // Letters that came early are looked through in the order of arrival, as if they came now: a
  // message that was sent first is received first. One that is still coming finds its place by
  // itself when it is here.
  for (auto next = kept_.begin(); next != kept_.end() && wanted->toCome > 0;) {
    const auto letter = *next;
    if (letter->tag != tag || (wanted->from && *wanted->from != letter->from)) {
      ++next;
      continue;
    }
    next = kept_.erase(next);
    keptBytes_[letter->from] -= earlyCost(letter->bytes.size());
    const auto place = claim(wanted, letter->from, letter->bytes.size());
    if (!place) break;
    letter->wanted = wanted;
    letter->place = *place;
    if (letter->isHere) take(*letter);
  }
  deferred_.resume(fabric_);
}

Result<fabric::Landing> Mailbox::onMessage(Rank from, const wire::Header& header) {
  const uint32_t tag = index(header.tensor);
  const auto fits = [&](const auto& wanted) {
    return wanted->tag == tag && (!wanted->from || *wanted->from == from);
  };
  if (const auto found = std::ranges::find_if(wanted_, fits); found != wanted_.end()) {
    // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): claim() may take it off the list
    const auto wanted = *found;
    const auto place = claim(wanted, from, header.length);
    if (!place) return fabric::refusedStatus(header, "not the length that is expected");
    return fabric::Landing{{place->data(), place->size()}, [wanted](const Status& status) {
                             if (status.isOk()) landed(*wanted);  // onPeerLost() tells of a loss
                           }};
  }
  // Nobody has asked for this message yet. It is kept, so that a later one can pass it, but
  // only up to a limit for each sender; beyond it the sender's lane waits.
  uint64_t& kept = keptBytes_[from];
  if (kept + earlyCost(header.length) > kMailBudget) return deferred_.defer(from, kMailLane);
  kept += earlyCost(header.length);
  const auto letter = std::make_shared<Letter>(
      Letter{from, tag, std::vector<std::byte>(header.length), false, nullptr, {}});
  kept_.push_back(letter);
  return fabric::Landing{{letter->bytes.data(), letter->bytes.size()},
                         [this, letter](const Status& status) {
                           letter->isHere = status.isOk();
                           if (letter->isHere && letter->wanted) take(*letter);
                         }};
}

// Returns the place for the next piece of a wanted message. Empty if the piece does not fit, which
// ends the wait.
std::optional<std::span<std::byte>> Mailbox::claim(const std::shared_ptr<Wanted>& wanted, Rank from,
                                                   size_t bytes) {
  // The first piece decides whose message it is: a receive from any rank takes all further
  // pieces from the same one.
  wanted->from = from;
  const size_t expected = std::min(kLetterBytes, wanted->bytes.size() - wanted->claimed);
  --wanted->toCome;
  const bool isLast = wanted->toCome == 0 || bytes != expected;
  if (isLast) wanted_.remove(wanted);
  if (bytes != expected) {
    if (const auto done = std::exchange(wanted->done, nullptr)) {
      done({Code::kInvalidArgument,
            fmt::format(
                "rank {} has sent {} bytes with tag {}, but {} are to be received: both sides must "
                "give a tensor of the same size",
                from, wanted->claimed + bytes, wanted->tag, wanted->bytes.size())},
           from);
    }
    return std::nullopt;
  }
  const auto place = wanted->bytes.subspan(wanted->claimed, bytes);
  wanted->claimed += bytes;
  return place;
}

void Mailbox::landed(Wanted& wanted) {
  if (--wanted.toLand > 0) return;
  if (const auto done = std::exchange(wanted.done, nullptr)) done(base::ok(), *wanted.from);
}

void Mailbox::take(Letter& letter) {
  if (!letter.place.empty())
    std::memcpy(letter.place.data(), letter.bytes.data(), letter.place.size());
  landed(*letter.wanted);
}

}  // namespace sluice::collective
