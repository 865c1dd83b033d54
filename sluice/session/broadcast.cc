#include <sluice/session/broadcast.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include <sluice/base/check.h>

namespace sluice::session {
namespace {

// A piece is large enough to cost little, and small enough that a rank passes one on while the next
// one comes.
constexpr size_t kPieceBytes = size_t{1} << 20;

uint32_t piecesOf(size_t bytes) {
  return static_cast<uint32_t>((bytes + kPieceBytes - 1) / kPieceBytes);
}

}  // namespace

void Broadcast::start(Rank root, SharedBytes data, fabric::Done done) {
  SLUICE_DCHECK(fabric_.loop().inLoop());
  const uint64_t sequence = nextSequence_++;
  // The number is used up even if the broadcast cannot take place: every rank counts its calls,
  // and the numbers must stay alike.
  if (end_.has_value() && sequence >= end_->count) return done(end_->why);
  const uint32_t pieces = piecesOf(data->size());
  const bool isRoot = root == fabric_.rank();
  // Each piece has to leave to every child and, except at the root, to come here first.
  const size_t left = pieces * (childrenOf(root).size() + (isRoot ? 0 : 1));
  underway_.emplace(sequence, Underway{root, std::move(data), std::move(done), left,
                                       std::vector<bool>(isRoot ? 0 : pieces)});
  if (isRoot) {
    for (uint32_t number = 0; number < pieces; ++number) forward(sequence, number);
  }
  if (left == 0) {
    auto node = underway_.extract(sequence);
    node.mapped().done(base::ok());
  }
  deferred_.resume(fabric_);
}

Result<fabric::Landing> Broadcast::onMessage(Rank from, const wire::Header& header) {
  const uint64_t sequence = index(header.step);
  const auto refuse = [&](std::string_view why) {
    return Status(Code::kRefused,
                  fmt::format("a piece of broadcast {} does not fit: {}", sequence, why));
  };
  // A rank that is ahead sends pieces of a broadcast that has not been called here. They wait
  // at the sender, since nobody knows yet where they should go, and start() offers them again.
  if (sequence >= nextSequence_) return deferred_.defer(from, kBroadcastLane);
  const auto found = underway_.find(sequence);
  if (found == underway_.end()) {
    if (end_.has_value() && sequence >= end_->count)
      return end_->why;  // it has ended without this piece
    return refuse("it has ended");
  }
  Underway& here = found->second;
  const uint32_t number = index(header.slice);
  const uint32_t position = positionOf(fabric_.rank(), here.root);
  if (position == 0 || from != rankAt((position - 1) / 2, here.root))
    return refuse("not from the rank above");
  if (number >= piecesOf(here.data->size())) return refuse("no such piece");
  const auto place = piece(*here.data, number);
  if (header.length != place.size()) return refuse("not the length that is expected here");
  if (here.hasBegun[number]) return refuse("it came before");
  // A piece lands straight in its place and is passed on as soon as it is whole, while the next
  // one still comes. `kept` holds the bytes for the fabric, also if the broadcast fails and its
  // caller is gone.
  here.hasBegun[number] = true;
  return fabric::Landing{{place.data(), place.size()},
                         [this, sequence, number, kept = here.data](const Status& status) {
                           if (!status.isOk()) return fail(status);
                           forward(sequence, number);
                           finished(sequence);
                         }};
}

void Broadcast::forward(uint64_t sequence, uint32_t number) {
  const auto found = underway_.find(sequence);
  if (found == underway_.end()) return;  // it has failed meanwhile
  const SharedBytes data = found->second.data;
  const auto payload = piece(*data, number);
  const fabric::Message message{.step = Step{sequence},
                                .slice = SliceId{number},
                                .stage = Stage::kApplied,
                                .dtype = DType::kBytes};
  for (const Rank child : childrenOf(found->second.root)) {
    fabric_.send(child, kBroadcastLane, message, {payload.data(), payload.size()},
                 [this, sequence, kept = data](const Status& status) {
                   if (!status.isOk()) return fail(status);
                   finished(sequence);
                 });
  }
}

void Broadcast::finished(uint64_t sequence) {
  const auto found = underway_.find(sequence);
  if (found == underway_.end() || --found->second.left > 0) return;
  auto node = underway_.extract(found);
  node.mapped().done(base::ok());
}

void Broadcast::endAfter(uint64_t count, const Status& why) {
  if (end_.has_value() && end_->count <= count) return;
  end_ = End{count, why};
  // Completions run after the list is in order: one of them may begin the next broadcast.
  std::map<uint64_t, Underway> ended;
  while (!underway_.empty() && std::prev(underway_.end())->first >= count)
    ended.insert(underway_.extract(std::prev(underway_.end())));
  for (auto& [sequence, underway] : ended) underway.done(why);
}

std::span<std::byte> Broadcast::piece(std::vector<std::byte>& data, uint32_t number) {
  const size_t offset = number * kPieceBytes;
  return std::span(data).subspan(offset, std::min(kPieceBytes, data.size() - offset));
}

uint32_t Broadcast::positionOf(Rank rank, Rank root) const {
  const auto size = static_cast<uint32_t>(fabric_.worldSize());
  return (index(rank) + size - index(root)) % size;
}

Rank Broadcast::rankAt(uint32_t position, Rank root) const {
  return Rank{(position + index(root)) % static_cast<uint32_t>(fabric_.worldSize())};
}

std::vector<Rank> Broadcast::childrenOf(Rank root) const {
  std::vector<Rank> children;
  const uint32_t position = positionOf(fabric_.rank(), root);
  // Ranks form a binary tree, laid out like a heap with the root first. So each rank knows its
  // neighbours without a message, and no rank sends a piece more than twice.
  for (const uint32_t child : {2 * position + 1, 2 * position + 2}) {
    if (child < fabric_.worldSize()) children.push_back(rankAt(child, root));
  }
  return children;
}

}  // namespace sluice::session
