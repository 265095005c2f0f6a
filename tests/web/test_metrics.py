"""Figures for Prometheus: what is counted, and that examples and documents name nothing else."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from tests.web.conftest import Site, maintaining
from tests.web.projects import make_shop, run_sql
from viewkeeper.engine.report import BatchReport, StateChange
from viewkeeper.errors import SourceAwayError
from viewkeeper.web.project_metrics import make_registry

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "watching"
NAME = re.compile(r"\b(?:viewkeeper|process)_[a-z_]+\b")

Sample = tuple[str, tuple[tuple[str, str], ...]]


def samples_of(text: str) -> dict[Sample, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value_of(samples: dict[Sample, float], name: str, **labels: str) -> float | None:
    return samples.get((name, tuple(sorted(labels.items()))))


def wait_until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def known_names(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Every name of a sample that a running maintainer gives."""
    folder = make_shop(tmp_path_factory.mktemp("metrics") / "shop")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        run_sql(folder / "shop.db", "UPDATE item SET cents = cents + 1")
        wait_until(lambda: "viewkeeper_view_asked_rows{" in site.ask("/metrics").body)
        found = site.ask("/metrics")
    assert found.headers["content-type"].startswith("text/plain; version=")
    return {name for name, _ in samples_of(found.body)}


def count_batches(site: Site) -> float:
    return value_of(samples_of(site.ask("/metrics").body), "viewkeeper_transactions_total") or 0.0


def test_events_are_counted() -> None:
    registry, metrics = make_registry(lambda: None, "1")
    report = BatchReport(
        *(1, "spark", ("lines", "totals"), 2, 3, 5, {"crm": 4}, 1, 0.3, 0.5),
        ts=9,
        phases={"read": 0.1, "sweep": 0.15},
        view_rows={"lines": 3, "totals": 2},
        source_changes={"shop": 3},
        view_lookups={"lines": 4},
    )
    metrics.on_batch_commit(report)
    metrics.on_batch_commit(report)
    metrics.on_trouble(SourceAwayError("crm", "gone"))
    metrics.on_load_end("lines", 3, 1.0)
    metrics.on_schema_change("lines", "follows")
    metrics.on_state_change(StateChange("source_away", "gone", source="crm"))
    get = registry.get_sample_value
    assert get("viewkeeper_batches_total", {"where": "spark"}) == 2
    assert get("viewkeeper_transactions_total") == 4
    assert get("viewkeeper_changes_total", {"source": "shop"}) == 6
    assert get("viewkeeper_rows_written_total", {"view": "totals"}) == 4
    assert get("viewkeeper_lookups_total", {"source": "crm"}) == 8
    assert get("viewkeeper_view_lookups_total", {"view": "lines"}) == 8
    assert get("viewkeeper_view_lookups_total", {"view": "totals"}) == 0
    assert get("viewkeeper_errors_total", {"kind": "SourceAwayError"}) == 1
    assert get("viewkeeper_loads_total", {"view": "lines"}) == 1
    assert get("viewkeeper_schema_changes_total", {"view": "lines"}) == 1
    assert get("viewkeeper_state_changes_total", {"kind": "source_away"}) == 1
    assert get("viewkeeper_freshness_seconds_count", {"view": "lines"}) == 2
    assert get("viewkeeper_freshness_seconds_bucket", {"view": "lines", "le": "0.25"}) == 0
    assert get("viewkeeper_freshness_seconds_bucket", {"view": "lines", "le": "0.5"}) == 2
    assert get("viewkeeper_batch_phase_seconds_total", {"phase": "sweep"}) == pytest.approx(0.3)
    assert get("viewkeeper_batch_seconds_sum", {"where": "spark"}) == pytest.approx(0.6)


