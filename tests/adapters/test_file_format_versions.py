"""What a host keeps says its form and who wrote it; one form back is read, nothing is removed."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.adapters import host_credentials, last_documents, marks_file
from forewarn.adapters.file_format_versions import Form, UnreadForm, this_program
from forewarn.core.errors import Refusal, Unavailable
from forewarn.core.incarnation_marks import Marks
from forewarn.host_settings import HostSettings
from forewarn.wiring.host import membership

FOLDERS = Path(__file__).parent.parent / "fixtures" / "host_folders"
FORMS = sorted(path.name for path in FOLDERS.iterdir() if path.is_dir())
NEWEST = FORMS[-1]
WRITER = "forewarn 0.1.0"  # of the folder of the newest form
NEWER = "forewarn 9.9.9"


@pytest.fixture(params=FORMS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of what a host kept, in each form that there was."""
    return Path(shutil.copytree(FOLDERS / request.param, tmp_path / "host"))


def test_there_is_a_folder_of_the_newest_form_and_of_the_one_before() -> None:
    assert [int(NEWEST)] * 3 == [last_documents.FORM, marks_file.FORM, host_credentials.FORM]
    assert str(int(NEWEST) - 1) in FORMS


def test_last_documents_are_read(folder: Path) -> None:
    shown = last_documents.load(folder)
    assert shown is not None
    assert [(one.name, one.incarnation, one.enabled) for one in shown.scopes] == [
        ("solo", 4, True),
        ("web", 3, True),
    ]
    web = shown.scopes[1]
    assert [vm.vm_id for vm in web.vms] == ["00000000-0000-4000-8000-0000000001cd"]
    event = web.events[0]
    assert (event.event_id, event.phase, event.resources) == (
        "0A71F47C-DF2A-4F40-A545-C7CB5CC3AE59",
        "scheduled",
        ("web_0",),
    )
    assert event.not_before_ms == 1_794_806_107_000
    assert (shown.now_ms, shown.monotonic_ms) == (1_794_805_206_835, 36_348_137)
    assert shown.boot_id == "4743d95c-999f-4e33-9960-0429703d9b26"


def test_marks_are_read(folder: Path) -> None:
    assert marks_file.load(folder) == Marks(
        of_vm={
            ("solo", "00000000-0000-4000-8000-0000000001bd"): 4,
            ("web_0", "00000000-0000-4000-8000-0000000001cd"): 3,
        }
    )


def test_credentials_are_read(folder: Path) -> None:
    known = host_credentials.load(folder)
    assert known is not None
    assert (known.name, known.control) == ("h1", "https://127.0.0.1:34159")
    assert known.token_digest.startswith("61cc79b1")


def test_what_is_written_now_has_the_newest_form_byte_for_byte(tmp_path: Path) -> None:
    """A field more, less or under another name needs a form of its own, or a default."""
    was = FOLDERS / NEWEST
    shown, marks = last_documents.load(was), marks_file.load(was)
    known = host_credentials.load(was)
    assert shown is not None
    assert marks is not None
    assert known is not None
    last_documents.keep(tmp_path, shown)
    marks_file.keep(tmp_path, marks)
    certificate = (was / "host.pem").read_text(encoding="ascii").split("-----BEGIN CERT")[1]
    host_credentials.keep(
        tmp_path,
        key_pem=known.key_pem,
        certificate_pem=f"-----BEGIN CERT{certificate}",
        authority_pem=known.authority_pem,
        control=known.control,
        token_digest=known.token_digest,
    )
    for name in ("documents.json", "marks", "host.pem"):
        now = (tmp_path / name).read_text(encoding="utf-8")
        assert this_program() in now
        then = (was / name).read_text(encoding="utf-8")
        assert _unsigned(now, this_program()) == _unsigned(then, WRITER)


def _unsigned(text: str, writer: str) -> str:
    """Without who wrote it, and the checksum of the line that says so."""
    return re.sub(r"^[0-9a-f]{8} \{", "{", text.replace(writer, "WRITER"))


