"""Asks what Grafana's dashboard asks: a real Prometheus reads a real job of two ranks. Also without
Prometheus, every metric in the dashboard and the alerts must be on the page of a rank."""

from __future__ import annotations

import json
import math
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from dashboard import (
    DASHBOARD,
    DEPLOY,
    Dashboard,
    expressions,
    faults_of_model,
    faults_of_names,
    kinds_of,
    metrics_of,
    panels,
    queries,
    variables,
)
from prometheus import PROGRAM, Prometheus, prometheus_of, wait_until
from ranks import free_port, running

TRAINING = """
import time, torch
from training import batches, make_net
import sluice
torch.set_num_threads(1)
model, optimizer = sluice.distribute(make_net(), lambda ps: torch.optim.SGD(ps, lr=0.05))
while True:
    for x, y in batches(100):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        time.sleep(0.005)  # leaves time to Prometheus on a machine with two cores
"""
ALERTS = re.findall(r"expr: (.*)", (DEPLOY / "prometheus" / "alerts.yml").read_text())


@dataclass
class Job:
    processes: list[subprocess.Popen[str]]
    ports: list[int]

    def page(self, rank: int) -> str:
        """Returns what a rank exports; nothing before it trains."""
        try:
            url = f"http://127.0.0.1:{self.ports[rank]}/metrics"
            with urllib.request.urlopen(url, timeout=10) as answer:
                return str(answer.read().decode())
        except OSError:
            code = self.processes[rank].poll()
            assert code is None, f"rank {rank} has ended with {code}"
            return ""


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    first = free_port()
    with running(TRAINING, 2, SLUICE_METRICS_PORT=str(first)) as processes:
        job = Job(processes, [first, first + 1])
        steps = re.compile(r'^sluice_steps_total\{session="Net.*\} [1-9]', re.MULTILINE)
        wait_until(lambda: all(steps.search(job.page(rank)) for rank in range(2)), "both train")
        yield job


