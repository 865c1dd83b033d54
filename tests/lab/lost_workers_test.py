"""Kills a worker of training that does not keep step, and checks the other workers. Makes a lab.

  lost_workers_test.py PATH_OF_SLUICE

The ranks are real processes in a lab. With asp, gosgd and adpsgd, and by option with ssp and easgd,
the others make all their steps, end well and name the lost worker, also if that was rank 0, at
which the ranks meet. Otherwise they soon end with an error that names it. No process may hang.
"""

import random
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "support"))
from lab_job import Job, Lab, task, writeProfile
from root import skip_without_lab

PROGRAM = sys.argv[1]
RANKS = 4
SOON = 5.0
STEPS = 40
COMPUTE = 0.1  # seconds of computing in a step
DEDICATED = {"SLUICE_SERVERS": "dedicated:1"}
SURVIVE = DEDICATED | {"SLUICE_SURVIVE_LOSS": "on"}


class LostWorkers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.profile = writeProfile(
            Path(folder.name) / "model.json", [20_000, 100_000, 1_000, 7, 60_000]
        )
        cls.lab = Lab(PROGRAM, RANKS, "300mbit")
        cls.addClassCleanup(cls.lab.__exit__)
        cls.port = 29500

    def killOne(self, algorithm, victim, variables):
        """Returns a job in which this rank was killed, the time when the job began and the time of
        the kill."""
        type(self).port += 1
        wanted = task(
            self.profile, iterations=STEPS, computeSeconds=COMPUTE, compareWithReference=False
        )
        job = Job(self.lab, wanted, port=self.port, SLUICE_ALGORITHM=algorithm, **variables)
        self.addCleanup(job.__exit__)
        job.waitUntilBegun(30)
        begun = time.monotonic()
        time.sleep(random.uniform(0.3, 1.0))  # until a random moment of some step
        job.ranks[victim].kill()
        return job, begun, time.monotonic()

    def errorsOf(self, job, rank):
        return [(at, line) for at, line in job.said[rank] if " error bench: " in line]

    def goOn(self, algorithm, victim, variables):
        job, begun, _ = self.killOne(algorithm, victim, variables)
        others = [rank for rank in range(RANKS) if rank != victim]
        codes = job.waitForEnd(others, STEPS * COMPUTE * 3 + 20)
        took = time.monotonic() - begun
        self.assertGreater(took, STEPS * COMPUTE * 0.9, job.allText())
        for rank in others:
            self.assertEqual(self.errorsOf(job, rank), [], job.allText())  # all steps were made
            self.assertEqual(codes[rank], 0, job.allText())
            self.assertRegex(
                job.text(rank), rf"without a rank that was lost: .*rank {victim}\b", job.allText()
            )
        job.__exit__()

    def end(self, algorithm, victim, variables):
        job, _, killed = self.killOne(algorithm, victim, variables)
        others = [rank for rank in range(RANKS) if rank != victim]
        codes = job.waitForEnd(others, 30)
        for rank in others:
            self.assertIn(codes[rank], (1, 4), job.allText())
            self.assertRegex(job.text(rank), rf"rank {victim}\b", job.allText())
            if variables == DEDICATED and rank == RANKS - 1:
                continue  # this rank only serves, and makes no steps
            errors = self.errorsOf(job, rank)
            self.assertEqual(len(errors), 1, job.allText())
            at, line = errors[0]
            self.assertRegex(line, rf"rank {victim}\b", job.allText())
            self.assertLess(at - killed, SOON, job.allText())
        job.__exit__()

    def testAspGoesOn(self):
        self.goOn("asp", 1, DEDICATED)

    def testAspGoesOnWithoutRankZero(self):
        self.goOn("asp", 0, DEDICATED)

    def testAspEndsWhereEveryWorkerServes(self):
        self.end("asp", 2, {})

    def testGoSgdGoesOn(self):
        self.goOn("gosgd:0.5", 2, {})

    def testGoSgdGoesOnWithoutRankZero(self):
        self.goOn("gosgd:0.5", 0, {})

    def testAdPsgdGoesOn(self):
        self.goOn("adpsgd", 1, {})

    def testAdPsgdGoesOnWithoutRankZero(self):
        self.goOn("adpsgd", 0, {})

    def testSspEndsWithTheName(self):
        self.end("ssp:3", 1, DEDICATED)

    def testSspGoesOnByOption(self):
        self.goOn("ssp:3", 2, SURVIVE)

    def testEasgdEndsWithTheName(self):
        self.end("easgd:2", 2, DEDICATED)

    def testEasgdGoesOnByOption(self):
        self.goOn("easgd:2", 1, SURVIVE)


if __name__ == "__main__":
    skip_without_lab()
    unittest.main(argv=sys.argv[:1])
