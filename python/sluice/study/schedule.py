"""The learning rate, by the paper's rule: a base, theirs is 0.05, for every worker that has 128
samples in a step, so scaled by what all have together; warm-up from one worker's rate in the first
5 of 90 epochs; a tenth of it from epochs 30, 60 and 80 on. A study of another length has the same
shape."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.study.algorithms import Algorithm

SAMPLES = 128  # that the base rate is for
WARM_UP = 5 / 90
DECAYS = (30 / 90, 60 / 90, 80 / 90)
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4


@dataclass(frozen=True)
class Schedule:
    peak: float
    start: float  # of the warm-up

    def rate(self, progress: float) -> float:
        """progress: how much of the training is done, 0 to 1."""
        if progress < WARM_UP:
            return self.start + (self.peak - self.start) * progress / WARM_UP
        passed = sum(progress >= decay for decay in DECAYS)
        return float(self.peak * 10.0**-passed)


def make(
    algorithm: Algorithm, base: float, batch: int, workers: int, factor: float = 1.0
) -> Schedule:
    """Where every gradient is applied in full, N workers' steps move the model by N of them, as one
    step of the others does by their mean times N: there the scaling is in the algorithm already."""
    one = factor * base * batch / SAMPLES
    peak = one if algorithm.sums_gradients else one * workers
    return Schedule(peak=peak, start=peak / workers)
