"""Tests traces of torch.profiler beside those of sluice: two ranks train under the profiler, and the
test reads the file that merges all their traces.

  torch_trace_test.py PATH_OF_SLUICE

The ranks are processes of this machine. The profiler's ranges and the events of slices are measured
apart and by different clocks, so that the right place of each shows that the clocks were joined.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import unittest
from collections import Counter
from pathlib import Path

try:
    import torch  # noqa: F401  # the ranks are forked, so only this process imports it
except ImportError as missing:
    print(f"skipped: {missing}; scripts/install_deps.sh --with-torch installs it")
    sys.exit(77)

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / room) for room in ("python", "support")]
from ranks import run_script  # noqa: E402
from trace_format import arrows_of, breaches  # noqa: E402

PROGRAM = sys.argv[1]
RANKS = 2
STEPS = 12
# The profiler counts ticks of the processor and converts them to wall time when it ends.
TOLERANCE_US = 1000

RANK = f"""
import os, sys, time
import torch, sluice
from torch.profiler import ProfilerActivity, profile, record_function

folder, rank = os.environ["FOLDER"], int(os.environ["RANK"])
torch.distributed.init_process_group("gloo", init_method=f"file://{{folder}}/store",
                                     rank=rank, world_size={RANKS})
torch.manual_seed(1)
layers = [torch.nn.Linear(128, 128) for _ in range(4)]
model = torch.nn.Sequential(*layers)
model, optimizer = sluice.distribute(model, torch.optim.SGD(model.parameters(), 0.01))
if rank == 1:  # so its profile does not say its rank
    torch.distributed.destroy_process_group()
