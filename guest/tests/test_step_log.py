"""The step `log`: what arrives at the sockets of journald and syslog, whatever an event says."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from pathlib import Path

from steps_world import EVENT, HOSTILE, PATIENCE_S, is_one_line, run, told


@contextlib.contextmanager
def listening(path: str = "") -> Iterator[socket.socket]:
    family = socket.AF_UNIX if path else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as here:
        here.bind(path or ("127.0.0.1", 0))
        here.settimeout(PATIENCE_S)
        yield here


def fields(datagram: bytes) -> dict[str, str]:
    """The fields of journald's native protocol; none of ours needs its binary form."""
    lines = datagram.decode().splitlines()
    assert all("=" in line for line in lines)
    return dict(line.split("=", 1) for line in lines)


def test_journald_gets_the_facts_as_fields(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with listening(path) as here:
        code, out, problems = run("log", told({"socket": path, "priority": "warning"}))
        assert (code, problems) == (0, "")
        assert path in out
        got = fields(here.recv(65536))
    assert got["PRIORITY"] == "4"
    assert got["SYSLOG_IDENTIFIER"] == "forewarn-guest"
    assert got["FOREWARN_EVENT_ID"] == EVENT["EventId"]
    assert got["FOREWARN_EVENT_TYPE"] == "Reboot"
    assert got["FOREWARN_EVENT_RESOURCES"] == "web_0 web_1"
    assert got["FOREWARN_VM"] == "web_0"
    assert got["FOREWARN_EVENT_FIRST_NAMED"] == "yes"
    assert got["MESSAGE"].startswith("Reboot of web_0 web_1 (Platform) is scheduled")


def test_syslog_gets_one_line_with_priority_and_name(tmp_path: Path) -> None:
    path = str(tmp_path / "log")
    options = {"to": "syslog", "socket": path, "facility": "local3", "identifier": "vm"}
    with listening(path) as here:
        assert run("log", told(options, part="recover"))[0] == 0
        line = here.recv(65536).decode()
    assert re.match(r"<157>[A-Z][a-z]{2} [ 0-9]\d \d\d:\d\d:\d\d vm\[\d+\]: Reboot of ", line)
    assert "is over" in line
    assert f"event_id={EVENT['EventId']} part=recover" in line


def test_another_machine_gets_a_line_of_rfc_5424() -> None:
    with listening() as here:
        host, port = here.getsockname()
        assert run("log", told({"to": f"udp:{host}:{port}"}))[0] == 0
        line = here.recv(65536).decode()
    expected = (
        r"<29>1 \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z \S+ forewarn-guest \d+ prepare - Reboot "
    )
    assert re.match(expected, line)


def test_nothing_in_an_event_adds_a_field_or_a_line(tmp_path: Path) -> None:
    names = ("EventId", "EventType", "Description", "NotBefore", "EventSource")
    event = {**EVENT, **dict.fromkeys(names, HOSTILE), "Resources": [HOSTILE]}
    path = str(tmp_path / "socket")
    with listening(path) as here:
        assert run("log", told({"socket": path}))[0] == 0
        harmless = fields(here.recv(65536))
        assert run("log", told({"socket": path}, event=event, vm=HOSTILE))[0] == 0
        hostile = fields(here.recv(65536))
        assert set(hostile) == set(harmless)
        assert hostile["PRIORITY"] == "5"
        options = {"to": "syslog", "socket": path}
        assert run("log", told(options, event=event, vm=HOSTILE))[0] == 0
        assert here.recv(65536).decode().isprintable()


def test_a_huge_event_is_cut_and_one_without_anything_is_logged(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    huge = {**EVENT, "Description": "\u20ac" * 50_000, "Resources": ["x" * 5000] * 100}
    with listening(path) as here:
        for options in ({"socket": path}, {"to": "syslog", "socket": path}):
            assert run("log", told(options, event=huge))[0] == 0
            assert len(here.recv(1 << 20)) < 65536
            assert run("log", told(options, event={}, vm=None, part=None))[0] == 0
            assert here.recv(65536)


def test_where_nothing_listens_the_step_fails_in_time_and_says_where(tmp_path: Path) -> None:
    code, _out, problems = run("log", told({"socket": str(tmp_path / "none"), "limit": 1}))
    assert code == 1
    assert is_one_line(problems)
    assert str(tmp_path / "none") in problems


def test_a_machine_without_a_log_loses_seconds_to_it_and_not_the_notice(tmp_path: Path) -> None:
    given = told({"socket": str(tmp_path / "none"), "limit": 300}, seconds_left=300)
    code, _out, _problems = run("log", given)  # ends long before its time: it tries for 5 s
    assert code == 1
