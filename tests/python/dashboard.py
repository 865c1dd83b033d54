"""The dashboard for Grafana in deploy/grafana, and those of its faults that can be found without
Grafana: in its structure, and in the names and kinds of the metrics in its queries."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "sluice.json"
WIDTH = 24  # of Grafana's grid
# The panels that Grafana 10 has without plug-ins, as far as the dashboard needs them.
PANELS = {"row", "stat", "timeseries", "bargauge", "table", "state-timeline"}
BUILT_IN = {"__rate_interval"}
# The number of a step says where a rank is, so it is shown and compared as it is.
NUMBERS = {"sluice_steps_total"}

METRIC = re.compile(r"(?:(\w+)\()?\b(sluice_\w+)(?:\{[^}]*\})?(\[)?")
VARIABLE = re.compile(r"\$\{?(\w+)")
LABEL = re.compile(r"\{\{(\w+)\}\}")

Dashboard = dict[str, Any]


@dataclass(frozen=True)
class Query:
    title: str  # of its panel
    expression: str
    labels: frozenset[str]  # that the legend names
    may_be_empty: bool  # the panel's description gives the reason


def panels(dashboard: Dashboard) -> list[Dashboard]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries(dashboard: Dashboard) -> Iterator[Query]:
    for panel in panels(dashboard):
        for target in panel["targets"]:
            yield Query(
                panel["title"],
                target["expr"],
                frozenset(LABEL.findall(target.get("legendFormat", ""))),
                panel["description"].startswith("Empty until "),
            )


def variables(dashboard: Dashboard) -> dict[str, tuple[str, str]]:
    """Maps a variable to the metric and the label whose values it has; without the data source."""
    found = {}
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            match = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert match is not None and variable["definition"] == match[0], variable["name"]
            found[variable["name"]] = (match[1], match[2])
    return found


def expressions(dashboard: Dashboard) -> list[str]:
    """Returns all that Prometheus is asked, for panels and for variables."""
    asked = [query.expression for query in queries(dashboard)]
    return asked + [metric for metric, _ in variables(dashboard).values()]


def faults_of_model(dashboard: Dashboard) -> list[str]:
    """Looks at what Grafana needs to import a dashboard and to show it."""
    faults = []
    if dashboard["id"] is not None or "__inputs" in dashboard or not dashboard["uid"]:
        faults.append("the dashboard belongs to one Grafana")
    ids = [panel["id"] for panel in dashboard["panels"]]
    if len(set(ids)) != len(ids):
        faults.append("two panels have one id")
    known = BUILT_IN | {variable["name"] for variable in dashboard["templating"]["list"]}
    for expression in expressions(dashboard):
        faults += [
            f"${name} is no variable: {expression}"
            for name in VARIABLE.findall(expression)
            if name not in known
        ]
    for panel in dashboard["panels"]:
        if panel["type"] not in PANELS:
            faults.append(f"'{panel['title']}' is a panel of a plug-in")
        box = panel["gridPos"]
        if box["x"] < 0 or box["x"] + box["w"] > WIDTH or box["w"] < 1 or box["h"] < 1:
            faults.append(f"'{panel['title']}' is not on the grid")
    for panel in panels(dashboard):
        sources = [panel["datasource"], *(target["datasource"] for target in panel["targets"])]
        if any(source != {"type": "prometheus", "uid": "${datasource}"} for source in sources):
            faults.append(f"'{panel['title']}' has a data source of its own")
        letters = [target["refId"] for target in panel["targets"]]
        if not letters or len(set(letters)) != len(letters) or not panel["description"]:
            faults.append(f"'{panel['title']}' lacks queries, their names or a description")
    for one, other in itertools.combinations(dashboard["panels"], 2):
        if _overlap(one["gridPos"], other["gridPos"]):
            faults.append(f"'{one['title']}' lies over '{other['title']}'")
    return faults


def _overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[at] < other[at] + other[size] and other[at] < one[at] + one[size]
        for at, size in (("x", "w"), ("y", "h"))
    )


def metrics_of(expressions: Iterable[str]) -> set[str]:
    return {found[2] for expression in expressions for found in METRIC.finditer(expression)}


def kinds_of(page: str) -> dict[str, str]:
    """Maps the metrics of a page to their kinds, as Prometheus reads them."""
    kinds = dict(re.findall(r"^# TYPE (sluice_\w+) (\w+)$", page, re.MULTILINE))
    for name, kind in list(kinds.items()):
        if kind in ("summary", "histogram"):
            kinds |= {f"{name}_sum": "counter", f"{name}_count": "counter"}
        if kind == "histogram":
            kinds[f"{name}_bucket"] = "bucket"
    return kinds


def faults_of_names(expression: str, kinds: dict[str, str]) -> list[str]:
    """Looks for metrics that the page does not have, and for functions that do not fit a kind."""
    faults = []
    for found in METRIC.finditer(expression):
        function, name, is_range = found[1], found[2], found[3] is not None
        kind = kinds.get(name)
        if kind is None:
            faults.append(f"no metric '{name}': {expression}")
        elif kind in ("counter", "bucket"):
            if name not in NUMBERS and not (is_range and function in ("rate", "increase")):
                faults.append(f"the counter '{name}' needs rate(): {expression}")
        elif function in ("rate", "increase") or "histogram_quantile(" in expression:
            faults.append(f"the {kind} '{name}' is no counter and no histogram: {expression}")
    return faults
