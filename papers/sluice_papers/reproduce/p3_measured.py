"""P3, figures 7 to 15: replays in a lab."""

from __future__ import annotations

import math

from sluice_papers.reproduce import p3_trained, plans, replays
from sluice_papers.reproduce.kept import Kept
from sluice_papers.reproduce.pictures import link_use, series
from sluice_papers.reproduce.replays import Of
from sluice_papers.reproduce.rows import Claim, Part, Row, Tier

_REPLAY = "--workers 4 --runs 3 --iterations 3 --lab --encrypt off --json {out}"
_RATIO = (
    "Lab hosts replay computing, and links are slower by as much as computing is. The axis is the "
    "ratio of wire to compute time, labelled with the paper's Gbit/s: its text says where P3 on "
    "ResNet-50 stops to be linear, which is here where wire and compute time are equal. Other "
    "models are taken to have the same batch."
)
_RATIO_IS_FAIR = (
    "Bytes, messages, sums and waiting are real, and only their ratio to computing decides who is "
    "faster. Absolute images per second and the cost of a server's update on their machines cannot "
    "be shown."
)

# ---- figure 7: throughput by bandwidth -----------------------------------------------------------


def _sweep(profile: str, ratios: str, seconds: float, more: str = "", name: str = "") -> Part:
    return Part(
        f"p3-f7-{profile}{name}",
        Tier.LAB,
        f"sluice bench sweep --profile {profile} --ratios {ratios} "
        f"--algorithms kvstore,slicing,p3,sluice {more}{_REPLAY}",
        seconds=seconds,
    )


# The ratio of a model at 1 Gbit/s of the paper: 4 for ResNet-50 (see _RATIO), for others in
# proportion to bytes over multiply-adds (4.1, 5.7 and 19.6 billion an image).
_AT_1_GBIT = {"resnet50": 4.0, "inceptionv3": 2.7, "vgg19": 4.7}
# An eighth of a model takes little of the machine, so links are four times as fast as usual, and
# iterations with ratios below one do not take minutes.
_FASTER = {"vgg19": "--rate 9200mbit ", "sockeye": "--rate 4800mbit "}
_F7 = {
    "resnet50": _sweep("resnet50", "0.5,0.67,1,2,4", 620),
    "inceptionv3": _sweep("inceptionv3", "0.45,0.67,1.35,2.7", 480),
    "vgg19": _sweep("vgg19", "0.157,0.313,1,2", 760, f"--shrink 8 {_FASTER['vgg19']}"),
    "sockeye": _sweep("sockeye", "0.5,0.75,1,1.5,2", 480, f"--shrink 8 {_FASTER['sockeye']}"),
}
_VGG19 = Part(
    "p3-f7-vgg19-whole",
    Tier.LAB,
    "sluice bench replay --profile vgg19 --ratio 1 --algorithms kvstore,slicing,p3 " + _REPLAY,
    seconds=320,
)
_PARTS = Part(
    "p3-f7-vgg19-parts",
    Tier.LAB,
    "sluice bench replay --profile vgg19 --ratio 1 --algorithms kvstore,kvstore-parts " + _REPLAY,
    seconds=220,
)
_SOCKEYE = Part(
    "p3-f7-sockeye-whole",
    Tier.LAB,
    "sluice bench replay --profile sockeye --ratio 1 --algorithms kvstore,slicing,p3 " + _REPLAY,
    seconds=240,
)
# Servers that update as fast as their link brings gradients.
_UPDATES = {
    profile: _sweep(
        profile, ratios, seconds, f"--shrink 8 {_FASTER[profile]}--update-rate {rate} ", "-update"
    )
    for profile, ratios, rate, seconds in (
        ("vgg19", "0.157,0.313,1", "1150MB/s", 700),
        ("sockeye", "0.5,1,2", "600MB/s", 300),
    )
}


