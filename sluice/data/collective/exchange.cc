#include <sluice/data/collective/exchange.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <sluice/base/check.h>
#include <sluice/transport/fabric/common.h>

namespace sluice::collective {
namespace {

// A piece is far below the limit of a message, and large enough that the number of pieces does not
// matter.
constexpr size_t kPieceBytes = size_t{16} << 20;

}  // namespace

Exchange::Pieces Exchange::cut(const std::vector<Parcel>& parcels) {
  Pieces pieces;
  for (const Parcel& parcel : parcels) {
    for (size_t begin = 0; begin < parcel.bytes.size(); begin += kPieceBytes) {
      const size_t size = std::min(kPieceBytes, parcel.bytes.size() - begin);
      pieces[parcel.rank].push_back({parcel.bytes.subspan(begin, size)});
    }
  }
  return pieces;
}

std::optional<size_t> Exchange::pieceBytes(const std::vector<Parcel>& receives, Rank from,
                                           uint32_t number) {
  uint64_t first = 0;  // number of the parcel's first piece
  for (const Parcel& parcel : receives) {
    if (parcel.rank != from) continue;
    const uint64_t pieces = (parcel.bytes.size() + kPieceBytes - 1) / kPieceBytes;
    if (number < first + pieces)
      return std::min(kPieceBytes, parcel.bytes.size() - (number - first) * kPieceBytes);
    first += pieces;
  }
  return std::nullopt;
}

Exchange::Exchange(fabric::Fabric& fabric, const Ticket& ticket, const std::vector<Parcel>& sends,
                   const std::vector<Parcel>& receives, Done onEnd)
    : fabric_(fabric),
      ticket_(ticket),
      sends_(cut(sends)),
      receives_(cut(receives)),
      onEnd_(std::move(onEnd)) {
  for (const Pieces* pieces : {&sends_, &receives_}) {
    SLUICE_CHECK(!pieces->contains(fabric_.rank()), fabric_.rank());
    for (const auto& [rank, each] : *pieces) left_ += each.size();
  }
}

void Exchange::start() {
  const auto self = shared_from_this();
  // A round without parcels ends like any other, by way of oneLess(), so that the call has one
  // path to its end.
  if (left_ == 0) {
    ++left_;
    return oneLess(base::ok());
  }
  for (const auto& [to, pieces] : sends_) {
    for (uint32_t number = 0; number < pieces.size(); ++number) {
      const fabric::Message message{.step = ticket_.step,
                                    .tensor = ticket_.number,
                                    .slice = SliceId{number},
                                    .stage = Stage::kPush,
                                    .dtype = DType::kBytes};
      const auto& bytes = pieces[number].bytes;
      fabric_.send(to, fabric::Lane::kBulk, message, {bytes.data(), bytes.size()},
                   [self](const Status& status) { self->oneLess(status); });
    }
  }
}

Result<fabric::Landing> Exchange::land(Rank from, const wire::Header& header) {
  const auto found = receives_.find(from);
  const uint32_t number = index(header.slice);
  // The place is known beforehand for every piece, so the bytes go straight to their final
  // memory, in whatever order they come. Everything else is refused before a byte of it is
  // read.
  if (found == receives_.end() || number >= found->second.size())
    return fabric::refusedStatus(header, "nothing more is expected");
  Piece& piece = found->second[number];
  if (header.length != piece.bytes.size())
    return fabric::refusedStatus(header,
                                 fmt::format("{} bytes are expected here", piece.bytes.size()));
  if (piece.state != Piece::State::kMissing) return fabric::refusedStatus(header, "it came before");
  piece.state = Piece::State::kLanding;
  return fabric::Landing{{piece.bytes.data(), piece.bytes.size()},
                         [self = shared_from_this(), &piece](const Status& status) {
                           if (status.isOk()) piece.state = Piece::State::kHere;
                           self->oneLess(status);
                         }};
}

void Exchange::oneLess(const Status& status) {
  --left_;
  if (left_ > 0 && status.isOk()) return;
  // The first error ends the round; completions that come later find no onEnd_ and are only
  // counted.
  if (const Done done = std::exchange(onEnd_, nullptr)) done(status);
}

std::set<Rank> Exchange::missing() const {
  std::set<Rank> ranks;
  for (const auto& [from, pieces] : receives_) {
    const auto isHere = [](const Piece& piece) { return piece.state == Piece::State::kHere; };
    if (!std::ranges::all_of(pieces, isHere)) ranks.insert(from);
  }
  return ranks;
}

}  // namespace sluice::collective
