"""Kills, stops or cuts off a rank of a training job during a step, and checks the other ranks.
Makes a lab.

  session_test.py PATH_OF_SLUICE [TIMES]

The ranks are real processes in a lab; each case runs TIMES times. Every other rank's wait must soon
end with an error that names the rank, and no process may hang. A rank that only pauses must not end
the job: the others report their waits, and all go on.
"""

import json
import random
import re
import signal
import statistics
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from lab_job import Job, Lab, task, writeProfile
from root import skip_without_lab

PROGRAM = sys.argv[1]
TIMES = int(sys.argv[2]) if len(sys.argv) > 2 else 2
RANKS = 4
# Seconds for a machine with too few cores: measured figures show the promise, not this test.
SLACK = 2.0
NOTICED = {"killed": 1.0 + SLACK, "stopped": 3.0 + SLACK, "cut off": 3.0 + SLACK}


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.profile = writeProfile(
            Path(folder.name) / "model.json", [20_000, 500_000, 1_000, 300_000, 7, 400_000]
        )
        cls.lab = Lab(PROGRAM, RANKS, "300mbit")
        cls.addClassCleanup(cls.lab.__exit__)
        cls.noticed = {kind: [] for kind in NOTICED}

    @classmethod
    def tearDownClass(cls):
        for kind, seconds in cls.noticed.items():
            if seconds:
                print(
                    f"{kind}: the others' waits ended after {statistics.median(seconds):.2f} s, "
                    f"at most {max(seconds):.2f} s ({len(seconds)} waits)"
                )

    def begin(self, number, **variables):
        job = Job(self.lab, task(self.profile), port=29500 + number, **variables)
        self.addCleanup(job.__exit__)
        job.waitUntilBegun(30)
        time.sleep(random.uniform(0.3, 1.0))  # until a random moment of some step
        return job

    def assertNamed(self, job, observer, victim, since, within):
        # The rank prints this when the wait has returned. The process itself ends later, after it
        # has tried to leave the job.
        errors = [(at, line) for at, line in job.said[observer] if " error bench: " in line]
        self.assertEqual(len(errors), 1, job.allText())
        at, line = errors[0]
        self.assertRegex(
            line, rf"waiting for 'layer\d' of step \d+: .*rank {victim}\b", job.allText()
        )
        self.assertLess(at - since, within, job.allText())
        return at - since

    def expectEnd(self, job, victim, since, kind):
        others = [rank for rank in range(RANKS) if rank != victim]
        codes = job.waitForEnd(others, 30)
        # The process ends by an error, not by a crash.
        self.assertTrue(all(code in (1, 4) for code in codes.values()), f"{codes}\n{job.allText()}")
        self.noticed[kind] += [
            self.assertNamed(job, rank, victim, since, NOTICED[kind]) for rank in others
        ]

    def testARankThatIsKilled(self):
        for number in range(TIMES):
            job = self.begin(number)
            victim = random.randrange(RANKS)
            since = time.monotonic()
            job.ranks[victim].kill()
            self.expectEnd(job, victim, since, "killed")
            job.__exit__()

    def testARankThatStops(self):
        for number in range(TIMES):
            job = self.begin(number)
            victim = random.randrange(RANKS)
            since = time.monotonic()
            job.ranks[victim].send_signal(signal.SIGSTOP)
            self.expectEnd(job, victim, since, "stopped")
            # The stopped rank finds the others gone when it wakes up, and ends by itself too.
            job.ranks[victim].send_signal(signal.SIGCONT)
            codes = job.waitForEnd([victim], 30)
            self.assertIn(codes[victim], (1, 4), job.allText())
            self.assertRegex(job.text(victim), r"sluice: .*rank \d is lost", job.allText())
            job.__exit__()

    def testARankThatIsCutOff(self):
        self.addCleanup(self.lab.call, "heal")
        for number in range(TIMES):
            job = self.begin(number)
            victim = random.randrange(1, RANKS)
            since = time.monotonic()
            self.lab.call("cut", "--host", str(victim))
            self.expectEnd(job, victim, since, "cut off")
            codes = job.waitForEnd([victim], 30)  # this rank sees all the others as lost
            self.assertIn(codes[victim], (1, 4), job.allText())
            self.assertRegex(job.text(victim), r"sluice: .*rank \d is lost", job.allText())
            self.lab.call("heal")
            job.__exit__()

    def testARankThatOnlyPausesIsReportedAndWaitedFor(self):
        steps = 8
        job = Job(
            self.lab,
            task(self.profile, iterations=steps),
            SLUICE_STALL_AFTER="400ms",
            SLUICE_SILENCE_LIMIT="60s",
        )
        self.addCleanup(job.__exit__)
        job.waitUntilBegun()
        time.sleep(0.4)
        victim = 2
        job.ranks[victim].send_signal(signal.SIGSTOP)
        stall = re.compile(
            r"rank (\d) has waited \d+ s for 'layer\d' of step \d+: \d+ of \d+ slices missing.* "
            r"rank \d"
        )
        others = [rank for rank in range(RANKS) if rank != victim]
        # A rank names the servers that it waits for, and such a server names the workers that it
        # lacks.
        named = re.compile(rf"rank {victim}\b")

        def allSaySo():
            said = [
                [line for line in job.text(rank).splitlines() if stall.search(line)]
                for rank in others
            ]
            return all(said) and any(
                named.search(line.split("slices missing")[1]) for lines in said for line in lines
            )

        try:
            job.waitUntil(
                allSaySo,
                20,
                "all others say whom they wait for, and one of them that it is the paused rank",
            )
        finally:
            job.ranks[victim].send_signal(signal.SIGCONT)
        for rank in others:
            self.assertEqual(stall.search(job.text(rank))[1], str(rank))
        # The pause does no harm: all ranks end well, with the same parameters as one process would
        # have.
        self.assertEqual(set(job.waitForEnd(range(RANKS), 60).values()), {0}, job.allText())
        for rank in range(RANKS):
            report = json.loads(job.text(rank).split("replay-report ", 1)[1].splitlines()[0])
            self.assertEqual(len(report["ends"]) - 1, steps)


if __name__ == "__main__":
    skip_without_lab()
    unittest.main(argv=sys.argv[:1])
