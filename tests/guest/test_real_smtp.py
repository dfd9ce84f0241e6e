"""The step `email` against a real mail server: exim, which takes mail and keeps it in its queue.

exim is run for each connection with the connection as its standard input, as inetd would, so that
the port can be any.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email import message_from_string
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest

from programs import program
from support.guest_steps_world import EVENT, PATIENCE_S, run_step

CONFIGURATION = """
primary_hostname = mail.example.org
spool_directory = {folder}/spool
log_file_path = {folder}/spool/%slog
queue_only = true
host_lookup =
rfc1413_hosts =
disable_ipv6 = true
keep_environment =
tls_advertise_hosts = *
tls_certificate = {folder}/cert.pem
tls_privatekey = {folder}/key.pem
auth_advertise_hosts = ${{if eq{{$tls_in_cipher}}{{}}{{}}{{*}}}}
acl_smtp_rcpt = rcpt
acl_smtp_data = accept
begin acl
rcpt:
  deny local_parts = unknown
       message = no such receiver
  defer local_parts = later
       message = come back later
  accept local_parts = secure
         authenticated = *
  deny local_parts = secure
       message = log in first
  accept
begin routers
none:
  driver = accept
  transport = none
begin transports
none:
  driver = appendfile
  file = /dev/null
begin authenticators
plain:
  driver = plaintext
  public_name = PLAIN
  server_prompts = :
  server_condition = ${{if and{{{{eq{{$auth2}}{{guest}}}}{{eq{{$auth3}}{{s3cr3t w:ord}}}}}}}}
  server_set_id = $auth2
"""


@dataclass(frozen=True)
class Exim:
    """An exim whose queue can be read."""

    command: tuple[str, ...]
    folder: Path
    place: str

    def asked(self, *arguments: str) -> str:
        command = [*self.command[:-1], *arguments]  # without the last, which is to talk SMTP
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=PATIENCE_S
        )
        return done.stdout

    def mails(self) -> list[EmailMessage]:
        ids = [line.split()[2] for line in self.asked("-bpr").splitlines() if "<" in line]
        texts = [self.asked("-Mvc", each) for each in ids]
        return [message_from_string(text, policy=default) for text in texts]

    def step(self, **more: Any) -> tuple[int, str, str]:
        options = {"from": "vm@example.org", "to": "ops@example.org", "server": self.place}
        return run_step("email", {**options, **more})


def make_certificate(folder: Path) -> None:
    openssl = program("openssl")
    request = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    name = ["-addext", "subjectAltName=IP:127.0.0.1"]
    command = [openssl, *request.split(), *name, *files]
    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)


@contextlib.contextmanager
def serving(command: Sequence[str]) -> Iterator[tuple[str, int]]:
    """A port where an exim is run for each connection, one after the other."""
    ending = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                channel, _peer = listener.accept()
                with channel:
                    if ending.is_set():
                        return
                    subprocess.run(
                        command,
                        stdin=channel.fileno(),
                        stdout=channel.fileno(),
                        stderr=subprocess.DEVNULL,
                        check=False,
                        timeout=PATIENCE_S,
                    )

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield listener.getsockname()
        finally:
            ending.set()
            socket.create_connection(listener.getsockname(), PATIENCE_S).close()
            thread.join()


@pytest.fixture
def exim() -> Iterator[Exim]:
    path = program("exim4")
    if os.getuid() != 0:
        pytest.skip("exim takes mail as its own user, which only root can let it")
    user = pwd.getpwnam("Debian-exim")
    with tempfile.TemporaryDirectory(prefix="forewarn-exim-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # its user must reach its queue
        make_certificate(folder)
        (folder / "exim.conf").write_text(CONFIGURATION.format(folder=folder))
        (folder / "spool").mkdir()
        for owned in ("spool", "key.pem"):
            os.chown(folder / owned, user.pw_uid, user.pw_gid)
        command = (path, "-C", str(folder / "exim.conf"), "-bs")
        with serving(command) as (host, port):
            yield Exim(command, folder, f"{host}:{port}")


def test_a_mail_with_the_facts_is_in_the_queue(exim: Exim) -> None:
    code, out, problems = exim.step()
    assert (code, problems) == (0, "")
    assert "took the mail" in out
    (mail,) = exim.mails()
    assert mail["From"] == "vm@example.org"
    assert mail["To"] == "ops@example.org"
    assert mail["Subject"].startswith("[web-0] Reboot of web-0 web-1 (Platform) is scheduled")
    assert f"Description: {EVENT['Description']}" in mail.get_content()


def test_starttls_and_a_login_from_a_file(exim: Exim) -> None:
    login = exim.folder / "login"
    login.write_text("guest\ns3cr3t w:ord\n")
    options = {"to": "secure@example.org", "tls": "starttls"}
    options["ca_file"] = str(exim.folder / "cert.pem")
    code, _out, problems = exim.step(**options)
    assert code == 1
    assert "log in first" in problems
    code, _out, problems = exim.step(**options, login_file=str(login))
    assert (code, problems) == (0, "")
    assert len(exim.mails()) == 1
    login.write_text("guest\nwrong\n")
    code, out, problems = exim.step(**options, login_file=str(login))
    assert code == 1
    assert "535" in problems
    assert "wrong" not in out + problems


def test_a_connection_that_is_secret_from_its_beginning(exim: Exim) -> None:
    with serving([*exim.command, "-tls-on-connect"]) as (host, port):
        options = {"tls": "implicit", "server": f"{host}:{port}"}
        code, _out, problems = exim.step(**options)
        assert code == 1
        assert "not trusted" in problems
        code, _out, problems = exim.step(**options, ca_file=str(exim.folder / "cert.pem"))
        assert (code, problems) == (0, "")
    assert len(exim.mails()) == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(exim: Exim) -> None:
    code, _out, problems = exim.step(tls="starttls")
    assert code == 1
    assert "not trusted" in problems
    assert exim.mails() == []


def test_who_is_not_known_fails_and_who_may_come_later_is_tried_again(exim: Exim) -> None:
    code, _out, problems = exim.step(to="unknown@example.org")
    assert code == 1
    assert "no such receiver" in problems
    code, _out, problems = exim.step(to="later@example.org", limit=3)
    assert code == 1
    assert "come back later" in problems
    assert "tried" in problems
    code, _out, problems = exim.step(to=["ops@example.org", "unknown@example.org"])
    assert code == 1
    assert "but not for unknown@example.org" in problems
    assert len(exim.mails()) == 1


def test_a_hostile_event_is_one_mail_to_whom_it_was_for(exim: Exim) -> None:
    hostile = "x\r\nBcc: evil@example.org\r\n.\r\nRCPT TO:<evil@example.org>\r\n"
    event = {**EVENT, "Description": hostile, "EventType": hostile, "EventId": hostile}
    options = {"from": "vm@example.org", "to": "ops@example.org", "server": exim.place}
    code, _out, problems = run_step("email", options, event=event)
    assert (code, problems) == (0, "")
    (mail,) = exim.mails()
    assert mail["Bcc"] is None
    receivers = exim.asked("-bpr").split("<vm@example.org>")[1].split()
    assert receivers == ["ops@example.org"]
