"""All rows of the analysis: Y. Ko et al., An In-Depth Analysis of Distributed Training of Deep
Neural Networks. Its numbers are those of study/paper.py. Tables II to IV and figure 1 are
trainings."""

from __future__ import annotations

from sluice_papers.reproduce import analysis_links, analysis_speed, plans, trainings
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier
from sluice_papers.reproduce.trainings import Trained
from sluice_papers.study import algorithms, figures, paper

_N = 24
# AR-SGD is wfbp, since the paper's overlaps with backward.
_ALL = algorithms.DEFAULT.replace("arsgd", "wfbp")
# 8 workers come first: there most pairs can be told apart. A run takes half a minute.
_STUDY = Part(
    "analysis-study",
    Tier.TRAIN,
    f"sluice study --algorithms {_ALL} --workers 8,24,4,16,1 --seeds 5,3,5,3,5 --tune 8,24 "
    "--epochs 6 --model small-mlp --data fashion-mnist --data-dir {data} -o {folder}",
    seconds=2 * 3600,
)
_LESS_SPARSE = Part(
    "million-less-sparse",
    Tier.TRAIN,
    trainings.MILLION + "--algorithms bsp,asp,ssp:3,ssp:10 --seeds 3 --epochs 1 --pace 20 "
    "--dgc-sparsity 0.99",
    seconds=24 * 100,
)


def _ahead(better: str, worse: str, workers: int = _N) -> plans.Measure:
    return trainings.ahead(Trained(_STUDY, better, workers), Trained(_STUDY, worse, workers))


def _points(better: str, worse: str) -> str:
    return f"{100 * (paper.TABLE_2[better] - paper.TABLE_2[worse]):.2f}"


def _points_at(workers: int, better: str, worse: str) -> str:
    row = paper.TABLE_3[workers]
    return f"{100 * (row[better] - row[worse]):.2f}"


def _dgc_adds(part: Part, name: str) -> plans.Measure:
    return trainings.ahead(Trained(part, name, 2, dgc=True), Trained(part, name, 2))


_THREE_EPOCHS = (
    ("99.8 % sparse", trainings.DGC_BSP),
    ("99.8 % sparse, no masking", trainings.DGC_BSP_UNMASKED),
)
_BSP_ALIKE = trainings.ahead(Trained(_STUDY, "bsp", 4), Trained(_STUDY, "bsp", 16))


_BIG = (
    "A small network on Fashion-MNIST stands for ResNet-50 on ImageNet, which is not here; "
    "processes on two cores stand for 24 GPUs."
)
_SIGNS = (
    "Order and sign can be compared, sizes cannot. Every algorithm has its own tuned rate; runs "
    "that end at chance level are left out."
)
ROWS = (
    *analysis_speed.BYTES,
    Row("analysis", "t2", "Final accuracy of seven algorithms, 24 workers", parts=(_STUDY,),
        claims=(
            *(Claim(f"BSP ahead of {algorithms.parse(name).title}", _ahead("bsp", name), least=0,
                    printed=_points("bsp", name), unit="points")
              for name in ("asp", "ssp:10", "easgd:8", "gosgd:0.01", "adpsgd")),
            Claim("AR-SGD and BSP are alike", _ahead("wfbp", "bsp"), least=-1, most=1,
                  printed="0.02", unit="points"),
            Claim("ASP ahead of SSP, s = 10", _ahead("asp", "ssp:10"), least=0,
                  printed=_points("asp", "ssp:10"), unit="points"),
            Claim("SSP, s = 10, ahead of EASGD, tau = 8", _ahead("ssp:10", "easgd:8"), least=0,
                  printed=_points("ssp:10", "easgd:8"), unit="points"),
        ),
        substitute=_BIG, honest=_SIGNS),
    Row("analysis", "t3", "Final accuracy by workers, s, tau and p", parts=(_STUDY,),
        claims=(
            *(Claim(f"{algorithms.parse(one).title} ahead of {algorithms.parse(other).title}, "
                    f"{workers} workers", _ahead(one, other, workers), least=0,
                    printed=_points_at(workers, one, other), unit="points")
              for workers in (4, 8, 16, 24) for one, other in paper.PAIRS if one != "bsp"),
            Claim("BSP with 4 workers ahead of BSP with 16", _BSP_ALIKE, least=-1, most=1,
                  printed="0.18", unit="points"),
            Claim("One worker alone", trainings.accuracy(Trained(_STUDY, "bsp", 1)), unit="%"),
        ),
        substitute=_BIG, honest=_SIGNS,
        draw=trainings.drawn(_STUDY, lambda found, _: figures.losses(found),
                             lambda found, _: figures.their_losses(found))),
    Row("analysis", "t4", "Final accuracy with deep gradient compression",
        parts=(_LESS_SPARSE, trainings.DGC_BSP, trainings.DGC_BSP_UNMASKED),
        claims=(
            *(Claim(f"{algorithms.parse(name).title} with DGC minus without, 99 % sparse",
                    _dgc_adds(_LESS_SPARSE, name), least=-1,
                    printed=f"{100 * (with_ - without):+.2f}", unit="points")
              for name, (without, with_) in paper.TABLE_4.items()),
            *(Claim(f"BSP with DGC minus without, {how}, three epochs",
                    _dgc_adds(part, "bsp"), least=-1, unit="points", is_ours=True)
              for how, part in _THREE_EPOCHS),
            *(Claim(f"Times that a worker of {algorithms.parse(name).title} sends a parameter",
                    trainings.updates(Trained(_LESS_SPARSE, name, 2, dgc=True)), least=20,
                    is_ours=True)
              for name in paper.TABLE_4),
        ),
        substitute="A perceptron of a million parameters on Fashion-MNIST stands for ResNet-50 on "
        "ImageNet. Two workers have more steps than 24 would. More of each gradient is sent than "
        "in the paper, so that each parameter is sent often enough in a training of minutes.",
        honest=_SIGNS),
    Row("analysis", "f1", "Error by epoch and by time", parts=(_STUDY,),
        claims=tuple(
            Claim(f"Time of BSP over {algorithms.parse(name).title} until 95 % of BSP's accuracy",
                  trainings.times_to(Trained(_STUDY, "bsp", _N), Trained(_STUDY, name, _N), 0.95),
                  least=1, printed="converges faster by time") for name in ("asp", "adpsgd")
        ),
        substitute=_BIG, honest=_SIGNS,
        draw=trainings.drawn(_STUDY, figures.by_epoch, figures.by_time)),
    *analysis_speed.SPEED,
    analysis_links.F3,
    analysis_links.F4,
)  # fmt: skip
