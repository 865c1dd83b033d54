"""Tests `sluice bench` in a real lab with two workers, a tiny model and all strategies.

replay_test.py PATH_OF_SLUICE
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from root import skip_without_lab

PROGRAM = sys.argv[1]
STRATEGIES = ["kvstore", "slicing", "p3", "sluice"]
PROFILE = {
    "model": "tiny",
    "note": "for a test",
    "unit": "fraction of one forward+backward",
    "tensors": [
        {"name": "first", "parameters": 1000, "forward": 0.2, "backward": 0.4},
        {"name": "none", "parameters": 7, "forward": 0.0, "backward": 0.0},
        {"name": "last", "parameters": 300000, "forward": 0.15, "backward": 0.25},
    ],
}


def hasLab(process):
    command = [PROGRAM, "lab", "status", "--name", f"tmp-{process.pid}-0"]
    return subprocess.run(command, capture_output=True).returncode == 0


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.profile = self.folder / "tiny.json"
        self.profile.write_text(json.dumps(PROFILE))

    def command(self, *more):
        return [
            PROGRAM,
            "bench",
            "replay",
            "--profile",
            self.profile,
            "--workers",
            "2",
            "--rate",
            "200mbit",
            "--runs",
            "1",
            "--lab",
            *more,
        ]

    def testEveryStrategyIsMeasured(self):
        ran = subprocess.run(
            self.command("--iterations", "8", "--utilisation", "--json", self.folder / "out.json"),
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn("computing is precise sleeping", ran.stdout)
        self.assertRegex(ran.stdout, r"iperf3 reaches 0\.1\d+ Gbit/s")
        rows = json.loads((self.folder / "out.json").read_text())
        self.assertEqual([row["algorithm"] for row in rows], STRATEGIES)
        model = 4 * sum(tensor["parameters"] for tensor in PROFILE["tensors"])
        for row in rows:
            with self.subTest(algorithm=row["algorithm"]):
                self.assertEqual(row["workers"], 2)
                # Each of N hosts sends 2(N-1)/N of the model with every schedule. A few slices
                # dealt in turn are not equal shares, and heartbeats are counted too. Half an
                # iteration may be counted too much or too little, in eight.
                self.assertAlmostEqual(row["payload_bytes"] / (2 * model), 1, delta=0.1)
                # The two counters are read one after the other, while slices are on their way.
                self.assertAlmostEqual(row["bytes_on_wire"] / row["payload_bytes"], 1, delta=0.1)
                self.assertAlmostEqual(row["compute_s"], model * 8 / 200e6, places=6)
                self.assertGreaterEqual(row["over_bound"], 1)
                self.assertGreater(row["cpu_s_per_iteration"], 0)
                self.assertGreater(len(row["utilisation"]["sent_bits_per_s"]), 2)
        self.assertEqual(rows[0]["speedup_over_kvstore"], 1)

    def testWithoutOverlap(self):
        ran = subprocess.run(
            self.command(
                "--algorithms",
                "kvstore",
                "--no-overlap",
                "--servers",
                "dedicated:1",
                "--iterations",
                "4",
                "--ratio",
                "0.25",
                "--exact",
                "--json",
                self.folder / "out.json",
            ),
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        (row,) = json.loads((self.folder / "out.json").read_text())
        # No bytes travel during computing: both workers push to one server, which answers both. Its
        # first answers leave while the last slices still come, and a token bucket lets some pass at
        # once: 0.86 of the sum was measured, with overlap 0.55.
        model = 4 * sum(tensor["parameters"] for tensor in PROFILE["tensors"])
        self.assertGreater(row["iteration_s"], row["compute_s"] + 2 * 2 * model * 8 / 200e6 * 0.7)

    def measure(self, *more):
        """Returns the figures of a replay whose parameters are compared with one process."""
        path = self.folder / "out.json"
        ran = subprocess.run(
            self.command("--iterations", "2", "--exact", "--json", path, *more),
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(path.read_text())

    def testUpdatesTakeTheirTime(self):
        rows = self.measure("--algorithms", "p3,sluice", "--update-rate", "1MB/s")
        model = 4 * sum(tensor["parameters"] for tensor in PROFILE["tensors"])
        for row in rows:
            # Each of the two servers updates half of the model, one slice after the other.
            self.assertGreater(row["iteration_s"], 0.9 * model / 2 / 1e6)
            self.assertEqual(row["update_rate_bits_per_s"], 8e6)

    def testAShrunkModelTakesAsLongWithFewerBytes(self):
        rows = self.measure("--algorithms", "kvstore,sluice", "--shrink", "4")
        model = 4 * sum(tensor["parameters"] for tensor in PROFILE["tensors"])
        for row in rows:
            self.assertEqual((row["shrink"], row["rate_bits_per_s"]), (4, 50e6))
            self.assertAlmostEqual(row["payload_bytes"] / (2 * model / 4), 1, delta=0.15)
            self.assertAlmostEqual(row["compute_s"] / (model * 8 / 200e6), 1, delta=1e-4)
        self.assertEqual([row["slice_elements"] for row in rows], [250000, 3125])

    def testLayersOnOneServerEachAreExactToo(self):
        (row,) = self.measure("--algorithms", "sluice", "--placement", "layers")
        self.assertEqual(row["placement"], "layers")

    def testThoseWhoDoNotKeepStepAreFasterThanAStraggler(self):
        strategies = ["bsp", "asp", "ssp:3", "easgd:4", "gosgd:1", "adpsgd"]
        ran = subprocess.run(
            self.command(
                "--iterations",
                "30",
                "--algorithms",
                ",".join(strategies),
                "--straggler",
                "1:4x",
                "--json",
                self.folder / "out.json",
            ),
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertIn(
            "ranks do not end with equal parameters, so these were not compared",
            ran.stderr + ran.stdout,
        )
        rows = {row["algorithm"]: row for row in json.loads((self.folder / "out.json").read_text())}
        self.assertEqual(list(rows), strategies)
        for row in rows.values():
            self.assertEqual(
                (row["straggler"], row["iteration_s_is"]),
                ("1:4x", "elapsed x workers / steps of all"),
            )
        # One of two workers makes four steps while the other makes one: 5/2 of the steps that
        # keeping step allows.
        for algorithm in ["asp", "easgd:4", "gosgd:1", "adpsgd"]:
            with self.subTest(algorithm=algorithm):
                self.assertGreater(rows["bsp"]["iteration_s"] / rows[algorithm]["iteration_s"], 1.7)
        # The fast worker runs ahead as far as allowed, then waits for the slow one.
        self.assertAlmostEqual(
            rows["bsp"]["iteration_s"] / rows["ssp:3"]["iteration_s"], 1, delta=0.35
        )

    def testCtrlCRemovesTheLab(self):
        running = subprocess.Popen(
            self.command("--iterations", "1000000"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said = running.stderr.readline()  # the first run begins
        self.assertIn("run 1 of", said)
        self.assertTrue(hasLab(running))
        time.sleep(1)  # until any moment inside the run
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
        self.assertEqual((running.returncode, errors), (130, "sluice: interrupted\n"))
        self.assertFalse(hasLab(running))


if __name__ == "__main__":
    skip_without_lab()
    unittest.main(argv=sys.argv[:1])
