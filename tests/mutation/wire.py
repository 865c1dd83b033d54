#!/usr/bin/env python3
"""Tests the tests of what kvstore, slicing, p3 and sluice put on the wire: plants one fault after
another in a copy of the tree, builds, and checks that WireOrder (sluice/algorithms/testing/
wire_order_test.cc) fails. Prints the number of faults that were found.

    tests/mutation/wire.py [NAME...]      # takes a few minutes; only these faults
"""

from __future__ import annotations

import sys

from planted_faults import Fault, findFaults

TARGET = "sluice_algorithms_testing_test"
FAULTS = {
    "kvstore-pulls-at-a-parts-notice": Fault(
        "sluice/algorithms/catalogue/kvstore.cc",
        "makeNotifying(context, Answer::kNotifyAndPull)",
        "makeNotifying(context, Answer::kNotifyAndPullParts)",
    ),
    "kvstore-sends-by-priority": Fault(
        "sluice/algorithms/catalogue/kvstore.cc",
        "{.order = queue::SendOrder::kFifo}",
        "{.order = queue::SendOrder::kPriority, .window = 1}",
    ),
    "p3-waits-for-a-pull": Fault(
        "sluice/algorithms/catalogue/p3.cc",
        "makeCollecting(context, {.egress",
        "makeCollecting(context, {.answer = Answer::kNotifyAndPullParts, .egress",
    ),
    "p3-publishes-after-all-slices-of-a-tensor": Fault(
        "sluice/algorithms/server/collecting_server.cc",
        "  for (const Rank worker : parts_.roles().workers) {\n"
        "    if (parts_.style.answer != Answer::kBroadcast",
        "  static std::map<std::pair<const void*, TensorId>, size_t> finished;\n"
        "  size_t here = 0;\n"
        "  for (const Slice& each : parts_.plan().slicesOf(slice.tensor))\n"
        "    here += each.server == parts_.self ? 1 : 0;\n"
        "  if (++finished[{this, slice.tensor}] % here != 0) return;\n"
        "  for (const Slice& each : parts_.plan().slicesOf(slice.tensor)) {\n"
        "    if (each.server != parts_.self || each.id == slice.id) continue;\n"
        "    for (const Rank worker : parts_.roles().workers) publish(each, step, worker);\n"
        "  }\n"
        "  for (const Rank worker : parts_.roles().workers) {\n"
        "    if (parts_.style.answer != Answer::kBroadcast",
    ),
    "p3s-window-is-unbounded": Fault(
        "sluice/algorithms/catalogue/p3.cc",
        "kWindowSlices * sliceBytes",
        "queue::kUnlimited + 0 * kWindowSlices * sliceBytes",
    ),
    "slicing-sends-by-priority": Fault(
        "sluice/algorithms/catalogue/slicing.cc",
        "{.order = queue::SendOrder::kFifo}",
        "{.order = queue::SendOrder::kPriority, .window = 1}",
    ),
}


if __name__ == "__main__":
    sys.exit(1 if findFaults(FAULTS, TARGET, "WireOrder.*", sys.argv[1:]) > 0 else 0)
