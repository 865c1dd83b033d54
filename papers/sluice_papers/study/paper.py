"""The numbers of "An In-Depth Analysis of Distributed Training of Deep Neural Networks" (Ko et
al.): ResNet-50 on ImageNet-1K, top-1 accuracy after 90 epochs. Its figures 1 to 4 are pictures
only; SAYS repeats the statements of its text about them."""

from __future__ import annotations

# Table II, 24 workers; s = 10, tau = 8, p = 0.01.
TABLE_2 = {
    "bsp": 0.7511,
    "asp": 0.7459,
    "ssp:10": 0.6448,
    "easgd:8": 0.4528,
    "arsgd": 0.7513,
    "gosgd:0.01": 0.3938,
    "adpsgd": 0.7411,
}
TABLE_2_WORKERS = 24

_TABLE_3_COLUMNS = ("bsp", "asp", "ssp:3", "ssp:10", "easgd:4", "easgd:8", "gosgd:1", "gosgd:0.1",
                    "gosgd:0.01", "adpsgd")  # fmt: skip
_TABLE_3_ROWS = {
    4: (0.7514, 0.7508, 0.7480, 0.7462, 0.7028, 0.7027, 0.7160, 0.6892, 0.6775, 0.7483),
    8: (0.7509, 0.7482, 0.7450, 0.7412, 0.6357, 0.6269, 0.6529, 0.6173, 0.5845, 0.7447),
    16: (0.7496, 0.7447, 0.7393, 0.7147, 0.5416, 0.5237, 0.5492, 0.5135, 0.4922, 0.7439),
    24: (0.7511, 0.7459, 0.7282, 0.6448, 0.4709, 0.4528, 0.4641, 0.4475, 0.3938, 0.7411),
}
TABLE_3 = {
    workers: dict(zip(_TABLE_3_COLUMNS, row, strict=True)) for workers, row in _TABLE_3_ROWS.items()
}

# Table IV, 24 workers: without and with DGC.
TABLE_4 = {
    "bsp": (0.7511, 0.7505),
    "asp": (0.7459, 0.7440),
    "ssp:3": (0.7282, 0.7295),
    "ssp:10": (0.6448, 0.6542),
}

# Pairs of algorithms, the one that is ahead in the paper first; so at all its numbers of workers.
PAIRS = (
    *(("bsp", name) for name in _TABLE_3_COLUMNS[1:]),
    ("asp", "ssp:3"),
    ("asp", "ssp:10"),
    ("ssp:3", "ssp:10"),
    ("ssp:3", "easgd:4"),
    ("ssp:10", "easgd:8"),
    ("easgd:4", "easgd:8"),
    ("adpsgd", "gosgd:1"),
    ("gosgd:1", "gosgd:0.1"),
    ("gosgd:0.1", "gosgd:0.01"),
)

SAYS = {
    1: "Theirs (24 workers, 56 Gbit/s): BSP and AR-SGD converge best by epoch; ASP and AD-PSGD "
    "are close by epoch and faster by time; SSP, EASGD and GoSGD are far behind in both. The "
    "curves themselves are not printed as numbers.",
    2: "Theirs (1 to 24 workers; EASGD and GoSGD left out): BSP and AR-SGD scale steadily and "
    "gain little from 56 instead of 10 Gbit/s; ASP and SSP gain much, and with 10 Gbit/s ASP is "
    "below BSP; AD-PSGD scales well. No numbers are printed.",
    3: "Theirs (BSP, ASP, SSP; 24 workers): with BSP more than half of the time is aggregation, "
    "up to 80 % of that waiting for other workers; with ASP and SSP communication is more than "
    "half of the time.",
    4: "Theirs (8 to 24 workers): sharding helps ASP and SSP more than BSP, wait-free backward "
    "helps little, DGC helps ASP and SSP most, above all with 10 Gbit/s. Here every "
    "algorithm with servers is sharded evenly. Wait-free backward is on with bsp only: asp and ssp "
    "send nothing before step(), and arsgd (allreduce) reduces once, after backward.",
}