def _draw_f7(kept: Kept) -> list[str]:
    drawn = []
    for profile, part in _F7.items():
        anchor = _AT_1_GBIT.get(profile)
        if anchor is None:
            drawn += series(kept, part, profile, "ratio", "wire time / compute time")
        else:
            drawn += series(
                kept,
                part,
                profile,
                "ratio",
                "Gbit/s of the paper with this ratio of wire to compute time",
                lambda ratio, anchor=anchor: anchor / ratio,  # type: ignore[misc]
            )
    for profile, part in _UPDATES.items():
        title = f"{profile}, servers' updates cost time"
        drawn += series(kept, part, title, "ratio", "wire time / compute time")
    return drawn


def _at(part: Part, slow: str, fast: str, ratio: float) -> plans.Measure:
    where = {"ratio": ratio}
    return replays.speedup(Of(part, slow, where), Of(part, fast, where))


# Where the network is hidden, iterations of all algorithms differ by millionths.
_SEEN = 1.05
_F7_CLAIMS = (
    Claim("P3 over the baseline, ResNet-50 at 4 Gbit/s", _at(_F7["resnet50"], "kvstore", "p3", 1),
          least=1, printed="1.26"),
    Claim("P3 keeps the linear throughput at 6 Gbit/s, ResNet-50",
          replays.linear_share(Of(_F7["resnet50"], "p3", {"ratio": 0.67})), least=0.95,
          printed="linear until 4 Gbit/s"),
    Claim("Slicing alone does not help ResNet-50",
          _at(_F7["resnet50"], "kvstore", "slicing", 1), most=1.1, printed="no benefit"),
    Claim("P3 over the baseline, InceptionV3, best",
          replays.best_speedup(_F7["inceptionv3"], "kvstore", "p3"), least=1, printed="1.18"),
    Claim("P3 over the baseline, VGG-19, ratio 1",
          replays.speedup(Of(_VGG19, "kvstore"), Of(_VGG19, "p3")), least=1,
          printed="1.66 at best"),
    Claim("Slicing over the baseline, VGG-19, ratio 1",
          replays.speedup(Of(_VGG19, "kvstore"), Of(_VGG19, "slicing")), least=1,
          printed="1.49 at 30 Gbit/s"),
    Claim("A baseline that pulls each part at its notice over the paper's, VGG-19, ratio 1",
          replays.speedup(Of(_PARTS, "kvstore"), Of(_PARTS, "kvstore-parts")),
          printed="not in the paper"),
    Claim("P3 over the baseline, VGG-19 at 15 Gbit/s", _at(_F7["vgg19"], "kvstore", "p3", 0.313),
          least=_SEEN, printed="1.66"),
    Claim("Slicing over the baseline, VGG-19 at 30 Gbit/s",
          _at(_F7["vgg19"], "kvstore", "slicing", 0.157), least=_SEEN, printed="1.49"),
    Claim("P3 over the baseline, VGG-19 at 15 Gbit/s, updates cost time",
          _at(_UPDATES["vgg19"], "kvstore", "p3", 0.313), least=_SEEN, printed="1.66"),
    Claim("Slicing over the baseline, VGG-19 at 30 Gbit/s, updates cost time",
          _at(_UPDATES["vgg19"], "kvstore", "slicing", 0.157), least=_SEEN, printed="1.49"),
    Claim("P3 over the baseline, Sockeye, ratio 1",
          replays.speedup(Of(_SOCKEYE, "kvstore"), Of(_SOCKEYE, "p3")), least=1,
          printed="1.38 at best"),
    Claim("P3 over the baseline, Sockeye, best, updates cost time",
          replays.best_speedup(_UPDATES["sockeye"], "kvstore", "p3"), least=1, printed="1.38"),
)  # fmt: skip

# ---- figures 8, 9, 13: the use of a link ---------------------------------------------------------

