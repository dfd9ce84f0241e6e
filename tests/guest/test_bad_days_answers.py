"""An endpoint that is away, says nonsense, or lies; and documents that want to be obeyed."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from forewarn_guest.facts import FactKind
from scripted_endpoint import Reply, ScriptedEndpoint, event
from support.guest_agent_world import WHOLE_LIFE, Guest
from support.guest_endpoint_world import Told, guest_at

MIB = 1024 * 1024
NONSENSE: dict[str, Reply] = {
    "html": Reply(body=b"<html><body>Sign in</body></html>", headers={"Content-Type": "text/html"}),
    "list": Reply(body=b"[]"),
    "types": Reply(body=b'{"DocumentIncarnation": {}, "Events": "none"}'),
    "words": Reply(body=b"true"),
    "deep": Reply(body=b"[" * 100_000),
    "torn": Reply(body=b'{"DocumentIncarnation": 1, "Events": [{"EventId"'),
    "huge": Reply(body=b" " * (8 * MIB) + b"{}"),
    "bytes": Reply(body=b"\xff\xfe\x00\x01" * 100),
    "redirect": Reply(status=302, headers={"Location": "http://127.0.0.1:1/"}),
    "not found": Reply(status=404, body=b"nothing here"),
}


def live_through(told: Told, guest: Guest, event_id: str = "A1", times: int = 1) -> None:
    """A whole life of an event with that id."""
    told.show(event(event_id))
    guest.wait_for(lambda: told.approved.count(event_id) >= times, "it is approved")
    guest.wait_for(lambda: len(guest.facts(FactKind.APPROVED)) >= times, "that is kept")
    told.show(event(event_id, "Started"))
    guest.wait_ran("started", "note", what="ended", times=times)
    told.show()
    guest.wait_closed(times)


def test_nonsense_is_said_once_counted_and_survived(tmp_path: Path) -> None:
    with ExitStack() as stack:
        days = {}
        for number, (name, nonsense) in enumerate(NONSENSE.items()):
            told = Told(nonsense, nonsense)
            endpoint = stack.enter_context(ScriptedEndpoint(told.answer))
            guest = stack.enter_context(guest_at(endpoint.url, tmp_path / f"vm{number}"))
            days[name] = (told, guest)
            told.show(event("A1"))
            guest.live()
        for name, (told, guest) in days.items():
            guest.wait_for(partial(told.approved.count, "A1"), f"it survives {name}")
            guest.stop()
            counted = guest.status()["errors_by_kind"]
            assert sum(counted.values()) >= 2, (name, counted)
            assert guest.said().count(" warning trouble ") == len(counted), (name, guest.said())
            assert guest.said().count("the endpoint answers again") == 1, name
            assert guest.order("ended") == WHOLE_LIFE[:2]


def test_an_endpoint_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with guest_at(f"http://127.0.0.1:{port}", tmp_path / "vm0") as guest:
        guest.live()
        guest.wait_for(lambda: "kind=unreachable" in guest.said(), "it is said")
        told = Told()
        with ScriptedEndpoint(told.answer, port=port):
            live_through(told, guest)
            guest.stop()
        assert guest.order("ended") == WHOLE_LIFE
        assert guest.said().count("kind=unreachable") == 1


def test_an_event_id_that_comes_back_is_taken_care_of_again_and_said_to_have_come_back(
    tmp_path: Path,
) -> None:
    told = Told()
    with (
        ScriptedEndpoint(told.answer) as endpoint,
        guest_at(endpoint.url, tmp_path / "vm0") as guest,
    ):
        guest.live()
        live_through(told, guest)
        live_through(told, guest, times=2)
        guest.wait_for(lambda: guest.status()["counts"].get("came_back") == 1, "it is counted")
        guest.stop()
        assert guest.order("ended") == WHOLE_LIFE * 2
        sightings = [fact.detail["sighting"] for fact in guest.facts(FactKind.APPEARED)]
        assert sightings == [1, 2]


def test_an_event_in_a_document_with_others_that_are_none_is_taken_care_of(tmp_path: Path) -> None:
    told = Told()
    odd: list[Any] = [None, 7, "event", [], {}, {"EventId": 5}, {"EventId": "B2", "Resources": 1}]
    with (
        ScriptedEndpoint(told.answer) as endpoint,
        guest_at(endpoint.url, tmp_path / "vm0") as guest,
    ):
        told.show(*odd, event("A1"))
        guest.live()
        guest.wait_for(lambda: "A1" in told.approved, "it is approved")
        guest.stop()
        assert set(told.approved) == {"A1"}


def test_nothing_in_a_document_is_executed(tmp_path: Path) -> None:
    told = Told()
    with (
        ScriptedEndpoint(told.answer) as endpoint,
        guest_at(endpoint.url, tmp_path / "vm0") as guest,
    ):
        name = "executed-by-a-document"
        mark = guest.folder / name
        evil = (
            f"$(touch {mark})`touch {mark}`;touch {mark};|touch {mark}&&touch {mark}\n"
            f"touch {mark}\r\n'\"\\ ../../{mark} %s%n {{}} \x1b[2J\x1b]0;x\x07 \x7f \u202e -rf *\0"
        )
        evil_id = f"$(touch {name})`touch {name}`;touch {name}|'\"\\../../ %s -rf *"
        nasty = event(
            evil_id,
            EventType=evil,
            Description=evil,
            EventSource=evil,
            ResourceType=evil,
            Resources=["vm0", evil],
            **{evil: evil},
        )
        guest.configure(
            f'[[rule]]\nname = "all"\n[[rule.prepare]]\nname = "run"\nrun = ["{guest.program}"]\n'
            '[[rule.prepare]]\nname = "shell"\n'
            f'shell = "printf %s \\"$FOREWARN_EVENT_DESCRIPTION\\" >{guest.folder}/told"\n'
            f'[[rule.recover]]\nname = "run"\nrun = ["{guest.program}"]\n'
        )
        told.show(nasty)
        guest.start()
        guest.wait_for(lambda: told.approved, "it is approved")
        guest.wait_for(lambda: guest.facts(FactKind.APPROVED), "that is kept")
        told.show()
        guest.wait_closed()
        guest.stop()
        assert set(told.approved) == {evil_id}  # as it was sent
        assert not mark.exists()
        assert not Path("/", name).exists()  # where steps run
        assert not list(tmp_path.rglob(f"{name}*"))
        assert evil[:40] in (guest.folder / "told").read_text(encoding="utf-8")
        (appeared,) = guest.facts(FactKind.APPEARED)
        assert appeared.detail["event"]["raw"] == nasty
        for text in (guest.said(), (guest.data / "status.json").read_text(encoding="utf-8")):
            assert all(letter.isprintable() or letter == "\n" for letter in text), text
        names = [path.name for path in (guest.data / "steps").iterdir()]
        assert names
        assert all(letter.isalnum() or letter in "-." for name in names for letter in name)
        stamped = [line for line in guest.said().splitlines() if line[:4].isdigit()]
        assert stamped == guest.said().splitlines()  # no line of the log is made by a document
