#!/usr/bin/env python3
"""Tests whether simulated jobs find faults: plants one fault after another in what members join,
train and leave with, builds, and runs simulated jobs (sluice/session/elastic/testing/) until one
goes wrong, at most 10,000. Prints the seed that finds each fault, and the number of faults found.

    tests/mutation/jobs.py [NAME...]      # takes many minutes; only these faults
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from planted_faults import Fault, build, copyOfTheTree

TARGET = "sluice_simulated_jobs"
SEEDS = 10_000
ENOUGH = 16

STORE = "sluice/join/membership/store_membership.cc"
PROPOSER = "sluice/join/membership/epoch_proposer.cc"
CHANNEL = "sluice/join/membership/talk/member_channel.cc"
ROUNDS = "sluice/join/membership/talk/gather_rounds.cc"
EPOCHS = "sluice/session/elastic/epochs.cc"
HISTORY = "sluice/session/elastic/epoch_history.cc"

FAULTS = {
    # Joining, opening and leaving.
    "the-first-epoch-is-written-over-that-of-an-earlier-job": Fault(
        STORE, "  uint64_t from = 0;\n", "  uint64_t from = number + 1;\n"
    ),
    "a-record-of-an-earlier-job-counts": Fault(
        STORE,
        "  if (!run_.isSet() || record.run == run_) return record;\n",
        "  if (!run_.isSet() || record.number != Epoch{UINT32_MAX}) return record;\n",
    ),
    "a-loss-while-a-session-opens-ends-it": Fault(
        EPOCHS,
        "  const bool isBrokenOff = addresses.status().code() == Code::kCancelled;\n",
        "  const bool isBrokenOff = addresses.status().code() == Code::kDataLoss;\n",
    ),
    "who-opens-in-a-later-epoch-reports-nothing": Fault(
        EPOCHS,
        "  if (here_.epoch == Epoch{0}) return;\n",
        "  if (here_.epoch != Epoch{UINT32_MAX}) return;\n",
    ),
    "who-leaves-takes-the-only-values-of-a-round-along": Fault(
        CHANNEL,
        "  if (!rounds_.isIdle() && loop_.now() < deadline && ended_.isOk()) {\n",
        "  if (!rounds_.isIdle() && loop_.now() > deadline && ended_.isOk()) {\n",
    ),
    "who-leaves-says-no-goodbye": Fault(
        CHANNEL,
        "    fabric_->close([done](const Status&) { done(); });\n",
        "    done();\n",
    ),
    "who-has-left-stays-announced": Fault(
        STORE,
        "  store_->release(loop_.now() + patience, std::move(done));\n",
        "  loop_.after(patience / 100, [done = std::move(done)] { done(base::ok()); });\n",
    ),
    "who-is-turned-out-is-not-told": Fault(
        CHANNEL,
        "  for (Listener* listener : std::set<Listener*>(listeners_)) listener->onEnd(why);\n",
        "",
    ),
    "an-epoch-after-the-last-step-is-in-the-log": Fault(
        HISTORY,
        "    while (epochs.size() > 1 && isEmpty(epochs.back())) epochs.pop_back();\n",
        "    while (epochs.size() > 1000 && isEmpty(epochs.back())) epochs.pop_back();\n",
    ),
    # Agreement.
    "two-epochs-follow-one": Fault(
        STORE,
        "                  .absent = space_.epochsFrom(from),\n"
        "                  .opened = std::move(opened),\n",
        "                  .absent = space_.epochsFrom(from + 1),\n"
        "                  .opened = std::nullopt,\n",
    ),
    "an-epoch-follows-one-that-the-store-has-lost": Fault(
        STORE,
        "                  .opened = std::move(opened),\n",
        "                  .opened = std::nullopt,\n",
    ),
    "a-member-that-was-removed-goes-on": Fault(
        PROPOSER,
        "  if (!stored.record.rankOf(self_)) {\n",
        "  if (!stored.record.rankOf(self_) && self_ == stored.record.proposer) {\n",
    ),
    "a-proposal-that-failed-is-not-made-again": Fault(
        PROPOSER, "  after(options_.retryAfter, [this] { proposeSoon(); });\n", ""
    ),
    "a-loss-that-is-known-is-forgotten-in-the-next-epoch": Fault(
        CHANNEL, "  post([this] { judgeKnownLosses(); });\n", ""
    ),
    "too-few-members-go-on": Fault(
        PROPOSER,
        "  if (next.members.size() < options_.fewestMembers) {\n",
        "  if (next.members.size() + 1 < options_.fewestMembers) {\n",
    ),
    # Talk and watching.
    "who-was-stopped-takes-the-others-for-lost": Fault(
        "sluice/transport/fabric/watch/silence.h",
        "    excused_ += std::max(Duration::zero(), now - std::max(due, heard_));\n",
        "    excused_ += std::max(Duration::zero(), now - std::max(due, heard_)) / 1000;\n",
    ),
    "values-of-an-epoch-that-is-over-count": Fault(
        ROUNDS,
        "    round.values.clear();\n    round.results.clear();\n    round.have.clear();\n",
        "    round.results.clear();\n    round.have.clear();\n",
    ),
    "messages-of-the-next-epoch-are-dropped": Fault(
        CHANNEL,
        "    return keepEarly(member, *std::move(message));\n  }\n  hear(",
        "    return;\n  }\n  hear(",
    ),
    "a-broken-connection-is-not-suspected": Fault(
        CHANNEL,
        "  if (looks == 0) return fabric_->giveUp(now_.memberAt(rank), why);\n",
        "  if (looks == 0) return;\n",
    ),
    # The fault behind the one wrong job of papers/results/members_soak.md.
    "an-epoch-in-which-nothing-was-summed-is-in-the-log": Fault(
        HISTORY,
        "    if (epochs.size() > 1 && epochs.back().firstSteps == epoch.firstSteps) "
        "epochs.pop_back();\n",
        "",
    ),
}


def first_wrong(program: Path) -> tuple[str | None, str]:
    """Returns the first seed whose job goes wrong, if any, and what the program has printed."""
    command = [program, "--seeds", "1", str(SEEDS), "--first"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"^seed (\d+) went wrong", done.stdout, re.MULTILINE)
    if found:
        return found.group(1), done.stdout
    if done.returncode == 0:
        return None, done.stdout
    # A crash: the seed is in no line.
    return "crash", done.stdout + done.stderr


def main() -> int:
    names = sys.argv[1:] or list(FAULTS)
    missed = []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        copyOfTheTree(copy)
        subprocess.run(["cmake", "--preset", "release"], cwd=copy, check=True, capture_output=True)
        program = copy / "build/release/bin" / TARGET
        build(copy, TARGET)
        seed, text = first_wrong(program)
        if seed:
            raise SystemExit(f"without any fault a job goes wrong: {text}")
        print(f"no fault: {text.strip()}", flush=True)
        for name in names:
            file, text, planted = FAULTS[name]
            path = copy / file
            whole = path.read_text()
            if whole.count(text) != 1:
                raise SystemExit(f"{name}: {file} does not have '{text}' once; correct this script")
            path.write_text(whole.replace(text, planted))
            build(copy, TARGET)
            seed, _ = first_wrong(program)
            if not seed:
                missed.append(name)
            print(f"{name}: {f'found by seed {seed}' if seed else 'NOT FOUND'}", flush=True)
            path.write_text(whole)
    print(f"{len(names) - len(missed)} of {len(names)} faults found")
    return 1 if len(missed) > (0 if sys.argv[1:] else len(FAULTS) - ENOUGH) else 0


if __name__ == "__main__":
    sys.exit(main())
