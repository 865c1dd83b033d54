#!/usr/bin/env python3
"""Tests whether schedules of lost members find faults: plants one fault after another in the code
that goes on without them, builds, and checks that a test in sluice/algorithms/testing/elastic_test.cc
fails within a minute of CPU. Prints the number of faults found.

    tests/mutation/members.py [NAME...]      # takes many minutes; only these faults
"""

from __future__ import annotations

import sys

from planted_faults import Fault, findFaults

TARGET = "sluice_algorithms_testing_test"
TESTS = "*Elastic*"

FAULTS = {
    "members-tell-each-other-nothing": Fault(
        "sluice/algorithms/elastic/exchange.cc",
        "  auto agreed = agreeOn(reports_);\n",
        "  auto agreed = agreeOn(std::span(reports_).subspan(index(fabric_->rank()), 1));\n",
    ),
    "a-slice-is-summed-twice": Fault(
        "sluice/algorithms/elastic/elastic_strategy.cc",
        "  } else if (here.missing == slices.size() && isWhole(tensor)) {\n",
        "  } else if (isWhole(tensor)) {\n",
    ),
    "the-kept-result-is-the-programs-memory": Fault(
        "sluice/algorithms/elastic/exchange.cc",
        "  const auto bytes = kept_.bytes(slice.id);\n",
        "  const auto bytes = partOf(*plan_, outer_.memory[index(slice.tensor)].result, slice);\n",
    ),
    "a-result-lands-in-place": Fault(
        "sluice/algorithms/elastic/elastic_strategy.cc",
        "  return kept_.landing(slice.id);\n",
        "  return partOf(*plan_, outer_.memory[index(slice.tensor)].result, slice);\n",
    ),
    "slices-start-at-step-0": Fault(
        "sluice/algorithms/server/collecting.cc",
        "      server_.shard().startAt(id, steps[index(id)]);\n",
        "      server_.shard().startAt(id, Step{0 * index(steps[index(id)])});\n",
    ),
    "a-gradient-is-forgotten-while-members-agree": Fault(
        "sluice/algorithms/elastic/elastic_strategy.cc",
        "void ElasticStrategy::contribute(const Contribution& contribution) {\n",
        "void ElasticStrategy::contribute(const Contribution& contribution) {\n"
        "  if (phase_ == Phase::kSuspended) return;\n",
    ),
    "a-slice-is-summed-before-it-has-come-from-the-device": Fault(
        "sluice/algorithms/elastic/elastic_strategy.cc",
        "      if (hasCome_[index(slice.id)] && !isDone(slice, step)) giveSliceInside(slice);\n",
        "      if (!isDone(slice, step)) giveSliceInside(slice);\n",
    ),
    "a-slice-that-comes-while-members-agree-is-forgotten": Fault(
        "sluice/algorithms/elastic/elastic_strategy.cc",
        "  hasCome_[index(contribution.slice)] = true;\n",
        "  hasCome_[index(contribution.slice)] = phase_ == Phase::kTraining;\n",
    ),
    "a-result-that-was-handed-over-stays-on-the-host": Fault(
        "sluice/algorithms/elastic/exchange.cc",
        "  tellSink(slice, Step{agreed.result.steps - 1}, agreed.holder);\n",
        "",
    ),
    "an-empty-result-is-awaited": Fault(
        "sluice/algorithms/elastic/exchange.cc",
        "    kept_.storeEmpty(slice.id, agreed.result.made);\n",
        "    ++awaited_;\n",
    ),
    "a-lost-servers-slices-stay-with-a-rank-that-is-not-there": Fault(
        "sluice/data/plan/plan.cc",
        "spec.roles.servers[dealt++ % spec.roles.servers.size()]",
        "Rank{static_cast<uint32_t>(dealt++ * 0 + spec.roles.world)}",
    ),
    "two-proposers-both-win": Fault(
        "sluice/join/membership/testing/memory_table.cc",
        "    if (!there.entries.empty() || !mayFollow)\n",
        "    if (there.entries.size() > 1000 && !mayFollow)\n",
    ),
    "a-member-that-was-removed-goes-on": Fault(
        "sluice/join/membership/epoch_proposer.cc",
        "  if (!stored.record.rankOf(self_)) {\n",
        "  if (!stored.record.rankOf(self_) && self_ == stored.record.proposer) {\n",
    ),
    "a-report-of-the-epoch-before-counts": Fault(
        "sluice/algorithms/elastic/exchange.cc",
        "  reports_.assign(fabric.worldSize(), {});\n",
        "  reports_.resize(fabric.worldSize());\n",
    ),
    "a-landing-of-the-epoch-before-counts": Fault(
        "sluice/algorithms/elastic/exchange.cc",
        "  kept_.abandonLandings();\n",
        "",
    ),
    "a-lease-is-trusted": Fault(
        "sluice/join/membership/epoch_proposer.cc",
        "void EpochProposer::sawLoss(const MemberId& lost, const Status& why) {\n",
        "void EpochProposer::sawLoss(const MemberId& lost, const Status& why) {\n"
        "  membership_.announced(options_.patience, [this, alive = std::weak_ptr(alive_)](\n"
        "                                               const auto& all) {\n"
        "    if (alive.expired() || !all.isOk()) return;\n"
        "    for (const Member& member : epoch_.record.members) {\n"
        "      if (std::ranges::find(*all, member.id, &Member::id) != all->end()) continue;\n"
        "      if (member.id != self_) losses_[member.id].witnesses = {self_, member.id};\n"
        "    }\n"
        "    proposeSoon();\n"
        "  });\n",
    ),
    "messages-before-the-agreement-are-refused": Fault(
        "sluice/algorithms/elastic/exchange.cc",
        "  if (phase_ == Phase::kExchanging) return deferred_.defer(from, lane);\n",
        '  if (phase_ == Phase::kExchanging) return Status(Code::kRefused, "early");\n',
    ),
}

if __name__ == "__main__":
    sys.exit(1 if findFaults(FAULTS, TARGET, TESTS, sys.argv[1:]) > 0 else 0)
