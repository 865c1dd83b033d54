"""All rows of the analysis: Y. Ko et al., An In-Depth Analysis of Distributed Training of Deep
Neural Networks. Its numbers are those of sluice/study/paper.py. Tables II to IV and figure 1 are
trainings."""

from __future__ import annotations

from typing import Any

from sluice.reproduce import analysis_speed, plans, trainings
from sluice.reproduce.kept import Kept
from sluice.reproduce.rows import Claim, Part, Row, Tier
from sluice.reproduce.trainings import Trained
from sluice.study import algorithms, figures, paper
from sluice.study.results import Results

_N = 24
_STUDY = Part(
    "analysis-study",
    Tier.TRAIN,
    f"sluice study --algorithms {algorithms.DEFAULT} --workers 4,8,16,24 --seeds 3 --epochs 4 "
    "--grid 0.3,1,3 --data fashion-mnist --data-dir {data} -o {folder}",
    seconds=6 * 3600,
)
_DGC = Part(
    "analysis-t4",
    Tier.TRAIN,
    "sluice study --algorithms bsp,asp,ssp:3,ssp:10 --dgc --workers 4 --seeds 3 --epochs 8 "
    "--grid none --data fashion-mnist --data-dir {data} -o {folder}",
    seconds=2400,
)


def _ahead(better: str, worse: str, workers: int = _N) -> plans.Measure:
    return trainings.ahead(Trained(_STUDY, better, workers), Trained(_STUDY, worse, workers))


def _points(better: str, worse: str) -> str:
    return f"{100 * (paper.TABLE_2[better] - paper.TABLE_2[worse]):.2f}"


def _draw_study(kept: Kept, *draws: Any) -> list[str]:
    rows = kept.data(_STUDY)
    if not rows:
        return []
    found = Results(rows)
    return [draw(found, max(found.workers)) for draw in draws]


_BIG = (
    "A small network on Fashion-MNIST stands for ResNet-50 on ImageNet, which is not here; "
    "processes on two cores stand for 24 GPUs."
)
_SIGNS = "Order and sign can be compared, sizes cannot. Runs that end at chance are left out."
ROWS = (
    *analysis_speed.BYTES,
    Row("analysis", "t2", "Final accuracy of seven algorithms, 24 workers", parts=(_STUDY,),
        claims=(
            *(Claim(f"BSP ahead of {algorithms.parse(name).title}", _ahead("bsp", name), least=0,
                    printed=_points("bsp", name), unit="points")
              for name in ("asp", "ssp:10", "easgd:8", "gosgd:0.01", "adpsgd")),
            Claim("AR-SGD and BSP are alike", _ahead("arsgd", "bsp"), least=-1, most=1,
                  printed="0.02", unit="points"),
            Claim("ASP ahead of SSP, s = 10", _ahead("asp", "ssp:10"), least=0,
                  printed=_points("asp", "ssp:10"), unit="points"),
            Claim("SSP, s = 10, ahead of EASGD, tau = 8", _ahead("ssp:10", "easgd:8"), least=0,
                  printed=_points("ssp:10", "easgd:8"), unit="points"),
        ),
        substitute=_BIG, honest=_SIGNS),
    Row("analysis", "t3", "Final accuracy by workers, s, tau and p", parts=(_STUDY,),
        claims=tuple(
            Claim(f"{algorithms.parse(one).title} ahead of {algorithms.parse(other).title}, 16",
                  _ahead(one, other, 16), least=0,
                  printed=f"{100 * (paper.TABLE_3[16][one] - paper.TABLE_3[16][other]):.2f}",
                  unit="points")
            for one, other in (("ssp:3", "ssp:10"), ("easgd:4", "easgd:8"),
                               ("gosgd:1", "gosgd:0.1"), ("gosgd:0.1", "gosgd:0.01"))
        ),
        substitute=_BIG, honest=_SIGNS,
        draw=lambda kept: [figures.losses(Results(rows)), figures.their_losses(Results(rows))]
        if (rows := kept.data(_STUDY)) else []),
    Row("analysis", "t4", "Final accuracy with deep gradient compression", parts=(_DGC,),
        claims=tuple(
            Claim(f"{algorithms.parse(name).title} with DGC minus without",
                  trainings.ahead(Trained(_DGC, name, 4, dgc=True), Trained(_DGC, name, 4)),
                  least=-1, printed=f"{100 * (with_ - without):+.2f}", unit="points")
            for name, (without, with_) in paper.TABLE_4.items()
        ),
        substitute=_BIG + " Four workers have more steps than 24 would.", honest=_SIGNS),
    Row("analysis", "f1", "Error by epoch and by time", parts=(_STUDY,),
        claims=tuple(
            Claim(f"Time of BSP over {algorithms.parse(name).title} until 95 % of BSP's accuracy",
                  trainings.times_to(Trained(_STUDY, "bsp", _N), Trained(_STUDY, name, _N), 0.95),
                  least=1, printed="converges faster by time") for name in ("asp", "adpsgd")
        ),
        substitute=_BIG, honest=_SIGNS,
        draw=lambda kept: _draw_study(kept, figures.by_epoch, figures.by_time)),
    *analysis_speed.SPEED,
)  # fmt: skip
