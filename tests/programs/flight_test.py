"""Tests the files that flight recorders leave: of three ranks one is killed, and the files of the
others name it and the layer that they waited for. tests/python/flight_endings.py has twenty ways.

  flight_test.py PATH_OF_SLUICE
"""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

try:
    import torch  # noqa: F401  # the ranks are forked, so only this process imports it
except ImportError as missing:
    print(f"skipped: {missing}; scripts/install_deps.sh --with-torch installs it")
    sys.exit(77)

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "python")]
from ranks import running  # noqa: E402

PROGRAM = sys.argv.pop(1)
LAYERS = {f"{layer}.{part}" for layer in (0, 2) for part in ("weight", "bias")}
TRAINING = """
import torch, sluice
layers = [torch.nn.Linear(16, 200), torch.nn.ReLU(), torch.nn.Linear(200, 16)]
model, optimizer = sluice.distribute(torch.nn.Sequential(*layers),
                                     lambda ps: torch.optim.SGD(ps, lr=0.01))
for step in range(STEPS):
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
    if step == 5:
        print("trains", flush=True)
"""


def flight(*words):
    return subprocess.run(
        [PROGRAM, "trace", "flight", *map(str, words)], capture_output=True, text=True, timeout=60
    )


class KilledRank(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def files(self):
        return sorted(self.folder.glob("sluice-flight-*"))

    def kill_rank_1(self, **variables):
        script = TRAINING.replace("STEPS", "1000000")
        with running(script, 3, SLUICE_SILENCE_LIMIT="3s", **variables) as ranks:
            for rank in ranks:
                self.assertEqual(rank.stdout.readline(), "trains\n")
            ranks[1].send_signal(signal.SIGKILL)
            for rank in (ranks[0], ranks[2]):
                rank.communicate(timeout=60)
                self.assertNotEqual(rank.returncode, 0)
            return [rank.pid for rank in ranks]

    def check(self, files, states):
        said = flight(*files, "--json")
        self.assertEqual(said.returncode, 0, said.stderr)
        report = json.loads(said.stdout)
        fault = report["fault"]
        self.assertEqual((fault["rank"], fault["fate"]), (1, "lost"), said.stdout)
        self.assertIn(fault["layer"], LAYERS)
        self.assertGreaterEqual(fault["step"], 5)
        self.assertLessEqual(set(fault["waiting"]), {0, 2})
        self.assertEqual({each["rank"]: each["state"] for each in report["ranks"]}, states)
        text = flight(*files)
        self.assertIn("rank 1 was lost at ", text.stdout)
        self.assertIn(f"waited for '{fault['layer']}' of step {fault['step']}", text.stdout)

    def test_the_files_of_the_others_name_it_and_the_layer(self):
        pids = self.kill_rank_1(TMPDIR=str(self.folder))
        names = [file.name.split("-")[-2:] for file in self.files()]
        self.assertEqual(names, [["0", str(pids[0])], ["2", str(pids[2])]])
        for file in self.files():
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        states = {0: "failed", 1: "no file", 2: "failed"}
        self.check(self.files(), states)
        self.check(self.files()[:1], {0: "failed", 1: "no file", 2: "no file"})
        events = flight(*self.files(), "--events", "5")
        self.assertIn("peer-lost", flight(*self.files(), "--events", "100000").stdout)
        self.assertIn("The last events of rank 2", events.stdout)

    def test_a_mapped_file_outlives_the_kill(self):
        self.kill_rank_1(TMPDIR=str(self.folder), SLUICE_FLIGHT_DIR=str(self.folder))
        self.assertEqual(len(self.files()), 3)
        self.check(self.files(), {0: "failed", 1: "running or killed", 2: "failed"})

    def test_a_job_that_ends_well_leaves_nothing(self):
        script = TRAINING.replace("STEPS", "10")
        folders = {"TMPDIR": str(self.folder), "SLUICE_FLIGHT_DIR": str(self.folder / "flights")}
        with running(script, 2, **folders) as ranks:
            for rank in ranks:
                _, errors = rank.communicate(timeout=60)
                self.assertEqual((rank.returncode, errors), (0, ""))
        self.assertEqual(list(self.folder.rglob("sluice-flight-*")), [])

    def test_a_signal_that_is_named_saves_a_file_and_training_goes_on(self):
        script = TRAINING.replace("STEPS", "1000000")
        variables = {"TMPDIR": str(self.folder), "SLUICE_FLIGHT_SIGNAL": "SIGUSR2"}
        with running(script, 2, **variables) as ranks:
            for rank in ranks:
                self.assertEqual(rank.stdout.readline(), "trains\n")
            ranks[0].send_signal(signal.SIGUSR2)
            while not any(file.stat().st_size for file in self.files()):
                self.assertIsNone(ranks[0].poll())
                os.sched_yield()
            self.assertIsNone(ranks[0].poll())

    def test_a_file_of_another_kind_is_refused_by_name(self):
        other = self.folder / "other"
        other.write_text("something else")
        said = flight(other)
        self.assertEqual(said.returncode, 2, said.stderr)
        self.assertIn("is not a file of a flight recorder", said.stderr)


if __name__ == "__main__":
    unittest.main()
