"""`forewarn verify` as it is typed: what it prints, and how it ends."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from forewarn.verify.table import CHECKS
from support.cli_runner import Ran, forewarn
from verify.breakages import BREAKAGES
from verify.emulated import emulated
from verify.front import Tampering, front_of


def verify(url: str, *arguments: str) -> Ran:
    return forewarn("verify", url, "--pace", "0", *arguments)


def python(code: str) -> str:
    """A command that runs a line of Python."""
    return shlex.join([sys.executable, "-c", code])


def test_an_endpoint_that_is_good_ends_with_0_and_a_line_that_says_so() -> None:
    with emulated() as world:
        ran = verify(world.url, "--only", "get-200,tags")
    assert ran.code == 0, ran.out
    lines = ran.out.splitlines()
    assert lines[0] == "The answer to a GET"
    assert lines[-1].startswith(f"{world.url}: ")
    assert "0 failed" in lines[-1]
    assert ran.err == ""


def test_an_endpoint_that_is_not_ends_with_1_and_says_what_was_seen_and_expected() -> None:
    with emulated() as world, front_of(world.url, BREAKAGES["etag-quoted"]()) as front:
        ran = verify(front.url, "--only", "etag-quoted")
    assert ran.code == 1
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["seen:", "ETag:", "1"] in lines
    assert ran.out.splitlines()[-1].endswith("leaves out: etag-quoted.")


@pytest.mark.parametrize("option", [("--format", "json"), ("--json",)])
def test_json_is_one_document(option: tuple[str, ...]) -> None:
    with emulated() as world:
        ran = verify(world.url, "--only", "get-200", *option)
    assert ran.code == 0
    assert ran.json["counts"] == {"pass": 1, "fail": 0, "skipped": 0}


def test_junit_is_one_document() -> None:
    with emulated() as world, front_of(world.url, BREAKAGES["etag-quoted"]()) as front:
        ran = verify(front.url, "--only", "etag-quoted", "--format", "junit")
    assert ran.code == 1
    assert ET.fromstring(ran.out).get("failures") == "1"


def test_the_list_needs_no_endpoint() -> None:
    ran = forewarn("verify", "--list")
    assert ran.code == 0
    assert ran.out.endswith(f"{len(CHECKS)} checks.\n")
    assert len(forewarn("verify", "--list", "--json").json) == len(CHECKS)
    assert CHECKS[0].not_checked not in ran.out
    assert CHECKS[0].not_checked in forewarn("verify", "--list", "--long").out


def test_nobody_at_the_url_ends_with_3() -> None:
    with front_of("http://127.0.0.1:1", Tampering()) as front:
        url = front.url
    ran = forewarn("verify", url)
    assert ran.code == 3
    assert f"nothing answers at {url}" in ran.err
    assert ran.out == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "which endpoint?"),
        (("https://127.0.0.1",), "not plain HTTP"),
        (("http://",), "names no address"),
        (("http://127.0.0.1:99999",), "is no URL"),
        (("http://127.0.0.1/a b",), "no request line can carry"),
        (("http://127.0.0.1:1", "--only", "nothing"), "no check or topic 'nothing'"),
        (("http://127.0.0.1:1", "--skip", "nothing"), "no check or topic 'nothing'"),
        (("http://127.0.0.1:1", "--types", "Reboot,Explode"), "there are Freeze"),
        (("http://127.0.0.1:1", "--timeout", "0"), "more than 0"),
        (("http://127.0.0.1:1", "--pace", "-1"), "requests per second"),
        (("http://127.0.0.1:1", "--operator", "order {vmm}"), "{vmm}"),
        (("http://127.0.0.1:1", "--operator", "order 'open"), "No closing quotation"),
        (("http://127.0.0.1:1", "--operator", "a", "--operator", "b"), "given twice"),
        (("http://127.0.0.1:1", "--operator", ""), "is empty"),
        (("http://127.0.0.1:1", "--cancel", "a {event}"), "give both"),
        (("http://127.0.0.1:1", "--long"), "Give --list --long"),
    ],
)
def test_misuse_ends_with_2_and_says_what_would_be_accepted(
    arguments: tuple[str, ...], said: str
) -> None:
    ran = forewarn("verify", *arguments)
    assert ran.code == 2
    assert said in " ".join(ran.err.split())
    assert ran.out == ""


def test_commands_are_run_without_a_shell_with_their_words_filled_in(tmp_path: Path) -> None:
    note = tmp_path / "note"
    code = f"import sys; open({str(note)!r}, 'a').write(repr(sys.argv[1:]) + '\\n')"
    command = f"{python(code)} '{{type}} {{verb}}' {{vm}} '{{\"a\": 1}}' '$HOME;'"
    with emulated() as world:
        ran = verify(
            world.url,
            *("--operator", command, "--only", "life-appears"),
            *("--advance", f"{python(code)} {{seconds}}"),
        )
    assert ran.code == 1
    assert "no new event for vm0 within 180 s" in ran.out
    lines = note.read_text().splitlines()
    assert lines[0] == repr(["Reboot restart", "vm0", '{"a": 1}', "$HOME;"])
    assert lines[1] == repr(["1"])


def test_a_command_that_fails_is_reported_with_its_output() -> None:
    command = python("import sys; print('no such VM'); sys.exit(4)")
    with emulated() as world:
        ran = verify(world.url, "--operator", command, "--only", "life-appears", "--json")
    assert ran.code == 1
    (failed,) = [check for check in ran.json["checks"] if check["verdict"] == "fail"]
    assert failed["seen"].endswith("ended with 4: no such VM")


def test_a_command_that_is_not_there_is_reported() -> None:
    with emulated() as world:
        ran = verify(world.url, "--operator", "/nowhere/order", "--only", "life-appears", "--json")
    (failed,) = [check for check in ran.json["checks"] if check["verdict"] == "fail"]
    assert "could not be run" in failed["seen"]


def test_who_can_order_but_turn_no_clock_is_told_that_time_is_waited_for() -> None:
    with emulated() as world:
        options = ("--operator", "/nowhere/order", "--only", "life-appears")
        waits = verify(world.url, *options)
        turns = verify(world.url, *options, "--advance", "turn {seconds}")
    assert "give --advance" in waits.err
    assert "give --advance" not in turns.err


def test_a_type_may_have_a_command_of_its_own(tmp_path: Path) -> None:
    note = tmp_path / "note"
    code = f"import sys; open({str(note)!r}, 'a').write(sys.argv[1])"
    with emulated() as world:
        verify(
            world.url,
            *("--operator", f"{python(code)} general", "--operator", f"Reboot={python(code)} own"),
            *("--advance", python(""), "--only", "life-appears"),
        )
    assert note.read_text() == "own"


def test_the_url_of_the_document_itself_is_understood() -> None:
    with emulated() as world:
        url = f"{world.url}/metadata/scheduledevents?api-version=2020-07-01"
        ran = verify(url, "--only", "get-200", "--json")
        bare = verify(world.url.removeprefix("http://"), "--only", "get-200")
    assert ran.code == 0
    assert json.loads(ran.out)["url"] == world.url
    assert bare.code == 0
