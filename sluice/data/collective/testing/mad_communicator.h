// A process group in one thread; one of its ranks may be mad (fabric/testing/mad_fabric.h). Every
// rank makes the same calls, with several under way. Tests and fuzzing only.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include <sluice/data/collective/communicator.h>
#include <sluice/transport/fabric/loopback/loopback_fabric.h>
#include <sluice/transport/fabric/testing/mad_fabric.h>

namespace sluice::collective {

class MadGroup final {
 public:
  MadGroup(uint32_t world, std::optional<Rank> mad, fabric::Choices& choices)
      : choices_(choices), mad_(mad) {
    hub_ = std::make_unique<fabric::LoopbackHub>(world);
    for (uint32_t r = 0; r < world; ++r) {
      auto& member = members_.emplace_back(std::make_unique<SeatedRank>());
      member->loop.post([this, r, &member = *member] {
        member.communicator =
            Communicator::start(
                [&](fabric::Receiver& receiver) {
                  member.late.emplace(receiver, choices_, member.loop);
                  auto under = hub_->join(Rank{r}, member.loop, *member.late);
                  auto fabric = std::make_unique<fabric::MadFabric>(
                      std::move(under), mad_ == Rank{r} ? &choices_ : nullptr, inputs_);
                  member.fabric = fabric.get();
                  return Result<std::unique_ptr<fabric::Fabric>>(std::move(fabric));
                },
                kBudget)
                .value();
      });
    }
    for (auto& member : members_) member->loop.runReady();
  }
  ~MadGroup() {
    for (auto& member : members_) {
      member->loop.post([&member = *member] {
        member.fabric->releasePutOff();
        member.communicator->fail({Code::kCancelled, "the test is over"});
      });
    }
    for (auto& member : members_) member->loop.runReady();  // now all sends have reached the fabric
    for (auto& member : members_) {
      member->loop.post([&member = *member] {
        member.late->end(std::nullopt, {Code::kCancelled, "the test is over"});
        member.communicator.reset();
      });
      member->loop.runReady();
    }
  }
  MadGroup(const MadGroup&) = delete;
  MadGroup& operator=(const MadGroup&) = delete;

  void play(size_t inputs) {
    for (size_t i = 0; i < 8 * inputs && inputs_ < inputs && !choices_.areOver(); ++i) {
      act();
      if (choices_.isOneIn(4)) inject();
      checkMemory();
    }
    settle();
  }

  // Makes `calls` calls on every rank, in any order of events; false if they do not all end well.
  bool callAll(uint64_t calls) {
    const auto isDone = [&](const auto& member) { return member->ended == calls; };
    for (size_t turns = 0; turns < 100'000 && !std::ranges::all_of(members_, isDone); ++turns) {
      act(calls);
      checkMemory();
      if (turns % 1000 == 999) settle();
    }
    return std::ranges::all_of(members_, isDone) && failed_ == 0;
  }

  uint64_t inputs() const { return inputs_; }
  uint64_t wrong() const { return wrong_; }  // calls that ended well with wrong bytes

 private:
  static constexpr uint64_t kBudget = 6000;
  static constexpr uint64_t kAtOnce = 12;
  using Floats = std::vector<float>;

  struct SeatedRank {
    base::ManualLoop loop;
    std::optional<fabric::LateReceiver> late;
    fabric::MadFabric* fabric = nullptr;  // the communicator's
    std::unique_ptr<Communicator> communicator;
    uint64_t made = 0;
    uint64_t ended = 0;
  };

  uint32_t world() const { return static_cast<uint32_t>(members_.size()); }

  void act(uint64_t calls = 1'000'000) {
    const auto r = static_cast<uint32_t>(choices_.below(world()));
    SeatedRank& member = *members_[r];
    switch (choices_.below(4)) {
      case 0:
        if (member.made < calls && member.made < member.ended + kAtOnce) {
          member.loop.post([this, r, number = member.made] { call(r, number); });
          ++member.made;
        }
        break;
      case 1: (void)member.late->landOne(); break;
      default: (void)member.loop.runOne(); break;
    }
  }

