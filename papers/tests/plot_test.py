"""Tests `sluice plot`: every kind of figure becomes a picture, and a file without measurements is
refused in one line.

  plot_test.py PATH_OF_SLUICE
"""

import json
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv[1]


def row(algorithm="p3", **changed):
    return {
        "profile": "resnet50",
        "algorithm": algorithm,
        "workers": 4,
        "ratio": 1,
        "iteration_s": 1.1,
        "spread_s": 0.02,
        "bound_s": 1.05,
        "over_bound": 1.048,
        "speedup_over_kvstore": 1.3,
        "compute_s": 1.0,
        "fabric": "tcp",
        "rate_bits_per_s": 1.2e9,
        "slice_elements": 50000,
    } | changed


def allReduce(method, size, **changed):
    return {
        "engine": "fabric",
        "method": method,
        "workers": 4,
        "rate": "1gbit",
        "codec": "none",
        "bytes": size,
        "p50_ms": 0.2 + 1.3e-5 * size,
        "p99_ms": 0.3 + 1.5e-5 * size,
        "link_gbit": 0.9,
        "start_ms": 0.2,
        "ms_per_byte": 1.3e-5,
    } | changed


def simulated(algorithm, hosts, **changed):
    return {
        "profile": "resnet50",
        "algorithm": algorithm,
        "workers": hosts,
        "topology": "star",
        "ratio": 1,
        "iteration_s": 0.16,
        "iteration_s_range": [0.15, 0.18],
        "bound_s": 0.12,
        "over_bound": 1.33,
        "over_bound_range": [1.25, 1.5],
        "rate_bits_per_s": 10**10,
        "compute_s": 0.1,
        "speedup_over_kvstore": None,
        "simulated": True,
    } | changed


def planned(name, kind, seconds, **changed):
    return {
        "name": name,
        "class": kind,
        "iteration_s": seconds,
        "bound_s": 0.1,
        "rate_bits_per_s": 10**9,
        "hosts": 4,
    } | changed


PLANS = [planned("sluice", "same bits", 0.11), planned("asp", "lossy or stale", 0.1, bound_s=None)]
PLAN = {
    "profile": "ResNet-50",
    "hosts": 4,
    "rate_bits_per_s": 10**9,
    "choice": PLANS[0],
    "best": PLANS,
    "candidates": PLANS,
}
SAMPLES = {"step_s": 0.01, "sent_bits_per_s": [0, 1e9, 5e8], "received_bits_per_s": [1e9, 0, 5e8]}
KINDS = {
    "comparison": [row("kvstore"), row(), row("a-new-one", speedup_over_kvstore=None)],
    "sweep": [
        row(s, ratio=r, profile=p)
        for s in ("kvstore", "p3")
        for r in (0.5, 1)
        for p in ("vgg19", "mine.json")
    ],
    "slices": [row(slice_elements=s) for s in (5000, 50000)],
    "scale": [row(s, workers=w, profile="vgg19") for s in ("kvstore", "sluice") for w in (2, 8)],
    "training": {
        "example": "mine",
        "workers": 2,
        "rate": 1e9,
        "ratio": 1,
        "bound_s": 0.36,
        "over_bound": 1.03,
        "speedup": 1.4,
        "speedup_over_best": 1.3,
        "run_s": {"sluice": [0.37, 0.38, 0.4], "ddp 25 MB": [0.5]},
    },
    "pipe": [
        row("allreduce"),
        row("allreduce", codec="int8"),
        row("pipe"),
        row("pipe", codec="int8", ratio=3),
        row("allreduce", ratio=3),
        row("kvstore", overlap=False),
        row("kvstore"),
    ],
    "collective": [allReduce(m, s) for m in ("direct", "ring") for s in (4096, 10**6, 25 * 10**6)],
    "collectives": [
        allReduce("ring", s, engine=e, workers=w, rate="")
        for e in ("fabric", "gloo")
        for w in (2, 4)
        for s in (10, 20)
    ],
    "simulated": [
        simulated("sluice", 16),
        simulated("sluice", 64),
        simulated("sluice", 64, topology="racks:16x4"),
        simulated("asp", 64, over_bound=None, over_bound_range=None),
    ],
    "plan": PLAN,
    "swept plan": PLAN
    | {
        "by_rate": [p | {"rate_bits_per_s": r} for p in PLANS for r in (10**9, 10**10)],
        "by_hosts": [p | {"hosts": h} for p in PLANS for h in (2, 4)],
    },
    "utilisation": [row("kvstore", utilisation=SAMPLES), row(utilisation=SAMPLES)],
}


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def plot(self, text):
        (self.folder / "in.json").write_text(text)
        return subprocess.run(
            [PROGRAM, "plot", self.folder / "in.json", "-o", self.folder / "out.png"],
            capture_output=True,
            text=True,
            timeout=60,
        )

    def testEveryKindBecomesAPicture(self):
        for kind, rows in KINDS.items():
            with self.subTest(kind=kind):
                ran = self.plot(json.dumps(rows))
                self.assertEqual((ran.returncode, ran.stderr), (0, ""))
                head = (self.folder / "out.png").read_bytes()[:24]
                self.assertEqual(head[:8], b"\x89PNG\r\n\x1a\n")
                width, height = struct.unpack(">II", head[16:24])
                self.assertGreater(width, 500)
                self.assertGreater(height, 250)

    def testTheOlderWordForAnAlgorithmIsRead(self):
        rows = [row(name) for name in ("kvstore", "p3")]
        for each in rows:
            each["strategy"] = each.pop("algorithm")
        ran = self.plot(json.dumps(rows))
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))

    def testAlgorithmsWithSliceSizesOfTheirOwnAreNoSeries(self):
        rows = [row("kvstore"), row("sluice", slice_elements=12500)]
        look = (
            "import json, sys; sys.path.insert(0, sys.argv[1]); "
            "from sluice_papers.plot import command; "
            "print(command.drawingFor(json.loads(sys.argv[2])).__name__)"
        )
        papers = Path(__file__).resolve().parent.parent
        drawn = [
            subprocess.run(
                ["/usr/bin/python3", "-Bc", look, papers, json.dumps(which)],
                capture_output=True,
                text=True,
                timeout=60,
            ).stdout.strip()
            for which in (rows, rows + [row("kvstore", ratio=2)], KINDS["slices"])
        ]
        self.assertEqual(drawn, ["drawComparison", "drawSweep", "drawSlices"])

    def testWhatIsNoMeasurementIsRefusedInOneLine(self):
        mixed = json.dumps([row(), simulated("p3", 4)])
        for text in ("", "[]", "{}", "[1]", '[{"profile": "x"}]', mixed):
            with self.subTest(text=text):
                ran = self.plot(text)
                self.assertEqual(ran.returncode, 1)
                self.assertRegex(ran.stderr, r"^sluice plot: [^\n]*sluice bench[^\n]*\n$")


if __name__ == "__main__":
    if (
        subprocess.run(
            ["/usr/bin/python3", "-c", "import matplotlib"], capture_output=True
        ).returncode
        != 0
    ):
        print("skipped: python3-matplotlib is not installed")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
