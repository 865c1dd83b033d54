"""Trains with algorithm="auto" in a network that becomes 20 times slower and then fast again. Makes
a lab.

  auto_in_lab.py PATH_OF_SLUICE PYTHONPATH [--rule] [--deadline]

`sluice plan` plans; with --rule, rule_planner.py does, and the plan must change and change back.
Training must be planned anew for each network, and all ranks must end with the parameters, bit for
bit, of one process that sums in rank order. With --deadline, on a quiet machine, it must be planned
anew within twice the steps that auto measures: the planner runs at low priority.
"""

import importlib.util
import re
import sys
import tempfile
import time
from pathlib import Path

from auto_job import MEASURED, AutoJob
from lab_job import Lab
from root import SKIPPED, skip_without_lab

HERE = Path(__file__).parent
PROGRAM, PYTHON = sys.argv[1], sys.argv[2]
RULE = str(HERE / "rule_planner.py")
RANKS = 3
FAST, SLOW = "400mbit", "20mbit"
WORD = re.compile(r"auto: after round (\d+) '\S+' (changes|stays) .*?(\d+) Mbit/s")
CHANGE = re.compile(r"changes from (\w+).* to (\w+), slice")


class Trainers(AutoJob):
    def __init__(self, lab, folder, planner):
        super().__init__(
            lab,
            PYTHON,
            Path(folder, "stop"),
            SLUICE_AUTO_PLANNER=planner,
            AUTO_CHECK="1",
            AUTO_PAUSE="0.1",
        )

    def words(self):
        """Returns [(round, changes or stays, Mbit/s, line)]."""
        found = [(WORD.search(line), line) for line in list(self.said)]
        return [(int(w[1]), w[2], int(w[3]), line) for w, line in found if w]

    def step(self):
        return len(self.steps)

    def waitForWord(self, after, fits, what):
        """Returns the first word after this step whose rate fits."""
        end = time.monotonic() + 90
        while time.monotonic() < end and self.ranks[0].poll() is None:
            for word in self.words():
                if word[0] > after and fits(word[2]):
                    return word
            time.sleep(0.05)
        raise AssertionError(f"no plan for {what} after step {after}\n" + "\n".join(self.said))


def main():
    planner = RULE if "--rule" in sys.argv else ""
    with (
        tempfile.TemporaryDirectory() as folder,
        Lab(PROGRAM, RANKS, FAST) as lab,
        Trainers(lab, folder, planner) as trainers,
    ):
        hosts = f"0-{RANKS - 1}"
        trainers.waitForWord(0, lambda rate: True, "the network at the start")
        took = []
        for rate, fits in ((SLOW, lambda rate: rate < 100), (FAST, lambda rate: rate > 100)):
            lab.call("set", "--host", hosts, "--rate", rate)
            before = trainers.step()
            took.append(trainers.waitForWord(before, fits, rate)[0] - before)
        trainers.stop.touch()
        others = [rank.communicate(timeout=60)[0] for rank in trainers.ranks[1:]]
        trainers.ranks[0].wait(timeout=60)
        trainers.reader.join(timeout=10)
        text = "\n".join(trainers.said)
        for rank, said in enumerate([text, *others]):
            if trainers.ranks[rank].returncode != 0 or "\nexact" not in said:
                sys.exit(f"rank {rank} has not ended with the bits of one process\n{said}")
        if "--deadline" in sys.argv and max(took) > 2 * MEASURED:
            sys.exit(f"planned anew after {took} steps instead of {2 * MEASURED}\n{text}")
        changes = [
            tuple(CHANGE.search(w[3]).groups()) for w in trainers.words() if w[1] == "changes"
        ]
        if planner == RULE and changes != [("sluice", "p3"), ("p3", "sluice")]:
            sys.exit(f"the plan changed {changes}\n{text}")
        if "gave no plan" in text or "refuses the plan" in text:
            sys.exit(f"the planner has failed\n{text}")
    print(f"planned anew {took} steps after the network had changed; changes: {changes}")
    print("\n".join(word[3] for word in trainers.words()))


if __name__ == "__main__":
    if importlib.util.find_spec("torch") is None:
        print("skipped: there is no Torch")
        sys.exit(SKIPPED)
    skip_without_lab()
    main()
