"""Tests traces of a real job: four ranks train ResNet-50's profile in a lab, and the test reads
their files. Makes a lab.

  trace_test.py PATH_OF_SLUICE

The files must be in Chrome's trace event format, as Perfetto reads it. The critical path must add
up to the iterations that the ranks themselves have measured on another clock, that of the replay's
timeline.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from root import skip_without_lab
from trace_format import arrows_of, breaches

PROGRAM = sys.argv[1]
RANKS = 4
STAGES = ["ready", "queued", "push", "collect", "reduce", "update", "publish", "applied"]
ARGS = {"rank", "tensor", "layer", "step"}


def sluice(*words):
    ran = subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=110)
    if ran.returncode != 0:
        raise AssertionError(f"{words}: {ran.returncode}\n{ran.stdout}\n{ran.stderr}")
    return ran.stdout


class Trace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        sluice(
            "bench",
            "replay",
            "--profile",
            "resnet50",
            "--workers",
            str(RANKS),
            "--algorithms",
            "sluice",
            "--runs",
            "1",
            "--iterations",
            "3",
            "--rate",
            "800mbit",
            "--encrypt",
            "off",
            "--lab",
            "--trace",
            cls.folder / "traces",
            "--json",
            cls.folder / "figures.json",
        )
        cls.traces = cls.folder / "traces" / "sluice-1"
        cls.merged = cls.folder / "merged.json"
        cls.path = json.loads(sluice("trace", "merge", cls.traces, "-o", cls.merged, "--json"))
        cls.document = json.loads(cls.merged.read_text())

    def testEveryRankHasWrittenAValidTrace(self):
        names = [f"model.rank-{rank}.json" for rank in range(RANKS)]
        self.assertEqual(sorted(path.name for path in self.traces.iterdir()), names)
        for name in names:
            self.assertEqual(
                list(breaches(json.loads((self.traces / name).read_text())))[:3], [], name
            )

    def testTheMergedTraceIsValidAndHasATrackPerStageAndRank(self):
        self.assertEqual(list(breaches(self.document))[:3], [])
        tracks = {
            (event["pid"], event["args"]["name"])
            for event in self.document["traceEvents"]
            if event["ph"] == "M" and event["name"] == "thread_name"
        }
        self.assertEqual(
            tracks, {(rank, stage) for rank in range(RANKS) for stage in [*STAGES, "wait"]}
        )
        seen = {
            (event["pid"], event["name"])
            for event in self.document["traceEvents"]
            if event["ph"] in "bi"
        }
        self.assertEqual(seen & tracks, tracks)
        for event in self.document["traceEvents"]:
            if event["ph"] in "bi":
                self.assertLessEqual(ARGS, event["args"].keys())

    def testTogetherTheRanksKnowWhereEveryPushEnded(self):
        known = {"b": 0, "i": 0}
        for event in self.document["traceEvents"]:
            if event["name"] in ("push", "publish") and event["ph"] in known:
                known[event["ph"]] += 1
        self.assertGreater(known["b"], 0)
        self.assertEqual(known["i"], 0)

    def testAnArrowGoesWithEveryPushAndEveryPublication(self):
        sent = {
            (event["name"], event["pid"], event["args"]["peer"], event["args"]["slice"],
             event["args"]["step"])
            for event in self.document["traceEvents"]
            if event["ph"] == "b" and event["name"] in ("push", "publish")
        }  # fmt: skip
        shown = {
            (begin["name"], begin["pid"], end["pid"], end["args"]["slice"], end["args"]["step"])
            for begin, end in arrows_of(self.document)
        }
        self.assertEqual(shown, sent)

    def testTheRanksAreOnOneClock(self):
        for clock in self.path["clocks"]:  # one machine has one clock: the right offset is 0
            self.assertLessEqual(abs(clock["ahead_s"]), clock["uncertainty_s"] + 1e-6, clock)

    def testTheCriticalPathAddsUpToTheIteration(self):
        (figures,) = json.loads((self.folder / "figures.json").read_text())
        counted = self.path["iterations"][-3:]  # the warm-up does not count
        for iteration in counted:
            self.assertAlmostEqual(
                iteration["parts_s"] / iteration["length_s"], 1, delta=0.03, msg=iteration["step"]
            )
            lengths = sum(part["length_s"] for part in iteration["parts"])
            self.assertAlmostEqual(lengths / iteration["length_s"], 1, delta=0.03)
            waited = [part for part in iteration["parts"] if part["what"] in STAGES]
            self.assertTrue(waited, "at this ratio the network is waited for")
            for part in waited:
                self.assertTrue(part["tensor"])
        # The ranks have measured the same without a trace. They count from one forward pass to the
        # next, and the path counts from one last gradient to the next. On a quiet machine the two
        # agree within 3 %; on a busy one three iterations differ by more.
        self.assertAlmostEqual(
            statistics.median(each["parts_s"] for each in counted) / figures["iteration_s"],
            1,
            delta=0.15,
        )

    def testPeopleGetATable(self):
        said = sluice("trace", "merge", self.traces)
        self.assertRegex(said, r"4 ranks on rank 0's clock, to within \d+\.\d\d ms")
        self.assertRegex(
            said, r"the forward pass of step \d+ waited longest for '.+': [\w-]+ at rank \d"
        )


class TheCheckOfTheFormat(unittest.TestCase):
    """Tests the check itself: a check that lets everything pass would show nothing."""

    def testFindsWhatIsWrong(self):
        begin = {"ph": "b", "cat": "c", "id": "1", "name": "n", "pid": 0, "tid": 0, "ts": 2}
        end = {"ph": "e", "cat": "c", "id": "1", "name": "n", "pid": 0, "tid": 0, "ts": 3}
        mark = {"ph": "X", "cat": "arrow", "name": "m", "pid": 0, "tid": 0, "ts": 2, "dur": 1}
        there = {**mark, "pid": 1, "ts": 3}
        tail = {**mark, "ph": "s", "id": "a"}
        head = {**there, "ph": "f", "id": "a", "bp": "e"}
        arrow = [mark, tail, there, head]
        good = [[begin, end], [], [{**begin, "ph": "i", "s": "t"}], arrow]
        bad = [
            [begin],
            [end],
            [end, begin],
            [begin, {**end, "ts": 1}],
            [begin, {**end, "name": "m"}],
            [{**begin, "ph": "Z"}],
            [{**mark, "dur": -1}],
            [mark, {**mark, "ts": 2.5}],
            arrow[:3],
            [mark, {**tail, "ts": 4}, there, head],
            [mark, tail, {**there, "ts": 1}, {**head, "ts": 1}],
            [mark, tail, there, {**head, "bp": None}],
            [mark, tail, there, {**head, "id": 7}],
            [mark, tail, there, {**head, "tid": 5}],
            [{**begin, "ph": "i"}],
            [{**begin, "pid": "0"}, end],
            [{**begin, "ts": None}, end],
            [{"ph": "M", "name": "thread_name", "pid": 0, "tid": 0, "args": {}}],
        ]
        for events in good:
            self.assertEqual(
                list(breaches({"traceEvents": events, "displayTimeUnit": "ms"})), [], events
            )
        for events in bad:
            self.assertNotEqual(
                list(breaches({"traceEvents": events, "displayTimeUnit": "ms"})), [], events
            )
        self.assertNotEqual(list(breaches([])), [])


if __name__ == "__main__":
    skip_without_lab()
    unittest.main(argv=sys.argv[:1])
