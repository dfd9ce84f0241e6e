"""The step `email` with a mail server that says what it is told to say."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest

from steps_world import EVENT, HOSTILE, is_one_line, run, serving, told


class Mailbox:
    """A mail server: `says` maps the begin of a command to answers, one per time it is heard."""

    def __init__(self) -> None:
        self.says: dict[str, list[str]] = {}
        self.heard: list[str] = []
        self.mails: list[bytes] = []
        self.connections = 0
        self.place = ""
        self.hangs_up = False

    def answer(self, line: str) -> str:
        self.heard.append(line)
        for begin, answers in self.says.items():
            if line.startswith(begin) and answers:
                return answers.pop(0)
        verb = line.split(" ", maxsplit=1)[0].upper()
        return {"DATA": "354 go on", "QUIT": "221 bye"}.get(verb, "250 fine")

    def talk(self, channel: socket.socket) -> None:
        self.connections += 1
        stream = channel.makefile("rwb", buffering=0)
        with stream:
            self._send(stream, self.answer("HELLO-FROM-ME") if self.says else "220 here")
            while True:
                line = stream.readline().decode("ascii").rstrip("\r\n")
                if not line:
                    return
                said = self.answer(line)
                self._send(stream, said)
                if line.upper() == "DATA" and said.startswith("354"):
                    lines = list(iter(stream.readline, b".\r\n"))
                    self.mails.append(b"".join(lines))
                    self._send(stream, self.answer("END-OF-MAIL"))
                    if self.hangs_up:
                        return

    def _send(self, stream: Any, said: str) -> None:
        if said == "250 fine" and self.heard[-1:] == ["HELLO-FROM-ME"]:
            said = "220 here"
        stream.write(said.encode() + b"\r\n")


@contextlib.contextmanager
def mailbox(**says: list[str]) -> Iterator[Mailbox]:
    here = Mailbox()
    here.says = {begin.replace("_", "-"): answers for begin, answers in says.items()}
    with serving(here.talk) as (host, port):
        here.place = f"{host}:{port}"
        yield here


def step(here: Mailbox, options: dict[str, Any] | None = None, **more: Any) -> Any:
    least = {"from": "vm@example.org", "to": ["ops@example.org", "b@example.org"]}
    return run("email", told({**least, "server": here.place, **(options or {})}, **more))


def test_the_facts_of_the_event_arrive_as_plain_text() -> None:
    with mailbox() as here:
        code, out, problems = step(here)
    assert (code, problems) == (0, "")
    assert "ops@example.org" in out
    mail = message_from_bytes(here.mails[0], policy=default)
    assert mail["Subject"].startswith("[web_0] Reboot of web_0 web_1 (Platform)")
    assert mail["To"] == "ops@example.org, b@example.org"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert mail.get_content_type() == "text/plain"
    text = mail.get_content()
    assert f"Event id: {EVENT['EventId']}" in text
    assert "Not before: Tue, 03 Mar 2026 10:15:00 GMT" in text
    assert "Description: Host is being updated." in text


def test_nothing_in_an_event_adds_a_header_a_receiver_or_an_end() -> None:
    names = ("EventId", "EventType", "Description", "NotBefore", "EventSource")
    event = {**EVENT, **dict.fromkeys(names, HOSTILE), "Resources": [HOSTILE, "\u20ac" * 3000]}
    with mailbox() as here:
        assert step(here)[0] == 0
        heard = [line for line in here.heard if line.startswith(("mail", "rcpt"))]
        here.heard.clear()
        assert step(here, event=event, vm=HOSTILE, part=HOSTILE)[0] == 0
    assert [line for line in here.heard if line.startswith(("mail", "rcpt"))] == heard
    plain, hostile = (message_from_bytes(mail, policy=default) for mail in here.mails)
    added = set(hostile.keys()) - set(plain.keys())
    assert added <= {"Content-Transfer-Encoding"}
    assert hostile["Bcc"] is None
    assert "Resources:" in hostile.get_content()


def test_a_mail_that_is_sent_again_can_be_told_as_the_same() -> None:
    with mailbox() as here:
        assert step(here)[0] == 0
        assert step(here)[0] == 0
    first, second = (message_from_bytes(mail)["Message-ID"] for mail in here.mails)
    assert first == second


@pytest.mark.parametrize(
    "says",
    [
        {"HELLO_FROM_ME": ["421 too busy"]},
        {"mail": ["451 later"]},
        {"rcpt": ["450 grey", "450 grey"]},
        {"END_OF_MAIL": ["452 full"]},
    ],
    ids=str,
)
def test_what_may_pass_is_tried_again(says: dict[str, list[str]]) -> None:
    with mailbox(**says) as here:
        code, _out, problems = step(here)
    assert (code, problems) == (0, "")
    assert here.connections == 2


@pytest.mark.parametrize(
    "says",
    [
        {"mail": ["550 never"]},
        {"rcpt": ["550 unknown", "550 unknown"]},
        {"END_OF_MAIL": ["554 spam"]},
        {"HELLO_FROM_ME": ["554 go away"]},
    ],
    ids=str,
)
def test_what_time_will_not_mend_fails_at_once(says: dict[str, list[str]]) -> None:
    with mailbox(**says) as here:
        code, _out, problems = step(here)
    assert code == 1
    assert here.connections == 1
    assert is_one_line(problems)
    assert "55" in problems


def test_a_server_that_hangs_up_once_it_has_the_mail_gets_it_once() -> None:
    with mailbox() as here:
        here.hangs_up = True
        code, _out, problems = step(here)
    assert (code, problems) == (0, "")
    assert len(here.mails) == 1


def test_a_receiver_that_is_refused_is_named_and_the_others_get_it_once() -> None:
    with mailbox(rcpt=["250 fine", "550 unknown"]) as here:
        code, _out, problems = step(here)
    assert code == 1
    assert "not for b@example.org" in problems
    assert len(here.mails) == 1


def test_without_starttls_at_the_server_nothing_is_sent_in_the_clear() -> None:
    with mailbox() as here:
        code, _out, problems = step(here, {"tls": "starttls"})
    assert code == 1
    assert here.mails == []
    assert is_one_line(problems)


def test_a_mail_server_that_is_away_or_silent_fails_the_step_in_time() -> None:
    with mailbox() as here:
        pass
    code, _out, problems = step(here, {"limit": 1})
    assert code == 1
    assert "could not be asked" in problems

    def say_nothing(channel: socket.socket) -> None:
        while channel.recv(4096):
            pass

    with serving(say_nothing) as (host, port):
        here.place = f"{host}:{port}"
        code, _out, problems = step(here, {"limit": 1})
    assert code == 1
    assert is_one_line(problems)
