"""What only a control with hosts knows: certificates, versions of the link; facts in its log."""

from __future__ import annotations

import json
import threading
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from forewarn.api.link.metrics import VERSIONS, compared
from forewarn.control.journal_log import JournalLog
from forewarn.core.model import Fact, FactKind
from forewarn.ports import Change
from forewarn.wire import link as wire
from support.journal import lines_of
from support.link_world import ControlWorld, control_running, run

DAY_S = 86_400


async def numbers(world: ControlWorld, name: str) -> dict[str, float]:
    text = (await world.operator("GET", "/metrics")).text
    return {
        ",".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


def test_it_shows_when_certificates_expire_and_how_large_the_database_is(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            before = await numbers(world, "forewarn_certificate_expiry_timestamp_seconds")
            now_s = world.service.parts.clock.now_ms() / 1_000
            assert before["host"] == 0
            assert before["server"] > now_s + 300 * DAY_S
            assert before["authority"] > now_s + 10 * 365 * DAY_S
            await world.joined("h1")
            after = await numbers(world, "forewarn_certificate_expiry_timestamp_seconds")
            assert after["host"] > now_s + 300 * DAY_S
            size = await numbers(world, "forewarn_database_bytes")
            assert size["database"] > 0
            assert set(size) == {"database", "wal"}

    run(story)


def test_hosts_are_counted_by_the_version_of_the_link_that_they_speak(tmp_path: Path) -> None:
    async def story() -> None:
        async with control_running(tmp_path) as world:
            assert await numbers(world, "forewarn_link_hosts") == dict.fromkeys(VERSIONS, 0)
            await world.joined("h1")
            newer = await world.joined("h2")
            major, minor = wire.LINK_VERSION.split(".")
            speaks = {wire.VERSION_HEADER: f"{major}.{int(minor) + 1}"}
            await newer.say("changes", wire.AskChanges(None, 0), headers=speaks)
            assert await numbers(world, "forewarn_link_hosts") == {
                "same": 1,
                "older": 0,
                "newer": 1,
                "unknown": 0,
            }
            await world.service.membership.revoke("h2")
            assert (await numbers(world, "forewarn_link_hosts"))["newer"] == 0

    run(story)


@pytest.mark.parametrize(
    ("version", "word"),
    [
        (wire.LINK_VERSION, "same"),
        ("0.9", "older"),
        ("99.0", "newer"),
        ("", "unknown"),
        ("1", "unknown"),
        ("1.x", "unknown"),
        ("1.99999999", "unknown"),
    ],
)
def test_a_version_is_compared_by_its_numbers(version: str, word: str) -> None:
    assert compared(version) == word


@pytest.mark.parametrize("wanted", ["true", "false"])
def test_each_line_of_the_journal_is_a_line_of_the_log_where_that_is_wanted(
    tmp_path: Path, wanted: str
) -> None:
    async def story() -> None:
        fleet = '[[host]]\nname = "h9"\n'
        async with control_running(tmp_path, fleet=fleet, log_journal=wanted) as world:
            await world.order("/v1/hosts/h9/close")
        async with control_running(tmp_path, fleet=fleet, log_journal=wanted) as world:
            await world.order("/v1/hosts/h9/open")
            kept.extend((await world.operator("GET", "/v1/journal")).json()["items"])

    kept: list[dict[str, object]] = []
    with capture_logs() as logs:
        run(story)  # to its end: then every line is written
    facts = [line for line in logs if line["event"] == "fact"]
    if wanted == "false":
        assert facts == []
        return
    (line,) = [one for one in facts if one["kind"] == "host-closed"]
    assert (line["host"], line["by"]) == ("h9", "operator")
    assert "scope" not in line
    assert "inventory-applied" in [one["kind"] for one in facts]
    said = [(one["number"], one["at"], one["kind"]) for one in facts]
    assert said[: len(kept)] == [(one["number"], one["at"], one["kind"]) for one in kept]
    details = [one["detail"] for one in facts if "detail" in one]
    assert details
    assert all(isinstance(json.loads(one), dict) for one in details)


def test_a_log_that_is_slow_keeps_no_commit_waiting_and_says_what_was_left_out() -> None:
    fact = Fact(kind=FactKind.HOST_CLOSED, at_ms=1, host="h1")
    stuck, go_on = threading.Event(), threading.Event()

    def slow(_: Any, __: str, said: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        stuck.set()
        assert go_on.wait(60)
        return said

    with capture_logs(processors=[slow]) as logs:
        journal = JournalLog(waiting_max=2)
        journal.committed([Change(lines=lines_of([fact]))])
        assert stuck.wait(60)
        journal.committed([Change(lines=lines_of([fact] * 5))])  # returns, or this test hangs
        go_on.set()
        journal.end()
    assert [one["event"] for one in logs] == ["fact", "facts_left_out", "fact", "fact"]
    assert logs[1]["lines"] == 3