# Forms that this program does not read.


def newer_documents(folder: Path) -> Path:
    path = folder / "documents.json"
    path.write_text(json.dumps({"form": 2, "written_by": NEWER, "pages": {}}), encoding="utf-8")
    return path


def newer_marks(folder: Path) -> Path:
    head = json.dumps({"form": 2, "written_by": NEWER, "count": 0}).encode()
    path = folder / "marks"
    path.write_bytes(b"%08x %b\n" % (zlib.crc32(head), head))
    return path


def newer_credentials(folder: Path) -> Path:
    path = folder / "host.pem"
    text = (FOLDERS / NEWEST / "host.pem").read_text(encoding="ascii")
    path.write_text(text.replace(f"form: {NEWEST} by {WRITER}", f"form: 2 by {NEWER}"))
    return path


def in_words(path: Path) -> str:
    return (
        f"{re.escape(str(path))} was written in form 2 by {re.escape(NEWER)}; this program,"
        f" {re.escape(this_program())}, reads forms 0 and 1. Run that version, or a newer one; or "
    )


@pytest.mark.parametrize(
    ("newer", "load"),
    [(newer_marks, marks_file.load), (newer_credentials, host_credentials.load)],
)
def test_a_newer_form_stops_the_start_and_the_file_stays(
    tmp_path: Path, newer: Callable[[Path], Path], load: Callable[[Path], Any]
) -> None:
    path = newer(tmp_path)
    before = path.read_bytes()
    with pytest.raises(UnreadForm, match=in_words(path)):
        load(tmp_path)
    assert path.read_bytes() == before


def test_last_documents_of_a_newer_form_are_left_out_and_put_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = newer_documents(tmp_path)
    before = path.read_bytes()
    assert last_documents.load(tmp_path) is None
    said = capsys.readouterr().out
    assert f"{path} was written in form 2 by {NEWER}; this program" in said
    assert "Run that version, or a newer one; or go on" in said
    assert path.read_bytes() == before, "reading changes nothing"

    last_documents.put_unread_aside(tmp_path)
    [aside] = tmp_path.glob("unread-*/documents.json")
    assert aside.read_bytes() == before
    assert not path.exists()


def test_what_can_be_read_is_not_put_aside(folder: Path) -> None:
    last_documents.put_unread_aside(folder)
    assert last_documents.load(folder) is not None
    last_documents.forget(folder)
    last_documents.put_unread_aside(folder)
    assert not list(folder.glob("unread-*"))


@pytest.mark.parametrize("said", [b'{"form":"1"}', b'{"form":-1}', b'{"form":1e99}', b"[]"])
def test_a_form_that_is_none_is_damage(tmp_path: Path, said: bytes) -> None:
    (tmp_path / "documents.json").write_bytes(said)
    assert last_documents.load(tmp_path) is None


def test_a_form_before_the_one_before_is_refused_with_the_way_through() -> None:
    for number in (2, 3):
        Form(number).refuse(Path("x"), newest=3, price="")
    with pytest.raises(UnreadForm, match=r"by an unknown version.*forms 2 and 3.*in between"):
        Form(1).refuse(Path("x"), newest=3, price="")


def test_a_token_does_not_replace_credentials_of_a_newer_form(tmp_path: Path) -> None:
    """Damaged ones it does: there is nothing in them to go back to."""
    path = newer_credentials(tmp_path)
    before = path.read_bytes()
    settings = HostSettings(data=tmp_path, name="h1", control="https://127.0.0.1:9")

    def join() -> None:
        asyncio.run(membership(settings, "fw1.secret.fingerprint"))

    with pytest.raises(UnreadForm):
        join()
    assert path.read_bytes() == before
    path.write_bytes(b"damaged")
    with pytest.raises((Refusal, Unavailable)):  # by control, who is asked
        join()
