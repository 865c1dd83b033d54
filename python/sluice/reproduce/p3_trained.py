"""P3, figures 11 and 15: accuracy."""

from __future__ import annotations

from sluice.reproduce import trainings
from sluice.reproduce.rows import Claim, Part, Row, Tier
from sluice.reproduce.trainings import Trained

_STUDY = "--data fashion-mnist --data-dir {data} --grid none -o {folder}"
_DGC = Part(
    "p3-f11",
    Tier.TRAIN,
    "sluice study --algorithms bsp --dgc --workers 4 --seeds 5 --epochs 8 " + _STUDY,
    seconds=900,
)
_ASP = Part(
    "p3-f15",
    Tier.TRAIN,
    "sluice study --algorithms bsp,asp --workers 4 --seeds 3 --epochs 6 --lab --rate 10mbit "
    + _STUDY,
    seconds=600,
)
_SMALL_MODEL = (
    "A small network on Fashion-MNIST stands for ResNet-110 on CIFAR-10, which is not here. Order "
    "and sign can be compared, sizes cannot."
)

F11 = Row(
        "p3", "f11", "Accuracy of P3 and of deep gradient compression",
        parts=(_DGC,),
        claims=(
            Claim("P3 is ahead of DGC, 99.9 % sparse",
                  trainings.ahead(Trained(_DGC, "bsp", 4), Trained(_DGC, "bsp", 4, dgc=True)),
                  least=0, printed="0.4", unit="points"),
        ),
        substitute=_SMALL_MODEL + " Five seeds stand for five settings.",
        honest="P3 has the bits of BSP, which the tests of the core prove.",
)  # fmt: skip

F15 = Row(
        "p3", "f15", "Accuracy by time of asynchronous SGD and of P3, 1 Gbit/s",
        parts=(_ASP,),
        claims=(
            Claim("P3's final accuracy is ahead of ASGD's",
                  trainings.ahead(Trained(_ASP, "bsp", 4), Trained(_ASP, "asp", 4)), least=0,
                  printed="93 - 88 = 5", unit="points"),
            Claim("Time of ASGD over that of P3 until 86 % of P3's accuracy (80 of 93)",
                  trainings.times_to(Trained(_ASP, "asp", 4), Trained(_ASP, "bsp", 4), 80 / 93),
                  least=1, printed="6"),
        ),
        substitute=_SMALL_MODEL, honest="Wire and training are real.",
)  # fmt: skip