@pytest.fixture(scope="module")
def prometheus(job: Job, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    if PROGRAM is None:
        pytest.skip("no Prometheus; scripts/install_deps.sh installs it")
    with prometheus_of(job.ports, tmp_path_factory.mktemp("prometheus")) as prometheus:
        enough = "count(count_over_time(sluice_steps_total{session!='words'}[1m]) > 4) == 2"
        wait_until(lambda: bool(prometheus.ask(enough)), "both ranks were read five times")
        yield prometheus


def read() -> Dashboard:
    dashboard: Dashboard = json.loads(DASHBOARD.read_text())
    return dashboard


def renamed(metric: str) -> Dashboard:
    """Returns a copy of the dashboard that asks for a metric which there is not."""
    text = re.sub(rf"\b{metric}\b", f"{metric}_x", DASHBOARD.read_text())
    dashboard: Dashboard = json.loads(text)
    return dashboard


def choices(prometheus: Prometheus, dashboard: Dashboard) -> dict[str, str]:
    """Returns the values that Grafana would put in for each variable if all were chosen."""
    chosen = {"__rate_interval": "1m"}
    for name, (metric, label) in variables(dashboard).items():
        values = prometheus.label_values(filled(metric, chosen), label)
        chosen[name] = "|".join(values)
    return chosen


def filled(expression: str, chosen: dict[str, str]) -> str:
    for name, value in chosen.items():
        expression = re.sub(rf"\${name}\b", lambda _, v=value: v, expression)
    return expression


def faults_of_answers(
    prometheus: Prometheus, dashboard: Dashboard, chosen: dict[str, str]
) -> dict[str, str]:
    """Asks everything, and returns the first fault of each panel."""
    faults: dict[str, str] = {}
    for query in queries(dashboard):
        try:
            answer = prometheus.ask(filled(query.expression, chosen))
        except ValueError as error:
            faults.setdefault(query.title, f"refused: {error}")
            continue
        if bool(answer) == query.may_be_empty:
            state = "empty" if query.may_be_empty else "not empty"
            faults.setdefault(query.title, f"should be {state}: {query.expression}")
        for series in answer:
            if not math.isfinite(float(series["value"][1])):
                faults.setdefault(query.title, f"no number: {series}")
            if missing := query.labels - series["metric"].keys():
                faults.setdefault(query.title, f"no labels {sorted(missing)}: {series}")
    return faults


def test_the_dashboard_can_be_imported() -> None:
    assert faults_of_model(read()) == []


def test_faults_of_the_structure_are_found() -> None:
    foreign = {"type": "prometheus", "uid": "P1"}
    query = {"datasource": {"type": "prometheus", "uid": "${datasource}"}, "refId": "A"}
    for change, fault in (
        ({"id": 1}, "two panels have one id"),
        ({"gridPos": {"x": 0, "y": 1, "w": 4, "h": 4}}, "lies over"),
        ({"gridPos": {"x": 0, "y": 999, "w": 25, "h": 4}}, "not on the grid"),
        ({"type": "flant-statusmap-panel"}, "panel of a plug-in"),
        ({"datasource": foreign}, "data source of its own"),
        ({"targets": [{**query, "datasource": foreign, "expr": "up"}]}, "data source of its own"),
        ({"targets": [{**query, "expr": 'up{job="$jobs"}'}]}, "$jobs is no variable"),
        ({"targets": []}, "lacks queries"),
    ):
        dashboard = read()
        panels(dashboard)[-1].update(change)
        faults = faults_of_model(dashboard)
        assert len(faults) == 1 and fault in faults[0], (change, faults)
    assert faults_of_model({**read(), "id": 7}) == ["the dashboard belongs to one Grafana"]


def test_every_metric_is_exported_and_used_as_its_kind_allows(job: Job) -> None:
    for rank in range(2):
        kinds = kinds_of(job.page(rank))
        asked = expressions(read()) + ALERTS
        assert [fault for each in asked for fault in faults_of_names(each, kinds)] == []
        shown = {re.sub("_(sum|count)$", "", name) for name in metrics_of(expressions(read()))}
        exported = {name for name in kinds if not name.endswith(("_sum", "_count"))}
        assert shown == exported, "a metric has no panel"


def test_a_wrong_name_or_kind_is_found(job: Job) -> None:
    kinds = kinds_of(job.page(0))
    for metric in metrics_of(expressions(read())):
        faults = [
            fault for each in expressions(renamed(metric)) for fault in faults_of_names(each, kinds)
        ]
        assert faults and all(f"no metric '{metric}_x'" in fault for fault in faults)
    for expression, fault in {
        "sluice_sent_bytes_total": "needs rate()",
        "delta(sluice_sent_bytes_total[1m])": "needs rate()",
        "rate(sluice_queued_bytes{rank='0'}[1m])": "no counter",
        "histogram_quantile(0.9, sluice_inversion_seconds)": "no histogram",
    }.items():
        assert [fault in found for found in faults_of_names(expression, kinds)] == [True]


def test_prometheus_answers_every_query(prometheus: Prometheus) -> None:
    dashboard = read()
    chosen = choices(prometheus, dashboard)
    session = chosen.pop("session")
    assert re.fullmatch(r"Net-\d+\.\d+", session)
    assert chosen == {"__rate_interval": "1m", "job": "training", "rank": "0|1"}
    assert faults_of_answers(prometheus, dashboard, {**chosen, "session": session}) == {}
    assert sum(query.may_be_empty for query in queries(dashboard)) == 2


def test_prometheus_finds_a_renamed_metric(prometheus: Prometheus) -> None:
    chosen = choices(prometheus, read())
    asking = [query for query in queries(read()) if not query.may_be_empty]
    # The dropped messages have no result in a healthy job, whatever their name.
    for metric in metrics_of(expressions(read())) - {"sluice_dropped_messages_total"}:
        faults = faults_of_answers(prometheus, renamed(metric), chosen)
        panels = {query.title for query in asking if metric in metrics_of([query.expression])}
        assert panels and faults.keys() == panels, metric


def test_no_alert_is_raised_before_a_rank_is_killed(job: Job, prometheus: Prometheus) -> None:
    def evaluated() -> bool:
        return all(rule["health"] != "unknown" for rule in prometheus.alerts().values())

    wait_until(evaluated, "Prometheus has looked at the alerts")
    alerts = prometheus.alerts()
    assert len(alerts) == len(ALERTS)
    assert {rule["health"] for rule in alerts.values()} == {"ok"}
    assert {name for name, rule in alerts.items() if rule["state"] != "inactive"} == set()
    job.processes[1].kill()
    wait_until(
        lambda: prometheus.alerts()["SluiceRankOutOfReach"]["state"] == "pending",
        "the killed rank is missed",
    )
