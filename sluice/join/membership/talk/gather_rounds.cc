#include <sluice/join/membership/talk/gather_rounds.h>

#include <algorithm>

#include <fmt/format.h>

#include <sluice/base/byte_io.h>

namespace sluice::membership {
namespace {

constexpr size_t kMostValues = 1 << 16;
// A round costs a little even if its values are empty.
constexpr size_t kRoundBytes = 256;

std::string encodeValues(const GatherRounds::Values& values) {
  base::ByteWriter writer;
  writer.number(static_cast<uint32_t>(values.size()));
  for (const auto& value : values) writer.block(std::as_bytes(std::span(value)));
  return base::textOf(writer.bytes());
}

Result<GatherRounds::Values> decodeValues(const std::string& bytes) {
  base::ByteReader reader(std::as_bytes(std::span(bytes)));
  GatherRounds::Values values(reader.count(kMostValues, sizeof(uint64_t)));
  for (auto& value : values) value = base::textOf(reader.block());
  if (reader.failed() || !reader.atEnd())
    return Status(Code::kRefused, "a member has handed over values that are malformed");
  return values;
}

}  // namespace

uint64_t GatherRounds::begin(const std::string& key, size_t most, Bring bring, Got got) {
  const Id id{key, begun_[key]++};
  // Others may have begun this round before, and their values lie in it already.
  Round& round = rounds_[id];
  round.hasBegun = true;
  round.most = most;
  round.bring = std::move(bring);
  round.got = std::move(got);
  bringValue(id, round);
  completeIfWhole(id, round);
  return id.second;
}

void GatherRounds::bringValue(const Id& id, Round& round) {
  const std::string value = round.bring(view_);
  round.values[view_.self] = {value, value.size()};
  sendToOthers(MemberMessageKind::kValue, id, value);
}

void GatherRounds::sendToOthers(MemberMessageKind kind, const Id& id, const std::string& bytes) {
  const auto others = view_.others();
  if (!others.empty()) sendInParts(kind, id, others, bytes);
}

void GatherRounds::sendInParts(MemberMessageKind kind, const Id& id, const std::vector<Rank>& to,
                               const std::string& bytes) {
  // An empty value takes one message, too.
  size_t offset = 0;
  do {
    const size_t part = std::min(kPartBytes, bytes.size() - offset);
    send_(to, {.kind = kind,
               .epoch = view_.epoch,
               .key = id.first,
               .number = id.second,
               .total = bytes.size(),
               .offset = offset,
               .bytes = bytes.substr(offset, part)});
    offset += part;
  } while (offset < bytes.size());
}

void GatherRounds::enter(const EpochView& view) {
  view_ = view;
  mostMembers_ = std::max(mostMembers_, view.size());
  for (auto& [id, round] : rounds_) {
    // Values of the last epoch are void, since a round completes with the values of one epoch.
    // A round that was complete stays as it is, and its values go to those who lack them.
    round.values.clear();
    round.results.clear();
    round.have.clear();
    if (round.complete) {
      tellResult(id, round);
    } else if (round.hasBegun) {
      bringValue(id, round);
    }
  }
  // The ids are copied, since rounds come and go meanwhile.
  std::vector<Id> ids;
  for (const auto& [id, round] : rounds_) ids.push_back(id);
  for (const Id& id : ids) {
    const auto found = rounds_.find(id);
    if (found == rounds_.end()) continue;
    if (!found->second.hasBegun) {
      rounds_.erase(found);  // values of the epoch before
    } else if (found->second.complete) {
      forgetIfEverybodyHasIt(id);
    } else {
      completeIfWhole(id, found->second);
    }
  }
}

void GatherRounds::tellResult(const Id& id, const Round& round) {
  sendToOthers(MemberMessageKind::kResult, id, encodeValues(*round.complete));
}

Status GatherRounds::append(std::map<Rank, Part>& parts, Rank from, const MemberMessage& message,
                            size_t most) {
  if (message.total > most)
    return {Code::kRefused, fmt::format("rank {} has a value of {} bytes", from, message.total)};
  const auto [place, isNew] = parts.try_emplace(from, Part{{}, message.total});
  Part& part = place->second;
  const bool fits = message.total == part.total && message.offset == part.bytes.size() &&
                    message.bytes.size() <= part.total - part.bytes.size() &&
                    (isNew || !message.bytes.empty());
  if (!fits) return {Code::kRefused, fmt::format("rank {} has sent a wrong part", from)};
  part.bytes += message.bytes;
  return base::ok();
}

Status GatherRounds::onMessage(Rank from, const MemberMessage& message) {
  const Id id{message.key, message.number};
  const auto counted = begun_.find(message.key);
  const bool hasBegun = counted != begun_.end() && message.number < counted->second;
  const auto found = rounds_.find(id);
  if (hasBegun && found == rounds_.end()) {  // every member had it once
    // The other member hands over its values because it does not know that this one has them.
    // It can forget the round once it does.
    if (message.kind == MemberMessageKind::kResult &&
        message.offset + message.bytes.size() == message.total)
      sendInParts(MemberMessageKind::kHave, id, {from}, "");
    return base::ok();
  }
  if (!hasBegun && message.kind != MemberMessageKind::kValue) {
    return {Code::kRefused, fmt::format("rank {} has values of '{}', which this rank has not begun",
                                        from, message.key)};
  }
  Round& round = rounds_[id];
  if (message.kind == MemberMessageKind::kHave) {
    round.have.insert(from);
    if (round.complete) forgetIfEverybodyHasIt(id);
    return base::ok();
  }
  if (message.kind == MemberMessageKind::kValue) {
    if (round.complete) return base::ok();  // it gets the values that are complete
    // How long a value may be is known once the round has begun here. Until then the channel
    // bounds what a member says ahead (bytesAheadOf).
    SLUICE_RETURN_IF_ERROR(
        append(round.values, from, message, round.hasBegun ? round.most : SIZE_MAX));
    completeIfWhole(id, round);
    return base::ok();
  }
  const size_t mostOfAll = mostMembers_ * (round.most + sizeof(uint64_t)) + sizeof(uint32_t);
  SLUICE_RETURN_IF_ERROR(append(round.results, from, message, mostOfAll));
  const Part& result = round.results.at(from);
  if (!result.isWhole()) return base::ok();
  round.have.insert(from);  // who hands over a result has it
  if (round.complete) {
    sendInParts(MemberMessageKind::kHave, id, {from}, "");
    forgetIfEverybodyHasIt(id);
    return base::ok();
  }
  SLUICE_ASSIGN_OR_RETURN(auto values, decodeValues(result.bytes));
  complete(id, round, std::move(values));
  return base::ok();
}

void GatherRounds::completeIfWhole(const Id& id, Round& round) {
  if (!round.hasBegun || round.complete || round.values.size() != view_.size()) return;
  const auto isWhole = [](const auto& value) { return value.second.isWhole(); };
  if (!std::ranges::all_of(round.values, isWhole)) return;
  Values values;
  for (auto& [rank, part] : round.values) values.push_back(std::move(part.bytes));
  complete(id, round, std::move(values));
}

void GatherRounds::complete(const Id& id, Round& round, Values values) {
  round.complete = std::move(values);
  round.values.clear();
  round.results.clear();
  sendToOthers(MemberMessageKind::kHave, id, "");
  if (round.got) {
    runLater([got = std::exchange(round.got, nullptr), values = *round.complete] { got(values); });
  }
  forgetIfEverybodyHasIt(id);
}

void GatherRounds::forgetIfEverybodyHasIt(const Id& id) {
  if (rounds_.at(id).have.size() + 1 >= view_.size()) rounds_.erase(id);
}

void GatherRounds::giveUp(const std::string& key, uint64_t number, const Status& why) {
  const auto found = rounds_.find({key, number});
  if (found == rounds_.end() || !found->second.got) return;
  runLater([got = std::exchange(found->second.got, nullptr), why] { got(why); });
}

void GatherRounds::giveUpAll(const Status& why) {
  for (auto& [id, round] : rounds_) giveUp(id.first, id.second, why);
}

void GatherRounds::runLater(std::function<void()> completion) {
  completions_.push_back(std::move(completion));
  if (completions_.size() == 1) due_();
}

void GatherRounds::runDue() {
  for (const auto& completion : std::exchange(completions_, {})) completion();
}

size_t GatherRounds::bytesAheadOf(Rank from) const {
  size_t bytes = 0;
  for (const auto& [id, round] : rounds_) {
    const auto found = round.values.find(from);
    if (!round.hasBegun && found != round.values.end())
      bytes += found->second.bytes.size() + kRoundBytes;
  }
  return bytes;
}

std::vector<Rank> GatherRounds::missing(const std::string& key, uint64_t number) const {
  std::vector<Rank> ranks;
  const auto found = rounds_.find({key, number});
  if (found == rounds_.end()) return ranks;
  for (uint32_t rank = 0; rank < view_.size(); ++rank) {
    const auto value = found->second.values.find(Rank{rank});
    if (value == found->second.values.end() || !value->second.isWhole())
      ranks.push_back(Rank{rank});
  }
  return ranks;
}

}  // namespace sluice::membership
