#!/usr/bin/env python3
"""Tests whether schedules of rounds find faults: plants one fault after another in the calls that
are not steps, builds, and checks that a test in sluice/join/membership/talk/gather_rounds_test.cc fails within a minute
of CPU. Prints the number of faults found.

    tests/mutation/rounds.py [NAME...]      # takes some minutes; only these faults
"""

from __future__ import annotations

import sys

from planted_faults import Fault, findFaults

TARGET = "sluice_membership_talk_test"
TESTS = "GatherRounds*"

FAULTS = {
    "a-mean-with-the-lost-part-on-some-members": Fault(
        "sluice/join/membership/talk/gather_rounds.cc",
        "    if (round.complete) {\n      tellResult(id, round);\n",
        "    if (round.complete) {\n      round.complete.reset();\n      bringValue(id, round);\n",
    ),
    "values-of-an-epoch-that-is-over-count": Fault(
        "sluice/join/membership/talk/gather_rounds.cc",
        "    round.values.clear();\n    round.results.clear();\n    round.have.clear();\n",
        "    round.results.clear();\n    round.have.clear();\n",
    ),
    "a-round-is-forgotten-before-everybody-has-it": Fault(
        "sluice/join/membership/talk/gather_rounds.cc",
        "have.size() + 1 >= view_.size()",
        "have.size() + 2 >= view_.size()",
    ),
    "a-member-that-has-forgotten-does-not-say-so": Fault(
        "sluice/join/membership/talk/gather_rounds.cc",
        "    if (message.kind == MemberMessageKind::kResult &&\n",
        "    if (message.kind == MemberMessageKind::kMeet &&\n",
    ),
    "a-word-of-an-older-round-counts": Fault(
        "sluice/join/membership/talk/gather_rounds.cc",
        "  const Id id{key, begun_[key]++};\n",
        "  const Id id{key, begun_[key]++ / 2};\n",
    ),
}

if __name__ == "__main__":
    sys.exit(1 if findFaults(FAULTS, TARGET, TESTS, sys.argv[1:]) > 0 else 0)
