"""The judge finds what it is there to find: each lie planted here is told, and the truth is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rig.consoles import Line, parse
from rig.judge import Evidence, judge, milliseconds

EVENT = "4CE2A0B4-0F2B-4B3A-9C55-0D7D1B0F7A11"
BEGAN = "2026-03-03T10:00:00.000Z"


def at(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    return f"2026-03-03T10:{int(minutes):02d}:{rest:06.3f}Z"


def when_s(wall_ms: int) -> float:
    return (wall_ms - milliseconds(BEGAN)) / 1000


def line(at_s: float, boot: str, uptime_s: float, kind: str = "poll", **words: str) -> Line:
    told = {"status": "200", "incarnation": "1", "events": "-"} if kind == "poll" else {}
    return Line(at_s=at_s, kind=kind, vm="a", boot=boot, uptime_s=uptime_s, words=told | words)


def event(**words: Any) -> dict[str, Any]:
    plain = {
        "event_id": EVENT,
        "phase": "completed",
        "outcome": "",
        "not_before": at(900),
        "minimum_notice_seconds": 900,
        "shown": at(0),
        "unreadable_seconds": 0,
        "approved": None,
        "approved_by": None,
        "started": at(901),
        "duration_seconds": 4,
        "actions": [{"kind": "reboot-vm", "outcome": "done", "detail": ""}],
    }
    return plain | words


def facts() -> list[dict[str, Any]]:
    started = {"kind": "started", "event_id": EVENT, "detail": {}}
    return [started, {"kind": "reported", "event_id": EVENT, "detail": {"action_id": "1"}}]


def polls(first: int, last: int, boot: str = "one", **words: str) -> list[Line]:
    return [line(float(at_s), boot, float(at_s), **words) for at_s in range(first, last)]


def rebooted() -> Evidence:
    """A Reboot as it should be: read for a quarter of an hour, then the button, then a new boot."""
    seen = {"events": f"{EVENT}:Reboot:Scheduled"}
    return Evidence(
        kind="Reboot",
        consent="",
        vm="a",
        event=event(),
        facts=facts(),
        lines=[
            *polls(0, 2),
            *polls(2, 902, **seen),
            line(902.5, "one", 902.5, "button"),
            line(906, "two", 3, "boot"),
            line(907, "two", 4),
            line(912, "two", 9),
        ],
        ordered_s=1,
        ended_s=910,
        before={"h1": "running"},
        after={"h1": "running"},
        when_s=when_s,
    )


def test_a_reboot_as_it_was_announced_is_found_good() -> None:
    assert judge(rebooted()) == []


@pytest.mark.parametrize(
    ("lie", "told"),
    [
        ({"event": event(phase="failed")}, "it is failed"),
        ({"event": event(started=at(899))}, "before its NotBefore"),
        ({"event": event(shown=at(60))}, "readable for 841.0 s only"),
        ({"event": event(unreadable_seconds=60)}, "readable for 841.0 s only"),
        ({"event": event(approved=at(5), approved_by="vm a")}, "who was told not to"),
        ({"consent": "guest"}, "nobody approved"),
        ({"facts": [*facts(), facts()[0]]}, "2 times that it started"),
        ({"facts": [*facts(), facts()[1]]}, "2 reports of 1 actions"),
        ({"facts": facts()[:1]}, "0 reports"),
        ({"lines": [*polls(0, 902), line(906, "two", 3)]}, "never saw it Scheduled"),
        ({"lines": polls(0, 915)}, "booted 0 times"),
        ({"lines": [*rebooted().lines, line(913, "three", 1)]}, "booted 2 times"),
        ({"after": {"h2": "running"}}, "is at {'h2': 'running'}"),
        ({"ended_s": 1_000.0}, "no poll was answered afterwards"),
    ],
)
def test_each_lie_about_a_reboot_is_found(lie: dict[str, Any], told: str) -> None:
    assert any(told in text for text in judge(replace(rebooted(), **lie)))


def test_an_impact_before_the_start_is_found_on_the_guests_own_word() -> None:
    early = [replace(one, at_s=one.at_s - 300) for one in rebooted().lines if one.at_s > 902]
    found = judge(replace(rebooted(), lines=[*polls(0, 600), *early]))
    assert any("before the event started" in text for text in found)


def approved() -> Evidence:
    """The same with consent: right after it was read."""
    lines = [
        *polls(0, 2),
        *polls(2, 4, events=f"{EVENT}:Reboot:Scheduled"),
        line(4.1, "one", 4, "consent", event=EVENT),
        line(4.4, "one", 4.4, "button"),
        line(9, "two", 2),
        line(10, "two", 3),
    ]
    agreed = event(approved=at(4.2), approved_by="a", started=at(4.3))
    return replace(rebooted(), consent="guest", event=agreed, lines=lines, ended_s=8)


def test_consent_is_found_on_the_guests_own_word() -> None:
    assert judge(approved()) == []
    mute = [one for one in approved().lines if one.kind != "consent"]
    assert any("not by its guest" in text for text in judge(replace(approved(), lines=mute)))
    other = event(approved=at(4.2), approved_by="b", started=at(4.3))
    assert any("not by its guest" in text for text in judge(replace(approved(), event=other)))
    early = event(approved=at(4.2), approved_by="a", started=at(4.1))
    assert any("before it was approved" in text for text in judge(replace(approved(), event=early)))
    talks = [*rebooted().lines, line(3, "one", 3, "consent", event=EVENT)]
    assert any("was told not to" in text for text in judge(replace(rebooted(), lines=talks)))


def frozen(gap_s: float, boot: str = "one") -> Evidence:
    seen = {"events": f"{EVENT}:Freeze:Scheduled"}
    after = [line(902 + gap_s, boot, 903), line(904 + gap_s, boot, 905)]
    lines = [*polls(0, 2), *polls(2, 903, **seen), *after]
    return replace(rebooted(), kind="Freeze", lines=lines, ended_s=902 + gap_s)


def test_a_freeze_is_one_pause_of_the_announced_length_without_a_boot() -> None:
    assert judge(frozen(4.5)) == []
    assert any("0 times" in text for text in judge(frozen(1.0)))
    assert any("for 60.0 s" in text for text in judge(frozen(60)))
    assert any("booted" in text for text in judge(frozen(4.5, "two")))


def test_a_live_move_keeps_the_uptime_and_is_answered_at_the_other_host() -> None:
    seen = {"events": f"{EVENT}:Redeploy:Scheduled"}
    lines = [*polls(0, 2), *polls(2, 903, **seen), *polls(904, 920)]
    moved = replace(rebooted(), kind="Redeploy", lines=lines, after={"h2": "running"})
    assert judge(moved) == []
    assert any("is at {'h1'" in text for text in judge(replace(moved, after={"h1": "running"})))
    both = {"h1": "running", "h2": "running"}
    assert any("is at {'h1'" in text for text in judge(replace(moved, after=both)))
    backwards = [*lines, line(921, "one", 3)]
    assert any("uptime went back" in text for text in judge(replace(moved, lines=backwards)))


def test_a_terminated_vm_is_gone_and_stays_gone() -> None:
    seen = {"events": f"{EVENT}:Terminate:Scheduled"}
    lines = [*polls(0, 2), *polls(2, 903, **seen)]
    gone = replace(rebooted(), kind="Terminate", lines=lines, after={})
    assert judge(gone) == []
    assert any("still at" in text for text in judge(replace(gone, after={"h1": "shut off"})))
    again = [*lines, line(950, "two", 2)]
    assert any("booted again" in text for text in judge(replace(gone, lines=again)))


def test_lines_of_a_console_are_read_and_halves_are_not() -> None:
    text = f"fw poll name=a boot=1f up=9.05 status=200 incarnation=3 events={EVENT}:Reboot:Started"
    found = parse(f"[    2.1] noise{text}", 5.0)
    assert found is not None
    assert found.events() == {EVENT: ("Reboot", "Started")}
    assert parse("fw poll name=a boot=1f up=9", 5.0) is not None
    assert parse("fw poll name=a boo", 5.0) is None
    assert parse("Linux version 6.1", 5.0) is None
