"""P3, figures 11 and 15: accuracy."""

from __future__ import annotations

from sluice_papers.reproduce import replays, trainings
from sluice_papers.reproduce.replays import Of
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.reproduce.trainings import DGC_BSP, Trained
from sluice_papers.study import figures

_STUDY = "--data fashion-mnist --data-dir {data} -o {folder}"
_ASP = Part(
    "p3-f15",
    Tier.TRAIN,
    "sluice study --algorithms bsp,asp --workers 4 --seeds 3 --epochs 6 --lab --rate 100mbit "
    + _STUDY,
    seconds=600,
)
_REPLAYED = Part(
    "p3-f15-replay",
    Tier.LAB,
    "sluice bench replay --profile resnet110 --ratio 0.8 --algorithms p3,asp --workers 4 --runs 3 "
    "--iterations 20 --jitter 0.1:1.5x --lab --encrypt off --json {out}",
    seconds=60,
)
_SMALL_MODEL = (
    "A small network on Fashion-MNIST stands for ResNet-110 on CIFAR-10, which is not here. Order "
    "and sign can be compared, sizes cannot."
)
_BIG_MODEL = (
    "A perceptron of a million parameters on Fashion-MNIST stands for ResNet-110 on CIFAR-10, "
    "which is not here. Order and sign can be compared, sizes cannot."
)


F11 = Row(
    "p3", "f11", "Accuracy of P3 and of deep gradient compression",
    parts=(DGC_BSP,),
    claims=(
        Claim("P3 is ahead of DGC, 99.8 % sparse",
              trainings.ahead(Trained(DGC_BSP, "bsp", 2), Trained(DGC_BSP, "bsp", 2, dgc=True)),
              least=0, printed="0.4", unit="points"),
    ),
    substitute=_BIG_MODEL + " Two workers stand for four, and five seeds for five settings. More "
    "of each gradient is sent than in the paper.",
    honest="P3 has the bits of BSP, which the tests of the core prove.",
    draw=trainings.drawn(DGC_BSP, figures.with_dgc),
)  # fmt: skip

F15 = Row(
    "p3", "f15", "Accuracy by time of asynchronous SGD and of P3, 1 Gbit/s",
    parts=(_ASP, _REPLAYED),
    claims=(
        Claim("P3's final accuracy is ahead of ASGD's",
              trainings.ahead(Trained(_ASP, "bsp", 4), Trained(_ASP, "asp", 4)), least=0,
              printed="93 - 88 = 5", unit="points"),
        Claim("Time of ASGD over that of P3 until 86 % of P3's accuracy (80 of 93)",
              trainings.times_to(Trained(_ASP, "asp", 4), Trained(_ASP, "bsp", 4), 80 / 93),
              least=1, printed="6"),
        Claim("Steps of ASGD over those of P3 in the same time, ResNet-110",
              replays.speedup(Of(_REPLAYED, "p3"), Of(_REPLAYED, "asp")), least=1,
              printed="ASGD runs faster"),
    ),
    substitute=_SMALL_MODEL + " Speed is that of a replay of ResNet-110 with uneven steps.",
    honest="Wire and training are real. The ratio of wire to compute time is not printed, and is "
    "chosen.",
    draw=trainings.drawn(_ASP, figures.by_time),
)  # fmt: skip
