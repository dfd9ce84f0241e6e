"""Conversations as each version of the link had them: kept for all later ones, and still read."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import link_recording
from forewarn.adapters.control_link import NotAdmitted, problem
from forewarn.api.link.routes import LinkRoutes
from forewarn.core.errors import Refusal
from forewarn.wire import link as wire
from support.link_messages import MESSAGES, default_of, differences, kinds, structs_in

ANSWERED = 200
HERE = link_recording.FOLDERS / wire.LINK_VERSION
AGAIN = "cd tests && PYTHONPATH=. ../.venv/bin/python -m link_recording"
CHANGED = f"""
Control and host do not say what version {wire.LINK_VERSION} of the link said (tests/fixtures/link).
If the change is meant, and only adds (a question, or a field that has a default): raise the minor
number of LINK_VERSION in wire/link.py, and record a new folder: {AGAIN}
The old folder stays as it is: hosts and controls of that version must still be understood. If
something was renamed or removed, or is needed now, the other side of that version cannot work with
this one any more: add it beside the old one instead."""
# What these versions said is not recorded over. The present one is here for the day it is older.
KEPT = {
    "1.0": "85e2f280f605c2929ce679ce6bc89045",
    "1.1": "4d4aa149f0d73921c0386f9598317ae0",
}
# Only a host in the process of control is told where a VM listens, and may lose a local disk.
NEVER_SAID = {("ShownVm", "listen"), ("Work", "lose_disk")}


def exchanges(folder: Path) -> Iterator[Any]:
    """All that was said there, each with where it stands."""
    for file in sorted(folder.glob("*.json")):
        for number, said in enumerate(json.loads(file.read_text(encoding="utf-8")), 1):
            yield pytest.param(said, id=f"{folder.name}/{file.stem}/{number}-{said['question']}")


def folders() -> list[Path]:
    """Those of versions that this one has to understand."""
    major = wire.LINK_VERSION.partition(".")[0]
    return sorted(link_recording.FOLDERS.glob(f"{major}.*"))


def all_of_them() -> list[Any]:
    return [said for folder in folders() for said in exchanges(folder)]


def is_whole(said: Any) -> bool:
    """Whether it is a question that has an answer."""
    return bool(said["question"] in MESSAGES and said["status"] == ANSWERED)


def read(said: Any) -> tuple[msgspec.Struct, msgspec.Struct]:
    """The question and its answer, as messages."""
    asked, answered = MESSAGES[said["question"]]
    return (
        msgspec.json.decode(json.dumps(said["request"]), type=asked),
        msgspec.json.decode(json.dumps(said["answer"]), type=answered),
    )


@pytest.mark.parametrize("said", [one for one in all_of_them() if is_whole(one.values[0])])
def test_what_was_recorded_is_read_and_loses_nothing(said: Any) -> None:
    question, answer = read(said)
    lost = [*differences(said["request"], question), *differences(said["answer"], answer)]
    assert not lost, CHANGED
    for recorded, message in ((said["request"], question), (said["answer"], answer)):
        again = msgspec.json.decode(msgspec.json.encode(message))
        assert not list(differences(again, message))
        assert msgspec.convert(again, type(message)) == msgspec.convert(recorded, type(message))


@pytest.mark.parametrize("said", [o for o in all_of_them() if o.values[0]["status"] != ANSWERED])
def test_a_refusal_that_was_recorded_is_understood(said: Any) -> None:
    found = problem(said["status"], json.dumps(said["answer"]).encode())
    assert said["answer"]["detail"] in str(found)
    assert isinstance(found, Refusal | NotAdmitted)
    if isinstance(found, Refusal):
        assert found.code == said["answer"]["code"]


def without_words(said: Any) -> Any:
    """What was said without the words of refusals, which are for people and may become better."""
    if isinstance(said, dict):
        told = {key: without_words(value) for key, value in said.items()}
        return {**told, **{key: "" for key in ("detail", "remedy", "title") if "code" in told}}
    return [without_words(one) for one in said] if isinstance(said, list) else said


def test_control_and_hosts_say_what_this_version_said(tmp_path: Path) -> None:
    assert HERE.is_dir(), f"Nothing is recorded of version {wire.LINK_VERSION} yet: {AGAIN}"
    kept = {file.name: file.read_text(encoding="utf-8") for file in HERE.glob("*.json")}
    today = asyncio.run(link_recording.recorded(tmp_path))
    assert sorted(today) == sorted(kept), CHANGED
    for name, text in today.items():
        for now, then in zip(json.loads(text), json.loads(kept[name]), strict=True):
            assert without_words(now) == without_words(then), CHANGED


def test_what_an_older_version_said_stays_as_it_was_recorded() -> None:
    older = [folder for folder in folders() if folder != HERE]
    assert [one.name for one in older if one.name not in KEPT] == [], "Add its digest to KEPT."
    for folder in older:
        files = sorted(folder.glob("*.json"))
        said = b"".join(file.name.encode() + b"\0" + file.read_bytes() for file in files)
        assert hashlib.sha256(said).hexdigest()[:32] == KEPT[folder.name], CHANGED


def test_every_kind_of_message_is_in_the_recording() -> None:
    nothing = cast("Any", None)
    routes = LinkRoutes(nothing, host_feed=nothing, report_intake=nothing)
    asked = {name: asking.kind for name, asking in routes.table().items()}
    known = {name: question for name, (question, _) in MESSAGES.items()}
    assert known == {**asked, "join": wire.Join, "renew": wire.Renew}

    whole = [one.values[0] for one in exchanges(HERE) if is_whole(one.values[0])]
    found = [struct for said in whole for message in read(said) for struct in structs_in(message)]
    said = {type(struct) for struct in found}
    assert [kind.__name__ for kind in kinds() if kind not in said] == []
    fields = {
        (type(struct).__name__, field.name)
        for struct in found
        for field in msgspec.structs.fields(struct)
        if getattr(struct, field.name) != default_of(field)
    }
    wanted = {(kind.__name__, name) for kind in kinds() for name in kind.__struct_fields__}
    assert wanted - fields == NEVER_SAID, f"Have the story in link_recording.py say it. {AGAIN}"
