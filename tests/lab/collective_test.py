"""Tests `sluice bench collective` in a real lab, and a replay that merges by its measurements.
Makes a lab.

  collective_test.py PATH_OF_SLUICE
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from root import skip_without_lab

PROGRAM = sys.argv[1]
BURST = 128_000  # bytes that a link of the lab lets pass at once
STRATEGIES = ["allreduce", "wfbp", "mgwfbp", "mgp3", "pipe"]
PROFILE = {
    "model": "tiny",
    "note": "for a test",
    "unit": "fraction of one forward+backward",
    "tensors": [
        {"name": "first", "parameters": 1000, "forward": 0.2, "backward": 0.4},
        {"name": "last", "parameters": 300000, "forward": 0.15, "backward": 0.25},
    ],
}


class Collective(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_bench(self, *words, **variables):
        ran = subprocess.run(
            [PROGRAM, "bench", *words],
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def testMeasuresEveryMethodAndPlansWithIt(self):
        network = self.folder / "network.json"
        out = self.run_bench(
            "collective",
            "--lab",
            "3",
            "--rate",
            "200mbit",
            "--encrypt",
            "off",
            "--seconds",
            "0.1",
            "--sizes",
            "4KB,400KB,1MB",
            "--json",
            self.folder / "out.json",
            "--network",
            network,
        )
        rows = json.loads((self.folder / "out.json").read_text())
        self.assertEqual(
            [(row["method"], row["bytes"]) for row in rows],
            [
                (method, size)
                for size in (4000, 400000, 1000000)
                for method in ("direct", "ring", "halving-doubling")
            ],
        )
        for row in rows:
            with self.subTest(row=row):
                if row["bytes"] > BURST:
                    self.assertLess(row["link_gbit"], 0.25)  # no faster than the wire
                self.assertGreater(row["p50_ms"], 0)
                self.assertLessEqual(row["p50_ms"], row["p99_ms"])
                self.assertGreater(row["ms_per_byte"], 0)
        self.assertIn("ns a byte", out)
        self.assertEqual(
            set(json.loads(network.read_text())),
            {"collective", "reduction-start", "reduction-rate"},
        )

        profile = self.folder / "tiny.json"
        profile.write_text(json.dumps(PROFILE))
        self.run_bench(
            "replay",
            "--profile",
            profile,
            "--workers",
            "3",
            "--rate",
            "200mbit",
            "--runs",
            "1",
            "--iterations",
            "2",
            "--algorithms",
            ",".join(STRATEGIES),
            "--exact",
            "--lab",
            "--json",
            self.folder / "replay.json",
            SLUICE_CONFIG=str(network),
        )
        rows = json.loads((self.folder / "replay.json").read_text())
        self.assertEqual([row["algorithm"] for row in rows], STRATEGIES)

    def testChoosesByMeasuredCosts(self):
        network = self.folder / "network.json"
        self.run_bench(
            "collective",
            "--lab",
            "2",
            "--rate",
            "200mbit",
            "--encrypt",
            "off",
            "--seconds",
            "0.1",
            "--sizes",
            "4KB,400KB",
            "--collective",
            "auto",
            "--network",
            network,
        )
        costs = json.loads(network.read_text())
        self.assertEqual(costs["collective"], "auto")
        for method in ("direct", "ring", "halving-doubling"):
            self.assertIn(f"{method}=", costs["collective-costs"])
        profile = self.folder / "tiny.json"
        profile.write_text(json.dumps(PROFILE))
        self.run_bench(
            "replay",
            "--profile",
            profile,
            "--workers",
            "2",
            "--rate",
            "200mbit",
            "--runs",
            "1",
            "--iterations",
            "2",
            "--algorithms",
            "wfbp",
            "--lab",
            SLUICE_CONFIG=str(network),
        )


if __name__ == "__main__":
    skip_without_lab()
    unittest.main(argv=sys.argv[:1])