_LINK = {
    profile: Part(
        f"p3-f8-{profile}",
        Tier.LAB,
        f"sluice bench replay --profile {profile} --algorithms kvstore,p3 --ratio 1 --workers 4 "
        "--runs 1 --iterations 5 --lab --encrypt off --utilisation --json {out}",
        seconds=seconds,
    )
    for profile, seconds in (("resnet50", 40.0), ("vgg19", 110.0), ("sockeye", 80.0))
}
_DDP = Part(
    "p3-f13",
    Tier.LAB,
    "python -m sluice_papers.reproduce.ddp_link --profile resnet50 --ratio 1 --workers 4 "
    "--rate 1200mbit --iterations 5 --json {out}",
    seconds=60,
)


def _less_idle(profile: str) -> plans.Measure:
    part = _LINK[profile]
    return replays.difference(
        replays.idle_share(Of(part, "kvstore")), replays.idle_share(Of(part, "p3"))
    )


def _more_both_ways(profile: str) -> plans.Measure:
    part = _LINK[profile]
    return replays.difference(
        replays.both_ways_share(Of(part, "p3")), replays.both_ways_share(Of(part, "kvstore"))
    )


def _draw_links(kept: Kept, algorithm: str) -> list[str]:
    return [one for part in _LINK.values() for one in link_use(kept, part, [algorithm])]


# ---- figures 10 and 12: machines and slices ------------------------------------------------------

_RATIOS_OF_F10 = {"resnet50": 0.4, "vgg19": 0.47, "sockeye": 0.5}
_SCALE = {
    profile: Part(
        f"p3-f10-{profile}",
        Tier.LAB,
        f"sluice bench scale --profile {profile} --workers 2,4,8,16 --ratio {ratio} --shrink 8 "
        "--algorithms kvstore,p3,sluice --runs 3 --iterations 3 --lab --encrypt off --json {out}",
        seconds=600,
    )
    for profile, ratio in _RATIOS_OF_F10.items()
}
_SIMULATED = {
    profile: Part(
        f"p3-f10-{profile}-sim",
        Tier.SIM,
        f"sluice simulate --profile {profile} --hosts 2,4,8,16 --rate 10gbit --ratio {ratio} "
        "--algorithms kvstore,p3,sluice --cpu free --seeds 3 --json {out}",
        seconds=120,
    )
    for profile, ratio in _RATIOS_OF_F10.items()
}
_SLICES = {
    profile: Part(
        f"p3-f12-{profile}",
        Tier.LAB,
        f"sluice bench slices --profile {profile} --ratio 1 --algorithms p3 "
        "--sizes 2000,5000,10000,50000,250000,1000000 " + _REPLAY,
        seconds=seconds,
    )
    for profile, seconds in (("resnet50", 200.0), ("vgg19", 560.0))
}


def _of_size(profile: str, size: int) -> Of:
    return Of(_SLICES[profile], "p3", {"slice_elements": size})


def _scaled(part: Part) -> plans.Measure:
    where = {"workers": 8}
    return replays.speedup(Of(part, "kvstore", where), Of(part, "p3", where))


def _claims_of_f10(parts: dict[str, Part], place: str) -> tuple[Claim, ...]:
    return (
        Claim(f"P3 over the baseline, VGG-19, 8 machines, {place}", _scaled(parts["vgg19"]),
              least=1, printed="1.61"),
        Claim(f"P3 over the baseline, Sockeye, 8 machines, {place}", _scaled(parts["sockeye"]),
              least=1, printed="1.18"),
        Claim(f"P3 and the baseline are alike, ResNet-50, 8 machines, {place}",
              _scaled(parts["resnet50"]), least=0.9, most=1.1, printed="similar performance"),
    )  # fmt: skip


def _draw_f10(kept: Kept) -> list[str]:
    places = ((_SCALE, ""), (_SIMULATED, ", simulated"))
    return [
        one
        for parts, place in places
        for profile, part in parts.items()
        for one in series(kept, part, profile + place, "workers", "machines")
    ]


