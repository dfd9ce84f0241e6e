"""The step `log` against a real syslogd: rsyslog, with a socket and a port of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from programs import program
from support.guest_steps_world import EVENT, run_step, running
from support.waiting import wait_until

CONFIGURATION = """
global(workDirectory="{folder}" net.enableDNS="off")
module(load="imuxsock" SysSock.Use="off")
module(load="imudp")
template(name="fields" type="string"
  string="%syslogfacility-text%|%syslogseverity-text%|%app-name%|%procid%|%msgid%|%msg%\\n")
input(type="imuxsock" Socket="{folder}/log" CreatePath="off")
input(type="imudp" address="127.0.0.1" port="0")
action(type="omfile" file="{folder}/lines" template="fields")
"""


@dataclass(frozen=True)
class Syslog:
    """An rsyslog that writes the fields of each line, divided by bars."""

    folder: Path
    port: int

    def lines(self) -> list[list[str]]:
        path = self.folder / "lines"
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [line.split("|", 5) for line in text.splitlines()]


def udp_port(pid: int) -> int:
    """The loopback port that a process has, 0 while it has none."""
    inodes = {
        str(link.readlink())[len("socket:[") : -1]
        for link in Path(f"/proc/{pid}/fd").iterdir()
        if str(link.readlink()).startswith("socket:[")
    }
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in inodes:
            return int(fields[1].partition(":")[2], 16)
    return 0


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[Syslog]:
    rsyslogd = program("rsyslogd")
    (tmp_path / "conf").write_text(CONFIGURATION.format(folder=tmp_path))
    command = [rsyslogd, "-n", "-f", str(tmp_path / "conf"), "-i", str(tmp_path / "pid")]
    with (tmp_path / "said").open("wb") as said, running(command, stdout=said, stderr=said) as here:
        wait_until((tmp_path / "log").exists, "rsyslog starts")
        wait_until(lambda: udp_port(here.pid) > 0, "rsyslog opens a port")
        yield Syslog(tmp_path, udp_port(here.pid))


def test_rsyslog_reads_facility_priority_name_and_message(syslog: Syslog) -> None:
    options = {"to": "syslog", "socket": str(syslog.folder / "log"), "facility": "local3"}
    code, _out, problems = run_step("log", {**options, "priority": "warning", "identifier": "vm"})
    assert (code, problems) == (0, "")
    wait_until(lambda: len(syslog.lines()) == 1, "rsyslog writes a line")
    ((facility, severity, name, pid, _id, message),) = syslog.lines()
    assert (facility, severity, name) == ("local3", "warning", "vm")
    assert pid.isdigit()
    assert message.strip().startswith("Reboot of web-0 web-1 (Platform) is scheduled")
    assert str(EVENT["Description"]) in message
    assert message.endswith(f"event_id={EVENT['EventId']} part=prepare")


def test_rsyslog_reads_what_comes_over_udp(syslog: Syslog) -> None:
    code, _out, problems = run_step("log", {"to": f"udp:127.0.0.1:{syslog.port}"})
    assert (code, problems) == (0, "")
    wait_until(lambda: len(syslog.lines()) == 1, "rsyslog writes a line")
    ((facility, severity, name, pid, msgid, message),) = syslog.lines()
    assert (facility, severity, name) == ("daemon", "notice", "forewarn-guest")
    assert pid.isdigit()
    assert msgid == "prepare"
    assert str(EVENT["Description"]) in message


def test_a_hostile_event_is_one_line_of_one_priority(syslog: Syslog) -> None:
    hostile = "x\n<0>Mar  1 00:00:00 kernel: panic\r\n\x00\x1b[31m"
    event = {**EVENT, "Description": hostile, "EventType": hostile, "Resources": [hostile]}
    options = {"to": "syslog", "socket": str(syslog.folder / "log")}
    for each in (options, {"to": f"udp:127.0.0.1:{syslog.port}"}):
        assert run_step("log", each, event=event)[0] == 0
    assert run_step("log", {**options, "identifier": "last"})[0] == 0
    wait_until(
        lambda: any(line[2] == "last" for line in syslog.lines()), "the last line is written"
    )
    wait_until(lambda: len(syslog.lines()) == 3, "there is one line for each step")
    assert {tuple(line[:2]) for line in syslog.lines()} == {("daemon", "notice")}
