#include <tools/probe/talker.h>

#include <utility>

#include <fmt/format.h>

namespace sluice::probe {
namespace {

// The kind of a message travels where a training has the number of a tensor, and the number of a
// question where it has that of a slice.
constexpr TensorId kQuestion{1};
constexpr TensorId kAnswer{2};
constexpr TensorId kFlood{3};

fabric::Message messageOf(TensorId kind, uint32_t id) {
  fabric::Message message;
  message.tensor = kind;
  message.slice = SliceId{id};
  return message;
}

}  // namespace

void Talker::ask(Rank to, fabric::Lane lane, size_t bytes, Answered answered) {
  SLUICE_DCHECK(loop_.inLoop());
  const uint32_t id = nextId_++;
  questions_.emplace(id, Question{to, loop_.now(), std::move(answered)});
  fabric_->send(to, lane, messageOf(kQuestion, id), {payload_.data(), bytes},
                [this, id](const Status& status) {
                  if (!status.isOk()) complete(id, status);
                });
}

void Talker::forget(Rank to) {
  std::vector<uint32_t> ids;
  for (const auto& [id, question] : questions_) {
    if (question.to == to) ids.push_back(id);
  }
  const Status late(Code::kTimeout, fmt::format("rank {} has not answered in time", index(to)));
  for (const uint32_t id : ids) complete(id, late);
}

void Talker::flood(Rank to, size_t bytes, fabric::Done taken) {
  SLUICE_DCHECK(loop_.inLoop());
  fabric_->send(to, fabric::Lane::kBulk, messageOf(kFlood, 0), {payload_.data(), bytes},
                std::move(taken));
}

Status Talker::lossOf(Rank peer) const {
  const auto found = lost_.find(peer);
  return found == lost_.end() ? base::ok() : found->second;
}

Result<fabric::Landing> Talker::onMessage(Rank from, fabric::Lane lane,
                                          const wire::Header& header) {
  if (header.length > kLargestPiece)
    return Status(Code::kRefused, "a message is longer than any that a probe sends");
  auto& landing = landings_[{from, lane}];
  if (landing == nullptr) landing = std::make_unique<std::vector<std::byte>>(kLargestPiece);
  return fabric::Landing{.buffer = {landing->data(), landing->size()},
                         .done = [this, from, header](const Status& status) {
                           if (status.isOk()) arrived(from, header);
                         }};
}

void Talker::arrived(Rank from, const wire::Header& header) {
  if (fabric_ == nullptr) return;  // nobody asks before all ranks are ready
  if (header.tensor == kQuestion) {
    fabric_->send(from, fabric::Lane::kControl, messageOf(kAnswer, index(header.slice)), {},
                  [](const Status&) {});
  } else if (header.tensor == kAnswer) {
    const auto found = questions_.find(index(header.slice));
    if (found == questions_.end() || found->second.to != from) return;  // it came too late
    complete(found->first, loop_.now() - found->second.asked);
  }
}

void Talker::complete(uint32_t id, const Result<Duration>& result) {
  const auto node = questions_.extract(id);
  if (node) node.mapped().answered(result);
}

}  // namespace sluice::probe