ROWS = (
    Row("p3", "f7", "Throughput by bandwidth, four machines, four models",
        parts=(*_F7.values(), _VGG19, _PARTS, _SOCKEYE, *_UPDATES.values()), claims=_F7_CLAIMS,
        substitute=_RATIO + " By their multiply-adds, VGG-19's wire time at 15 and 30 Gbit/s is a "
        "third and a sixth of its compute time, and every algorithm hides it. The paper's gains "
        "there mean a ratio nearer to 1, at which other claims are measured.",
        honest=_RATIO_IS_FAIR, draw=_draw_f7),
    Row(
        "p3", "f8", "Use of one machine's link with the baseline",
        parts=tuple(_LINK.values()),
        claims=tuple(
            Claim(f"The link is idle with the baseline, {profile}",
                  replays.idle_share(Of(part, "kvstore")), least=0.05,
                  printed="idle time is extremely dominant" if profile != "resnet50" else "bursty")
            for profile, part in _LINK.items()
        ),
        substitute=_RATIO + " The lab counts the first host's bytes every 10 ms, as bwm-ng does.",
        honest=_RATIO_IS_FAIR,
        draw=lambda kept: _draw_links(kept, "kvstore"),
    ),
    Row(
        "p3", "f9", "Use of one machine's link with P3",
        parts=tuple(_LINK.values()),
        claims=(
            *(Claim(f"The link is less idle with P3, {profile}", _less_idle(profile), least=0,
                    printed="idle time is reduced") for profile in ("resnet50", "vgg19")),
            Claim("The link carries both ways at once for longer with P3, Sockeye",
                  _more_both_ways("sockeye"), least=0, printed="more effective both ways"),
        ),
        substitute="As for figure 8.", honest=_RATIO_IS_FAIR,
        draw=lambda kept: _draw_links(kept, "p3"),
    ),
    Row(
        "p3", "f10", "Throughput by the number of machines, 10 Gbit/s",
        parts=(*_SCALE.values(), *_SIMULATED.values()),
        claims=(*_claims_of_f10(_SCALE, "lab"), *_claims_of_f10(_SIMULATED, "simulated")),
        substitute=_RATIO + " Tensors, slices and credit are an eighth in the lab, so that many "
        "hosts fit. The simulated hosts take no time for their own work.",
        honest=_RATIO_IS_FAIR,
        draw=_draw_f10,
    ),
    p3_trained.F11,
    Row(
        "p3", "f12", "Throughput by the size of slices",
        parts=tuple(_SLICES.values()),
        claims=tuple(
            Claim(f"Slices of {size:,} parameters are slower than of 50,000, {profile}",
                  replays.speedup(_of_size(profile, size), _of_size(profile, 50_000)), least=1,
                  printed="peak at 50,000")
            for profile in _SLICES for size in (2_000, 1_000_000)
        ),
        substitute=_RATIO, honest=_RATIO_IS_FAIR,
        draw=lambda kept: [
            one for profile, part in _SLICES.items()
            for one in series(kept, part, profile, "slice_elements",
                              "log10 of parameters in a slice", math.log10)
        ],
    ),
    Row(
        "p3", "f13", "Use of a link by TensorFlow, ResNet-50 at 4 Gbit/s",
        parts=(_DDP,),
        claims=(
            Claim("The link is idle with PyTorch's DDP", replays.idle_share(Of(_DDP, "ddp")),
                  least=0.05, printed="utilises the network poorly"),
        ),
        substitute="PyTorch's DDP on Gloo, with the same replayed layers and the same sampler.",
        honest="It is another baseline than TensorFlow of 2018, which does not run here. It shows "
        "the link of a framework of today.",
        draw=lambda kept: link_use(kept, _DDP, ["ddp"]),
    ),
    Row("p3", "f14", "Use of a link by Poseidon, InceptionV3 at 1 Gbit/s",
        reason="Poseidon is a fork of Caffe for GPUs of its time, and cannot run on this machine"),
    p3_trained.F15,
)  # fmt: skip
