"""The learning rate by the paper's rule. A base rate (0.05 in the paper) is for one worker with 128
samples in a step, and scales with the samples of all workers together. It warms up from one
worker's rate in the first 5 of 90 epochs, and falls to a tenth at epochs 30, 60 and 80. A study of
another length has the same shape."""

from __future__ import annotations

from dataclasses import dataclass

from sluice_papers.study.algorithms import Algorithm

SAMPLES = 128  # samples in a step, for the base rate
WARM_UP = 5 / 90
DECAYS = (30 / 90, 60 / 90, 80 / 90)
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4


@dataclass(frozen=True)
class Schedule:
    peak: float
    start: float  # rate at the start of the warm-up

    def rate(self, progress: float) -> float:
        """Returns the rate; `progress` is the part of the training that is done, 0 to 1."""
        if progress < WARM_UP:
            return self.start + (self.peak - self.start) * progress / WARM_UP
        passed = sum(progress >= decay for decay in DECAYS)
        return float(self.peak * 10.0**-passed)


def make(
    algorithm: Algorithm, base: float, batch: int, workers: int, factor: float = 1.0
) -> Schedule:
    """Makes the schedule of a run. If every gradient is applied in full, the steps of N workers
    move the model by N gradients, as far as one step of the other algorithms does by N times the
    mean. So the scaling is in the algorithm already."""
    one = factor * base * batch / SAMPLES
    peak = one if algorithm.sums_gradients else one * workers
    return Schedule(peak=peak, start=peak / workers)
