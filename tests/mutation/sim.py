#!/usr/bin/env python3
"""Tests whether simulations find faults: plants one fault after another in queue, credit, shard and
strategy in a copy of the tree, builds, and checks that a simulation (simulation_test.cc or
scenario_test.cc in tools/sim/) fails within a minute of CPU. Prints the number of faults found.

    tests/mutation/sim.py [NAME...]      # takes many minutes; only these faults
"""

from __future__ import annotations

import sys

from planted_faults import Fault, findFaults

TARGET = "sluice_sim_test"
# The two that are left out take the most time, and find nothing that the others do not.
TESTS = "Simulation.*:Scenario.*-*TwoMillionParameters*:*ShrunkAndWhole*"
ENOUGH = 10

FAULTS = {
    "credit-is-lost-on-completion": Fault(
        "sluice/transport/queue/credit.cc",
        "  at(to).inFlight -= bytes;\n  total_.inFlight -= bytes;\n",
        "  at(to).inFlight -= bytes;\n",
    ),
    "credit-is-released-twice": Fault(
        "sluice/transport/queue/egress.cc",
        "  credit_.release(to, handed.send.bytes);\n",
        "  credit_.release(to, handed.send.bytes);\n"
        "  if (credit_.inFlightTo(to) >= handed.send.bytes)\n"
        "    credit_.release(to, handed.send.bytes);\n",
    ),
    "credit-has-no-end": Fault(
        "sluice/transport/queue/credit.h",
        "{ return total_.admits(bytes); }",
        "{ return total_.admits(0 * bytes) || true; }",
    ),
    "nothing-follows-when-credit-is-back": Fault(
        "sluice/algorithms/outbox.cc",
        "if (status.isOk() || !isTheEnd) handOver();",
        "if (!status.isOk() && !isTheEnd) handOver();",
    ),
    "all-workers-push-to-the-first-server-first": Fault(
        "sluice/data/plan/order.cc",
        "(to + count - from % count) % count",
        "(to + count - 0 * from) % count",
    ),
    "the-most-urgent-goes-last": Fault(
        "sluice/algorithms/outbox.cc",
        ".priority = parcel.slice.priority",
        ".priority = 1'000'000 - parcel.slice.priority",
    ),
    "a-sum-lacks-the-last-part": Fault(
        "sluice/data/shard/shard.cc",
        "if (++here.arrived < here.parts.size()) return false;",
        "if (++here.arrived + 1 != here.parts.size()) return false;",
    ),
    "a-sum-has-one-part-twice": Fault(
        "sluice/data/shard/shard.cc",
        "  kernel::sumInRankOrder(dtype, sum, here.parts, meanScale_);\n",
        "  here.parts.front() = here.parts.back();\n"
        "  kernel::sumInRankOrder(dtype, sum, here.parts, meanScale_);\n",
    ),
    "a-stale-result-is-published": Fault(
        "sluice/data/shard/shard.cc",
        "if (!here.lastWasEmpty) update(slice, here);",
        "if (!here.lastWasEmpty && index(here.step) != 1) update(slice, here);",
    ),
    "a-part-of-an-earlier-step-is-summed": Fault(
        "sluice/data/shard/shard.cc",
        "  here.arrived = 0;\n",
        "  here.arrived = 1;\n",
    ),
    "a-slice-is-lost": Fault(
        "sluice/algorithms/server/collecting_worker.cc",
        "      if (hasGradient) {\n",
        "      if (index(slice.id) == 3 && index(step) == 1) continue;\n      if (hasGradient) {\n",
    ),
    "a-gate-opens-before-the-last-slice": Fault(
        "sluice/algorithms/server/outcomes.cc",
        "return --here.slicesLeft == 0;",
        "return --here.slicesLeft == (context_.plan.slicesOf(slice.tensor).size() > 1 ? 1 : 0);",
    ),
}


if __name__ == "__main__":
    names = sys.argv[1:]
    missed = findFaults(FAULTS, TARGET, TESTS, names)
    sys.exit(1 if missed > (0 if names else len(FAULTS) - ENOUGH) else 0)