def test_the_status_is_shown_as_gauges(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_shop(tmp_path / "shop")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        before = count_batches(site)
        run_sql(folder / "shop.db", "INSERT INTO item VALUES (4, 2, 5)")
        wait_until(lambda: count_batches(site) > before)
        wait_until(
            lambda: (
                value_of(
                    samples_of(site.ask("/metrics").body), "viewkeeper_view_rows", view="items"
                )
                == 4.0
            )
        )
        found = samples_of(site.ask("/metrics").body)
    assert value_of(found, "viewkeeper_view_up", view="lines") == 1.0
    assert value_of(found, "viewkeeper_source_up", source="crm", kind="sqlite") == 1.0
    assert value_of(found, "viewkeeper_source_lag_changes", source="crm") == 0.0
    assert (value_of(found, "viewkeeper_view_state_bytes", view="totals") or 0.0) > 0.0
    assert (value_of(found, "viewkeeper_changes_total", source="shop") or 0.0) >= 1.0
    assert (value_of(found, "process_resident_memory_bytes") or 0.0) > 1e6
    assert value_of(found, "viewkeeper_info", version="0.2.0") == 1.0


def test_a_source_that_is_away_is_down(spark: SparkSession, tmp_path: Path) -> None:
    folder = make_shop(tmp_path / "shop")
    with maintaining(folder, spark) as site:
        wait_until(lambda: site.ask("/readyz").status == 200)
        (folder / "crm.db").rename(folder / "gone.db")

        def is_down() -> bool:
            found = samples_of(site.ask("/metrics").body)
            return value_of(found, "viewkeeper_source_up", source="crm", kind="sqlite") == 0.0

        wait_until(is_down)
        assert site.ask("/healthz").body == "ok\n"
        (folder / "gone.db").rename(folder / "crm.db")


def every_name() -> set[str]:
    """All names that any maintainer can give, with the endings that Prometheus knows."""
    registry, metrics = make_registry(lambda: None, "1")
    metrics.on_batch_commit(
        BatchReport(
            *(1, "inline", ("v",), 1, 1, 1, {"s": 1}, 1, 0.1, 0.1),
            phases={"read": 0.1},
            view_rows={"v": 1},
            source_changes={"s": 1},
        )
    )
    metrics.on_trouble(SourceAwayError("s", "gone"))
    metrics.on_load_end("v", 1, 0.1)
    metrics.on_schema_change("v", "w")
    metrics.on_state_change(StateChange("source_away", "gone", source="s"))
    return {sample.name for family in registry.collect() for sample in family.samples}


def test_the_dashboard_names_metrics_that_exist(known_names: set[str]) -> None:
    dashboard = json.loads((EXAMPLES / "grafana-dashboard.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [each["query"]["query"] for each in dashboard["templating"]["list"][1:]]
    named = {name for text in asked for name in NAME.findall(text)}
    assert len(named) >= 15
    assert named <= known_names | every_name()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))


def test_the_alerts_name_metrics_that_exist(known_names: set[str]) -> None:
    rules = yaml.safe_load((EXAMPLES / "prometheus-alerts.yml").read_text())
    found = [rule for group in rules["groups"] for rule in group["rules"]]
    assert all({"alert", "expr", "labels", "annotations"} <= rule.keys() for rule in found)
    named = {name for rule in found for name in NAME.findall(rule["expr"])}
    assert len(named) >= 6
    assert named <= known_names | every_name()
    kinds = set(
        re.findall(
            r'kind="([a-z_]+)"', json.dumps([rule["expr"] for rule in found]).replace('\\"', '"')
        )
    )
    assert kinds <= {"retention_danger", "change_proposed"}
    scrape = yaml.safe_load((EXAMPLES / "prometheus.yml").read_text())
    assert scrape["scrape_configs"][0]["static_configs"][0]["targets"] == ["127.0.0.1:8484"]


def test_the_page_on_watching_lists_every_metric(known_names: set[str]) -> None:
    text = (ROOT / "docs" / "watching.md").read_text()
    listed = set(re.findall(r"`(viewkeeper_[a-z_]+)`", text))
    plain = {
        re.sub(r"_(bucket|sum|count|created)$", "", name)
        for name in known_names | every_name()
        if name.startswith("viewkeeper_")
    }
    plain = {name for name in plain if f"{name}_total" not in plain}
    assert listed == plain
