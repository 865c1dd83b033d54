"""Tests the lab of an ordinary user. Run as root, it becomes one first. Skips (77) if users may not
make namespaces.

user_test.py PATH_OF_SLUICE            in short: rates, faults, kills, a replay
user_test.py PATH_OF_SLUICE --all      all of lab_test.py too
user_test.py PATH_OF_SLUICE NAME ...   single tests, as user_test.Keeper or lab_test.Rates
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from lab_job import writeProfile
from lab_test import (
    NAME,
    PROGRAM,
    Flow,
    LabCase,
    bits,
    lab,
    mustLab,
    onHost,
    processesWith,
    run,
    waitFor,
)
from root import run_again_as_ordinary_user, skip_without_lab

OWN = "user_test"
SHORT = [
    OWN,
    "lab_test.Faults.testDropTwoPercentLosesOneToThreePercentEachWay",
    "lab_test.Kills.testAKilledRunLeavesNoProcessBehind",
    "lab_test.Rights.testAMachineThatRefusesNamespacesSaysWhatIsNeeded",
]
# A container hides parts of /sys and /proc like this. Then the kernel refuses further mounts of
# them.
HIDDEN = "mount -t tmpfs none /sys/kernel && mount -t tmpfs none /proc/fs"


def stateFiles():
    session = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(session, "sluice") if session else Path(f"/tmp/sluice-{os.geteuid()}")
    return sorted(f.name for f in (folder / "labs").glob("*") if f.name != "lock")


def keepers(name):
    return [
        int(path.parent.name)
        for path in processesWith(name)
        if (path.parent / "comm").read_text() == "sluice-lab\n"
    ]


class Keeper(LabCase):
    """The process that holds the namespaces."""

    def testTheLabEndsWithItsKeeper(self):
        self.up("--hosts", "2")
        (keeper,) = keepers(NAME)
        os.kill(keeper, signal.SIGKILL)
        waitFor(lambda: not keepers(NAME), 2, "the keeper has ended")
        self.assertIn("there is no lab", lab("run", "--", "true").stderr)
        self.assertNotIn(f"{NAME}.json", stateFiles())
        mustLab("up", "--hosts", "2")
        mustLab("run", "--", "true")
        mustLab("down")
        self.assertEqual((keepers(NAME), processesWith(NAME)), ([], []))
        self.assertEqual([f for f in stateFiles() if f.startswith(NAME)], [])

    def testTheLabIsUsableFromItsHostsButNotFromARun(self):
        self.up("--hosts", "2")
        cut = run(*onHost(0, PROGRAM, "lab", "cut", "--name", NAME, "--host", "1"))
        self.assertEqual(cut.returncode, 0, cut.stderr)
        shown = run(*onHost(1, PROGRAM, "lab", "status", "--name", NAME, "--json"))
        self.assertEqual(json.loads(shown.stdout)[1]["faults"], "cut")
        ran = lab("run", "--hosts", "0", "--", PROGRAM, "lab", "down", "--name", NAME)
        self.assertIn("another PID namespace", ran.stderr)
        mustLab("heal")

    def testADirectoryThatOthersMayOpenIsRefused(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "sluice").mkdir(0o755)
            ran = lab("up", env=os.environ | {"XDG_RUNTIME_DIR": folder})
        self.assertEqual(ran.returncode, 3)
        self.assertIn("chmod 700", ran.stderr)

    def testMountsThatAContainerRefusesAreALineEach(self):
        script = f"{HIDDEN} && sluice=$1 && shift && $sluice lab up --name $1 --hosts 2 && "
        script += "$sluice lab run --name $1 -- true; $sluice lab down --name $1"
        inside = ["unshare", "--user", "--map-current-user", "--keep-caps", "--mount"]
        ran = run(*inside, "sh", "-c", script, "sh", PROGRAM, NAME)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        self.assertRegex(
            ran.stderr, r"^\[0\] sluice: this machine refuses a /sys .*\n\[0\] .*/proc"
        )
        self.assertEqual(ran.stderr.count("\n"), 2, ran.stderr)


class Ranks(LabCase):
    """Programs in the lab are the user's own."""

    def testTheyAreTheUserInTheUsersFolder(self):
        self.up("--hosts", "2")
        with tempfile.TemporaryDirectory() as folder:
            script = "id -u; id -g; pwd; echo $HOME; touch rank$RANK; echo $$; readlink /proc/self"
            ran = lab("run", "--", "sh", "-c", script, cwd=folder)
            said = [line[4:] for line in ran.stdout.splitlines() if line.startswith("[1]")]
            ours = [str(os.getuid()), str(os.getgid()), folder, os.environ["HOME"]]
            self.assertEqual(said[:4], ours, ran.stderr)
            self.assertLess(int(said[5]) - int(said[4]), 10, "/proc shows the run's processes")
            self.assertEqual(Path(folder, "rank1").stat().st_uid, os.getuid())

    def testTheyHaveAllRightsOnTheirHost(self):
        self.up("--hosts", "2", "--cc", "reno")
        for command in (
            ("ip", "addr", "add", "10.9.9.9/24", "dev", "eth0"),
            (sys.executable, "-c", "import socket; socket.create_server(('', 80))"),
            (
                sys.executable,
                "-c",
                "import socket; socket.socket().setsockopt(6, socket.TCP_CONGESTION, b'cubic')",
            ),
        ):
            with self.subTest(command=command):
                ran = run(*onHost(0, *command))
                self.assertEqual(ran.returncode, 0, ran.stderr)