with profile(activities=[ProfilerActivity.CPU]) as prof:
    for step in range({STEPS}):
        with record_function(f"step {{step}}"):
            loss = model(torch.randn(16, 128)).sum()
            with record_function(f"backward {{step}}"):
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        time.sleep(0.02)  # heartbeats go back and forth meanwhile
prof.export_chrome_trace(f"{{folder}}/torch-{{rank}}.json")
"""


def sluice(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=60)


class TorchTrace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.traces = cls.folder / "traces"
        ran = run_script(
            RANK, RANKS, FOLDER=folder.name, SLUICE_TRACE=str(cls.traces),
            SLUICE_HEARTBEAT_INTERVAL="20ms", SLUICE_SLICE_ELEMENTS="4096",
        )  # fmt: skip
        for rank, process in enumerate(ran):
            assert process.returncode == 0, f"rank {rank}: {process.stderr}"
        cls.profiles = [cls.folder / f"torch-{rank}.json" for rank in range(RANKS)]
        cls.merged = cls.folder / "all.json"
        said = sluice(
            "trace", "merge", cls.traces, "--torch", cls.profiles[0],
            "--torch", f"1={cls.profiles[1]}", "-o", cls.merged, "--json",
        )  # fmt: skip
        assert said.returncode == 0, said.stderr
        cls.said = json.loads(said.stdout)
        cls.document = json.loads(cls.merged.read_text())
        cls.events = cls.document["traceEvents"]

    def ranges(self, rank, name):
        """Returns beginning and end of the profiler's ranges NAME 0, NAME 1 and so on."""
        found = {
            int(event["name"].split()[1]): (event["ts"], event["ts"] + event["dur"])
            for event in self.events
            if event["ph"] == "X" and event["pid"] == rank and event["name"].startswith(f"{name} ")
            and event["cat"] == "user_annotation"
        }  # fmt: skip
        self.assertEqual(sorted(found), list(range(STEPS)))
        return found

    def clockError(self):
        """Returns the possible error of all clocks together, in microseconds."""
        clocks = [clock["uncertainty_s"] for clock in self.said["clocks"]]
        profiles = [profile["uncertainty_s"] for profile in self.said["torch"]]
        return 1e6 * (max(clocks) + max(profiles))

    def testTheMergedTraceIsValid(self):
        self.assertEqual(list(breaches(self.document))[:3], [])
        self.assertLess(self.clockError(), TOLERANCE_US)

    def testEveryEventOfTheProfilerIsThereWithItsThread(self):
        for rank, path in enumerate(self.profiles):
            profile = json.loads(path.read_text())
            given = [event for event in profile["traceEvents"] if event["ph"] != "M"]
            names = {
                event["args"]["name"]
                for event in profile["traceEvents"]
                if event["name"] == "thread_name"
            }
            of_rank = [event for event in self.events if event["pid"] == rank]
            threads = {
                event["tid"]: event["args"]["name"]
                for event in of_rank
                if event["name"] == "thread_name"
            }
            tracks = [track for track, name in threads.items() if name in names]
            self.assertTrue(tracks)
            self.assertLessEqual(names, set(threads.values()))
            ours = {"slice", "wait", "arrow"}
            shown = [event for event in of_rank if event["ph"] != "M" and event["cat"] not in ours]
            self.assertEqual(
                Counter((event["ph"], event["name"], event.get("dur")) for event in shown),
                Counter((event["ph"], event["name"], event.get("dur")) for event in given),
            )
            self.assertEqual(self.said["torch"][rank]["events"], len(given))
            steps = [event for event in shown if event["name"].startswith("step ")]
            self.assertTrue(all(event["tid"] in tracks for event in steps))

    def testGradientsAreMadeInTheBackwardPassOfTheirStep(self):
        for rank in range(RANKS):
            backward = self.ranges(rank, "backward")
            made = [
                event
                for event in self.events
                if event["name"] == "ready" and event["ph"] == "b" and event["pid"] == rank
            ]
            self.assertEqual({event["args"]["step"] for event in made}, set(range(STEPS)))
            for event in made:
                begin, end = backward[event["args"]["step"]]
                self.assertGreater(event["ts"], begin - TOLERANCE_US, event)
                self.assertLess(event["ts"], end + TOLERANCE_US, event)

    def testGatesAreWaitedForInTheStepOrTheNext(self):
        waits = 0
        for rank in range(RANKS):
            steps = self.ranges(rank, "step")
            begun = {}
            for event in self.events:
                if event["pid"] != rank or event["name"] != "wait" or event["ph"] not in "be":
                    continue
                if event["ph"] == "b":
                    begun[event["id"]] = event
                    continue
                wait = begun.pop(event["id"])
                step = wait["args"]["step"]
                around = [steps[each] for each in (step, step + 1) if each in steps]
                if wait["ts"] > steps[STEPS - 1][1]:
                    continue  # the last results are waited for after training
                waits += 1
                self.assertTrue(
                    any(
                        begin - TOLERANCE_US <= wait["ts"] and event["ts"] <= end + TOLERANCE_US
                        for begin, end in around
                    ),
                    f"{wait} until {event['ts']} is not in {around}",
                )
        self.assertGreater(waits, 0, "the first steps wait for their results")

    def testEveryArrowGoesToAnotherRankAndForwardInTime(self):
        at = {}  # when stages began, by each rank's own clock, moved to one clock
        for event in self.events:
            if event.get("cat") == "slice" and event["ph"] in "bi":
                args = event["args"]
                key = (event["name"], event["pid"], args["peer"], args["slice"], args["step"])
                at.setdefault(key, event["ts"])
        arrows = arrows_of(self.document)
        error = self.clockError()
        seen = Counter()
        for begin, end in arrows:
            self.assertEqual({begin["pid"], end["pid"]}, set(range(RANKS)))
            for key in ("slice", "step", "tensor"):
                self.assertEqual(begin["args"][key], end["args"][key])
            for mark in (begin, end):
                self.assertEqual(mark["args"]["rank"], mark["pid"])
            self.assertEqual(begin["args"]["peer"], end["pid"])
            slice_ = (begin["args"]["slice"], begin["args"]["step"])
            sent = at[begin["name"], begin["pid"], end["pid"], *slice_]
            came = at[end["name"], end["pid"], begin["pid"], *slice_]
            self.assertLessEqual(sent, came + error)
            self.assertAlmostEqual(begin["ts"], sent, delta=0.001)
            self.assertAlmostEqual(end["ts"], max(sent, came), delta=0.001)
            seen[begin["name"], end["name"]] += 1
        slices = len({slice_ for name, _, _, slice_, _ in at if name == "ready"})
        # Each slice lives on one rank: the other pushes it there and gets its result.
        self.assertEqual(
            seen, {("push", "collect"): slices * STEPS, ("publish", "applied"): slices * STEPS}
        )

    def testPeopleAreTold(self):
        said = sluice("trace", "merge", self.traces, "--torch", self.profiles[0], "-o",
                      self.folder / "one.json")  # fmt: skip
        self.assertEqual(said.returncode, 0, said.stderr)
        self.assertRegex(
            said.stdout, r"rank 0: \d+ events of torch\.profiler, beside its trace to within 0\.0\d"
        )

    def refused(self, *words, code=2, says):
        said = sluice("trace", "merge", self.traces, *words)
        self.assertEqual((said.returncode, said.stdout), (code, ""), said.stderr)
        self.assertRegex(said.stderr, r"\Asluice: [^\n]+\n\Z")
        self.assertIn(says, said.stderr)

    def testWhatCannotBeMergedIsRefusedInOneLine(self):
        zero, one = self.profiles
        out = ("-o", self.folder / "refused.json")
        self.refused("--torch", zero, says="--torch needs --output FILE")
        self.refused("--torch", self.folder / "none.json", *out, code=1, says="cannot read")
        self.refused("--torch", self.folder, *out, says="is not a file")
        self.refused("--torch", one, *out, says=f"write --torch RANK={one}")
        self.refused("--torch", zero, "--torch", f"0={one}", *out, says="are both of rank 0")
        self.refused("--torch", f"7={one}", *out, says="is of rank 7, which has no trace")
        self.refused("--torch", zero, "-o", zero, says="--output would overwrite")
        json.loads(zero.read_text())  # it is whole
        self.refused("--torch", self.traces, *out, says="is not a file")
        trace = next(self.traces.glob("Sequential*.rank-0.json"))
        self.refused("--torch", f"0={trace}", *out, says="is not a trace of torch.profiler")
        other = self.folder / "other.json"
        for text, says in {
            zero.read_text()[:5000]: "ends in the middle",
            "": "ends in the middle",
            "{}": "no list 'traceEvents'",
            "\0\1\2": "is not JSON at byte 1",
        }.items():
            other.write_text(text)
            self.refused("--torch", f"0={other}", *out, says=says)
        early = json.loads(zero.read_text())
        early["baseTimeNanoseconds"] -= 3600 * 10**9
        other.write_text(json.dumps(early))
        self.refused("--torch", other, *out, says="s before the trace of rank 0")
        self.assertFalse(out[1].exists())

    def testATraceOfAnOlderVersionIsMergedWithoutProfiles(self):
        old = self.folder / "old"
        shutil.copytree(self.traces, old)
        for path in old.iterdir():
            document = json.loads(path.read_text())
            for rank in document["otherData"]["ranks"]:
                del rank["wall_clock"]
            path.write_text(json.dumps(document))
        self.assertEqual(sluice("trace", "merge", old, "-o", self.folder / "o.json").returncode, 0)
        said = sluice(
            "trace", "merge", old, "--torch", self.profiles[0], "-o", self.folder / "o.json"
        )
        self.assertEqual(said.returncode, 2)
        self.assertIn("has no wall clock", said.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