  void settle() {
    size_t turns = 0;
    for (bool ran = true; ran;) {
      ran = false;
      for (auto& member : members_) {
        member->late->landAll();
        const size_t count = member->loop.runReady();
        turns += count;
        ran = ran || count > 0;
      }
      SLUICE_CHECK(turns < 200'000);  // it runs for ever
    }
  }

  void call(uint32_t r, uint64_t number) {
    Communicator& communicator = *members_[r]->communicator;
    const size_t size = 8 + number * 37 % 200;
    const auto data = std::make_shared<std::vector<Floats>>(world() + 1, Floats(size));
    std::ranges::fill(data->front(), static_cast<float>(r + number));
    const auto bytesOf = [&](size_t i) { return std::as_writable_bytes(std::span((*data)[i])); };
    const Rank root{static_cast<uint32_t>(number % world())};
    const auto kind = number % 5;
    float expected = 0;  // at the front, when it is over
    if (kind == 0) {
      for (uint32_t each = 0; each < world(); ++each) expected += static_cast<float>(each + number);
    } else if (kind == 1) {
      expected = static_cast<float>(index(root) + number);
    } else {
      expected = static_cast<float>(r + number);
    }
    Terms terms{.atMost = std::chrono::hours(1),
                .memory = data,
                .done = [this, r, data, expected](const Status& status) {
                  ++members_[r]->ended;
                  if (!status.isOk()) ++failed_;
                  if (status.isOk() && data->front().front() != expected) ++wrong_;
                }};
    if (kind == 0)
      return communicator.allReduce(bytesOf(0), DType::kF32, Method::kRing, std::move(terms));
    if (kind == 1) return communicator.broadcast(bytesOf(0), root, std::move(terms));
    if (kind == 2) return communicator.barrier(std::move(terms));
    std::vector<Leg> legs(kind == 3 ? 1 : 2);
    for (Leg& leg : legs) {
      for (uint32_t other = 0; other < world(); ++other) {
        if (other == r) continue;
        leg.sends.push_back({Rank{other}, bytesOf(0)});
        leg.receives.push_back({Rank{other}, bytesOf(1 + other)});
      }
    }
    communicator.exchange(kind == 3 ? Kind::kAllGather : Kind::kAllToAll, std::move(legs),
                          std::move(terms));
  }

  void inject() {
    SeatedRank& mad = *members_[index(*mad_)];
    const Rank to{(index(*mad_) + 1 + static_cast<uint32_t>(choices_.below(world() - 1))) %
                  world()};
    fabric::Message message;
    const uint64_t odd = choices_.below(8);
    message.step = odd == 0 ? Step{choices_.number()} : Step{mad.made + choices_.below(8) - 2};
    message.tensor =
        odd == 1 ? TensorId{static_cast<uint32_t>(choices_.number())}
                 : TensorId{static_cast<uint32_t>(choices_.below(12) * kMostLegs +
                                                  choices_.below(odd == 2 ? kMostLegs : 1))};
    message.slice = odd == 3 ? SliceId{static_cast<uint32_t>(choices_.number())}
                             : SliceId{static_cast<uint32_t>(choices_.below(8))};
    message.stage = kPath[choices_.below(kPath.size())];
    message.dtype = choices_.isOneIn(2) ? DType::kF32 : DType::kBytes;
    if (choices_.isOneIn(8)) message.flags = wire::Flags::kEncoded;
    const uint64_t bytes = std::array<uint64_t, 4>{0, 1, 4 * (8 + index(message.step) * 37 % 200),
                                                   choices_.below(9000)}[choices_.below(4)];
    const auto lane = static_cast<fabric::Lane>(choices_.below(wire::kLanes));
    mad.fabric->sendCopy(to, lane, message, fabric::madBytes(choices_, bytes), nullptr);
    const uint64_t deed = choices_.below(64);
    if (deed == 0) mad.fabric->close([](const Status&) {});
    if (deed > 48) mad.loop.post([&mad] { mad.fabric->releasePutOff(); });
  }

  void checkMemory() {
    for (auto& member : members_) {
      for (uint32_t r = 0; r < world(); ++r) {
        if (member->communicator == nullptr) continue;
        const uint64_t kept = member->communicator->keptFrom(Rank{r});
        SLUICE_CHECK(kept <= kBudget + kMailBudget, kept);
      }
    }
  }

  fabric::Choices& choices_;
  const std::optional<Rank> mad_;
  std::unique_ptr<fabric::LoopbackHub> hub_;
  std::vector<std::unique_ptr<SeatedRank>> members_;
  uint64_t inputs_ = 0;
  uint64_t failed_ = 0;
  uint64_t wrong_ = 0;
};

}  // namespace sluice::collective
