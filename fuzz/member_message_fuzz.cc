// Messages of a broken member of the job: any bytes at all, one after another. A member that hears them
// goes on. An accepted message must come out the same when it is encoded again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <sluice/join/membership/talk/gather_rounds.h>
#include <sluice/join/membership/talk/member_message.h>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace sluice;
  using namespace sluice::membership;
  auto left = std::as_bytes(std::span(data, size));
  GatherRounds rounds([](const auto&, const MemberMessage&) {}, [] {});
  const EpochView view{.epoch = Epoch{0}, .members = {Rank{0}, Rank{1}, Rank{2}}, .self = Rank{0}};
  rounds.enter(view);
  rounds.begin("a", 64, [](const EpochView&) { return "mine"; }, [](const auto&) {});
  while (!left.empty()) {
    const auto length = std::min<size_t>(static_cast<size_t>(left.front()), left.size() - 1);
    const auto bytes = left.subspan(1, length);
    left = left.subspan(1 + length);
    const auto message = decodeMessage(bytes);
    if (!message.isOk()) continue;
    if (!std::ranges::equal(encode(*message), bytes)) std::abort();
    const bool isOfRounds = message->kind == MemberMessageKind::kValue ||
                            message->kind == MemberMessageKind::kResult ||
                            message->kind == MemberMessageKind::kHave;
    if (isOfRounds) (void)rounds.onMessage(Rank{1}, *message);
    rounds.runDue();
  }
  rounds.enter({.epoch = Epoch{1}, .members = {Rank{0}, Rank{2}}, .self = Rank{0}});
  return 0;
}