class Rates(LabCase):
    """One flow that is shaped, cut and healed."""

    def testAFlowFollowsItsLink(self):
        self.up("--hosts", "2", "--rate", "200mbit")
        flow = Flow(self)
        for rate in ("200mbit", "50mbit"):
            mustLab("set", "--host", "1", "--rate", rate)
            share = flow.bitsPerSecond(time.monotonic() + 1, 1) / bits(rate)
            print(f"  at {rate}: {share:.3f} of the rate")
            self.assertTrue(0.8 < share < 1.02, share)
        mustLab("cut", "--host", "1")
        self.assertEqual(flow.bitsPerSecond(time.monotonic() + 0.3, 1), 0)
        total = flow.samples[-1][1]
        mustLab("heal")
        waitFor(lambda: flow.samples[-1][1] > total + 1e6, 10, "the flow goes on")
        sender, receiver = flow.finish()
        self.assertEqual(sender, receiver, "all bytes arrived and nobody saw an error")


class Replay(unittest.TestCase):
    """The benchmarks make labs of their own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        profile = writeProfile(self.folder / "tiny.json", [1000, 300000])
        self.command = [PROGRAM, "bench", "replay", "--profile", profile, "--workers", "2", "--lab"]
        self.command += ["--rate", "200mbit", "--runs", "1", "--algorithms", "p3"]

    def testAReplayLeavesNothingBehind(self):
        before = stateFiles()
        ran = run(*self.command, "--iterations", "2", "--json", self.folder / "out.json")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        (row,) = json.loads((self.folder / "out.json").read_text())
        self.assertEqual((row["algorithm"], row["workers"]), ("p3", 2))
        self.assertEqual((keepers("bench\0replay"), stateFiles()), ([], before))

    def testAKilledReplayTakesItsLabWithIt(self):
        running = subprocess.Popen(
            [*self.command, "--iterations", "100000"], stdout=subprocess.DEVNULL
        )
        waitFor(lambda: processesWith("bench\0rank"), 20, "ranks have started")
        running.kill()
        running.wait()
        waitFor(lambda: not processesWith(str(self.folder)), 2, "all processes are gone")
        run(PROGRAM, "lab", "status")
        self.assertEqual([f for f in stateFiles() if f.startswith(f"tmp-{running.pid}-")], [])


if __name__ == "__main__":
    arguments = sys.argv[2:]
    if os.geteuid() == 0:
        run_again_as_ordinary_user(PROGRAM, *arguments)
    skip_without_lab()
    names = [OWN, "lab_test"] if arguments == ["--all"] else arguments or SHORT
    unittest.main(module=None, argv=[sys.argv[0], "-v", *names])
