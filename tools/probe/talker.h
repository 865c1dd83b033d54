// The messages of a probe: questions of any size, which the other rank answers with an empty
// message, and floods, which nobody answers. Loop thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <sluice/base/loop.h>
#include <sluice/transport/fabric/fabric.h>

namespace sluice::probe {

inline constexpr size_t kLargestPiece = size_t{64} << 10;

class Talker final : public fabric::Receiver {
 public:
  using Answered = std::function<void(const Result<Duration>& roundTrip)>;

  explicit Talker(Loop& loop) : loop_(loop) {}

  // REQUIRES: `fabric` outlives every call below.
  void use(fabric::Fabric& fabric) { fabric_ = &fabric; }

  // Sends `bytes` and runs `answered` once: when the answer is here, with the fabric's error, or
  // with kTimeout when forget() comes first. REQUIRES: bytes <= kLargestPiece.
  void ask(Rank to, fabric::Lane lane, size_t bytes, Answered answered);

  // Ends all questions to `to` that have no answer yet.
  void forget(Rank to);

  // Sends `bytes`; `taken` runs when they are the kernel's. REQUIRES: bytes <= kLargestPiece.
  void flood(Rank to, size_t bytes, fabric::Done taken);

  // Returns the error that ended the connections with `peer`; ok if there is none.
  Status lossOf(Rank peer) const;

  Result<fabric::Landing> onMessage(Rank from, fabric::Lane lane,
                                    const wire::Header& header) override;
  void onPeerLost(Rank from, const Status& why) override { lost_.emplace(from, why); }
  void onPeerLeft(Rank) override {}

 private:
  struct Question {
    Rank to{};
    TimePoint asked{};
    Answered answered;
  };
  void arrived(Rank from, const wire::Header& header);
  void complete(uint32_t id, const Result<Duration>& result);

  Loop& loop_;
  fabric::Fabric* fabric_ = nullptr;
  const std::vector<std::byte> payload_ = std::vector<std::byte>(kLargestPiece);
  std::map<std::pair<Rank, fabric::Lane>, std::unique_ptr<std::vector<std::byte>>> landings_;
  std::map<uint32_t, Question> questions_;
  uint32_t nextId_ = 1;
  std::map<Rank, Status> lost_;
};

}  // namespace sluice::probe
