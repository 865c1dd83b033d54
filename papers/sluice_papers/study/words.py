"""Sentences about the figures: the differences from the paper, the order of accuracy, and advice
for users."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any

from sluice_papers.study import schedule
from sluice_papers.study.algorithms import Algorithm
from sluice_papers.study.order import Verdict, bsp_between, judge
from sluice_papers.study.results import Results

_AS_GOOD = 0.005  # accuracy


def differences(results: Results, study: dict[str, Any]) -> list[str]:
    """Returns the differences in setting, a sentence each."""
    fixed, seeds = study["settings"], sorted({row["seed"] for row in results.rows})
    row = results.rows[0]
    parameters = row["model_bytes"] // 4
    paces = ", ".join(
        f"{1e3 * seconds:g} ms with {workers}" for workers, seconds in study["pace_s"].items()
    )
    late = [row["late_steps"] for row in results.rows]
    samples = "all" if fixed["samples"] is None else f"the first {fixed['samples']}"
    sentences = [
        f"Data and model: {fixed['data']} ({samples} training images) and a network "
        f"({fixed['model']}) of {parameters:,} parameters, where they have ImageNet-1K and "
        "ResNet-50 with 23 million.",
        f"Length: {fixed['epochs']} epochs instead of 90, and {fixed['batch']} samples per worker "
        f"and step instead of 128. Seeds: {len(seeds)}; they give one figure.",
        "Workers: processes of one machine that share its cores, where they have a GPU each. So "
        "that asynchrony is that of equal machines and not of the scheduler, a step takes at "
        f"least the same time everywhere: {paces} workers. Unless --pace gave it, that is a fifth "
        "more than a step takes when all workers run as fast as they can. In the median run "
        f"{100 * median(late):.1f} % of the steps took a tenth longer than that, at most "
        f"{100 * max(late):.1f} %. Throughput is said in single workers of that pace.",
        f"Rate: {fixed['learning_rate']:g} (theirs: 0.05) x workers x "
        f"{fixed['batch']}/{schedule.SAMPLES}, momentum {schedule.MOMENTUM}, weight decay "
        f"{schedule.WEIGHT_DECAY:g}, warm-up from one worker's rate in the first "
        f"{fixed['epochs'] * schedule.WARM_UP:.2f} epochs, a tenth of it from 30/90 of the "
        "training on, and again from 60/90 and 80/90 on: their rule, at this length. With asp "
        "and ssp every gradient is applied in full, so there the factor of the workers is in the "
        "algorithm already and is left out of the rate; the momentum is the server's unless "
        "momentum_at says otherwise. Everywhere else momentum is that of whoever makes the step.",
        "Servers: one on every rank, each tensor spread over them, unless the options below say "
        "otherwise; aggregation on one machine before sending, which they have for BSP, is not "
        "there. ssp, easgd, gosgd and adpsgd are those of the originals (docs/asynchronous.md).",
        "Batches: with bsp, arsgd and wfbp every worker has its N-th; with all others whoever is "
        "free takes the next one.",
        "Scored: bsp, asp, ssp the server's model; easgd the centre; gossip the mean of all "
        "models. Between epochs, the curves of ssp have worker 0's copy, which is the server's "
        "and its own steps since it last asked.",
    ]
    network = (
        f"links of {fixed['rate']} in a lab, not encrypted"
        if fixed["rate"]
        else "loopback, not shaped"
    )
    sentences.append(f"Network: {network}; they have 10 and 56 Gbit/s.")
    if fixed["options"]:
        given = ", ".join(f"{name}={value}" for name, value in fixed["options"].items())
        sentences.append(f"Options of all algorithms that take them: {given}.")
    if fixed["straggler"]:
        slow = ", ".join(
            f"rank {rank} takes {factor:g} times as long"
            for rank, factor in fixed["straggler"].items()
        )
        sentences.append(f"Not all workers are as fast: {slow}.")
    share, longer = fixed.get("jitter", (0.0, 1.0))
    if share > 0:
        sentences.append(f"Of every worker's steps {share:g} take {longer:g} times as long.")
    if results.failed:
        sentences.append(f"{len(results.failed)} runs have failed and are left out: see below.")
    return sentences


def order(results: Results) -> str:
    verdicts = [verdict for workers in results.workers for verdict in judge(results, workers)]
    if not verdicts:
        return "The paper's order of accuracy cannot be judged yet: too little has been measured."
    counts = Counter(verdict.word for verdict in verdicts)
    said = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    return " ".join(
        filter(
            None,
            (
                f"Of {len(verdicts)} pairs of algorithms, each at its own number of workers: "
                f"{said}.",
                _refuted(verdicts),
                _of_diverged(results),
                _of_length(results),
            ),
        )
    )


def _refuted(verdicts: list[Verdict]) -> str:
    """Names the pairs that are the other way round."""
    names = [
        f"{one.better.title} and {one.worse.title} with {one.workers} workers"
        for one in verdicts
        if one.word == "refuted"
    ]
    return f"The other way round than in the paper: {'; '.join(names)}." if names else ""


def _of_diverged(results: Results) -> str:
    cells = [
        f"{algorithm.title} with {workers} workers"
        for workers in results.workers
        for algorithm in results.algorithms
        if results.diverged(algorithm, workers)
    ]
    if not cells:
        return ""
    return f"Runs that ended at chance level, and are in no verdict: {'; '.join(cells)}."


def _of_length(results: Results) -> str:
    """Says whether the training is long enough to compare numbers of workers."""
    several = [workers for workers in results.workers if workers > 1]
    if len(several) < 2:
        return ""
    found = bsp_between(results, several[0], several[-1])
    if found is None or found.margin is None:
        return ""
    if found.is_separable:
        return (
            f"BSP itself differs between {several[0]} and {several[-1]} workers by more than its "
            "margin: the training is too short to compare numbers of workers, so compare losses "
            "against BSP with as many workers."
        )
    return (
        f"BSP with {several[0]} and with {several[-1]} workers differ by less than their margin: "
        "the training is long enough to compare numbers of workers."
    )


def advice(results: Results) -> str:
    """Returns one paragraph, from the results with the largest number of workers."""
    most = max(results.workers, default=0)
    scores = {
        one: spread.mean
        for one in results.algorithms
        if (spread := results.spread(one, most)) is not None
    }
    if len(scores) < 2:
        return "There is not enough yet to say what a user should take from it."
    best = max(scores.values())
    good = [one for one in scores if best - scores[one] <= _AS_GOOD]
    lost = sorted((one for one in scores if one not in good), key=lambda one: scores[one])
    text = [
        f"With {most} workers {_names(good)} end within half a point of the best, which has "
        f"{100 * best:.1f} %."
    ]
    if lost:
        parts = ", ".join(f"{one.title} {100 * (best - scores[one]):.1f}" for one in lost)
        text.append(f"Behind, in points: {parts}.")
    text += [_of_speed(results, most), _of_bytes(results, most, good)]
    return " ".join(sentence for sentence in text if sentence)


def _names(algorithms: list[Algorithm]) -> str:
    return ", ".join(one.title for one in algorithms)


def _of_speed(results: Results, workers: int) -> str:
    speeds = {
        one: spread.mean
        for one in results.algorithms
        if (spread := results.spread(one, workers, "of_linear"))
    }
    bsp = speeds.get(Algorithm("bsp"))
    if not bsp or len(speeds) < 2:
        return ""
    fastest = max(speeds, key=lambda one: speeds[one])
    return (
        f"In time, {fastest.title} is the fastest, with {speeds[fastest] / bsp:.2f} times BSP's "
        f"samples per second; BSP reaches {100 * bsp:.0f} % of linear."
    )


def _of_bytes(results: Results, workers: int, good: list[Algorithm]) -> str:
    sent = {
        one: spread.mean
        for one in good
        if (spread := results.spread(one, workers, "sent_bytes_per_step"))
    }
    if len(sent) < 2:
        return ""
    least, bulk = min(sent, key=lambda one: sent[one]), max(sent.values())
    share = round(100 * sent[least] / bulk)
    if share >= 99:
        return "The good ones send as many bytes as each other."
    return (
        f"Of the good ones {least.title} sends least, {share} % of what the one that sends most "
        "does."
    )
