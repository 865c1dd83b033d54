#include <sluice/transport/fabric/watch/life_sign.h>

#include <algorithm>
#include <string_view>

#include <sluice/base/byte_io.h>
#include <sluice/base/text.h>

namespace sluice::fabric {
namespace {

// Part of the wire format: never renumber.
enum class Kind : uint8_t { kHeartbeat = 0, kLossNotice = 1, kPulseBeat = 2 };

// Of the beat of a pulse.
constexpr uint8_t kVersion = 2;

constexpr size_t kNoticeBytesBeforeWhy = 1 + 4 + 4 + 4;
constexpr size_t kMaxWhyBytes = kMaxLifeSignBytes - kNoticeBytesBeforeWhy;

uint64_t toNumber(Duration d) {
  return static_cast<uint64_t>(d.count());
}
Duration toDuration(uint64_t number) {
  return std::clamp(Duration(static_cast<Duration::rep>(number)), -kFarthest, kFarthest);
}

void write(base::ByteWriter& to, const Heartbeat& beat) {
  to.number(static_cast<uint8_t>(Kind::kHeartbeat));
  to.number(static_cast<uint8_t>(beat.echo ? 1 : 0));
  to.number(toNumber(beat.sent.time_since_epoch()));
  to.number(toNumber(beat.echo.value_or(TimePoint()).time_since_epoch()));
  to.number(toNumber(beat.held));
}

void write(base::ByteWriter& to, const LossNotice& notice) {
  to.number(static_cast<uint8_t>(Kind::kLossNotice));
  to.number(index(notice.lost));
  to.number(index(notice.witness));
  to.text(std::string_view(notice.why).substr(0, kMaxWhyBytes));
}

void write(base::ByteWriter& to, const PulseBeat& beat) {
  to.number(static_cast<uint8_t>(Kind::kPulseBeat));
  to.number(kVersion);
  to.number(toNumber(beat.busy));
  to.number(static_cast<uint8_t>(beat.training.doing));
  to.number(beat.training.step);
  to.number(toNumber(beat.training.since));
}

Heartbeat readHeartbeat(base::ByteReader& from) {
  const bool hasEcho = from.number<uint8_t>() != 0;
  Heartbeat beat;
  beat.sent = TimePoint(toDuration(from.number<uint64_t>()));
  const TimePoint echo(toDuration(from.number<uint64_t>()));
  if (hasEcho) beat.echo = echo;
  beat.held = toDuration(from.number<uint64_t>());
  return beat;
}

LossNotice readNotice(base::ByteReader& from) {
  LossNotice notice;
  notice.lost = Rank{from.number<uint32_t>()};
  notice.witness = Rank{from.number<uint32_t>()};
  notice.why = base::printable(from.text(kMaxWhyBytes));
  return notice;
}

Duration readLength(base::ByteReader& from) {
  return std::max(Duration::zero(), toDuration(from.number<uint64_t>()));
}

std::optional<PulseBeat> readPulseBeat(base::ByteReader& from) {
  if (from.number<uint8_t>() != kVersion) return std::nullopt;
  PulseBeat beat;
  beat.busy = readLength(from);
  beat.training.doing = base::doingOf(from.number<uint8_t>());
  beat.training.step = from.number<uint64_t>();
  beat.training.since = readLength(from);
  return beat;
}

}  // namespace

std::vector<std::byte> toBytes(const LifeSign& sign) {
  base::ByteWriter writer;
  std::visit([&](const auto& each) { write(writer, each); }, sign);
  return std::move(writer).take();
}

// The bytes come from a holder of the key but may be of another version, so nothing is believed
// before all has been read: a sign that is too short or too long is not one of ours. Times are
// clamped as they are read (kFarthest), and text loses what a terminal would obey.
std::optional<LifeSign> parseLifeSign(std::span<const std::byte> bytes) {
  base::ByteReader reader(bytes);
  std::optional<LifeSign> sign;
  switch (static_cast<Kind>(reader.number<uint8_t>())) {
    case Kind::kHeartbeat: sign = readHeartbeat(reader); break;
    case Kind::kLossNotice: sign = readNotice(reader); break;
    case Kind::kPulseBeat: sign = readPulseBeat(reader); break;
  }
  if (reader.failed() || !reader.atEnd()) return std::nullopt;
  return sign;
}

}  // namespace sluice::fabric
