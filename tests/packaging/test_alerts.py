"""The rules for Prometheus: each number they name is there, and promtool takes the file."""

from __future__ import annotations

import re
import ssl
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from forewarn.endpoint.metrics import EndpointMetrics
from forewarn.endpoint.service import Counters
from forewarn.wiring import host_metrics
from programs import program
from support.link_world import control_running, run

ROOT = Path(__file__).parent.parent.parent
RULES = ROOT / "packaging" / "prometheus" / "forewarn.rules.yml"
LIMIT_S = 60
# What a control may have beside what every one has. Nothing answers where the issuer would be.
EVERYTHING = """
operator_tls = "own"
[[oidc]]
issuer = "http://127.0.0.1:9"
audience = "forewarn"
roles = { "ops" = "operator" }
"""
METRIC = re.compile(r"\bforewarn_\w+")
SELECTED = re.compile(r'\b(forewarn_\w+)\{(\w+)(=~|!=|=)"([^"]*)"\}')


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def shown_by_control(folder: Path) -> dict[str, set[tuple[tuple[str, str], ...]]]:
    """Every number of a control that has just started, with the labels that it has."""

    async def story() -> str:
        async with control_running(folder, written=EVERYTHING) as world:
            await world.joined("h1")
            trusted = ssl.create_default_context(cafile=world.where.operator_authority)
            return (await world.operator("GET", "/metrics", trusted=trusted)).text

    found: dict[str, set[tuple[tuple[str, str], ...]]] = {}
    for family in text_string_to_metric_families(run(story)):
        for sample in family.samples:
            found.setdefault(sample.name, set()).add(tuple(sample.labels.items()))
    return found


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return shown_by_control(tmp_path_factory.mktemp("control"))


def of_hosts() -> set[str]:
    """The names of the numbers of a host daemon; those that only grow end with _total."""
    text = Path(host_metrics.__file__).read_text(encoding="utf-8")
    names = set(METRIC.findall(text))
    endpoint = {s.name for f in EndpointMetrics(Counters()).collect() for s in f.samples}
    return names | {f"{name}_total" for name in names} | endpoint


def test_each_number_that_a_rule_names_is_there(control: Any) -> None:
    there = set(control) | of_hosts()
    named = {name for rule in rules() for name in METRIC.findall(rule["expr"])}
    assert len(named) > 20
    assert named - there == set()


def test_each_value_of_a_label_that_a_rule_selects_is_there_from_the_start(control: Any) -> None:
    selected = [found for rule in rules() for found in SELECTED.findall(rule["expr"])]
    assert len(selected) > 5
    for name, label, how, value in selected:
        values = {dict(labels)[label] for labels in control[name]}
        wanted = value.split("|") if how == "=~" else [value]
        assert set(wanted) <= values, name


def test_each_rule_says_how_urgent_it_is_and_what_it_means_and_no_name_comes_twice() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")


def test_the_states_that_operators_asked_for_can_be_alerted_on(control: Any) -> None:
    for name in (
        "forewarn_scopes_held",
        "forewarn_events_overdue",
        "forewarn_vms_without_host",
        "forewarn_hosts",
        "forewarn_agents_silent",
        "forewarn_operations_ended_total",
        "forewarn_started_unread_total",
        "forewarn_free_places",
        "forewarn_certificate_expiry_timestamp_seconds",
        "forewarn_last_backup_timestamp_seconds",
        "forewarn_database_bytes",
        "forewarn_link_hosts",
    ):
        assert name in control
        assert any(re.search(rf"\b{name}\b", rule["expr"]) for rule in rules()), name


def test_promtool_takes_the_rules() -> None:
    promtool = program("promtool")
    done = subprocess.run(
        [promtool, "check", "rules", str(RULES)],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
