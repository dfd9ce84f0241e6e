"""Webhooks of real processes: what a kill -9 does to them, the command line, and the emulator."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from support.simulate_process import simulating
from support.system_world import QUICK, Service, running
from support.waiting import WAIT_S, wait_until

SETTINGS = {**QUICK, "FOREWARN_WEBHOOK_TARGETS": "127.0.0.0/8"}


class Inbox:
    """What a receiver on a thread of its own was sent; `on_line` is called before it answers."""

    def __init__(self) -> None:
        self.received: list[dict[str, Any]] = []
        self.on_line: Callable[[int], None] = lambda _: None
        self.url = ""

    @property
    def numbers(self) -> list[int]:
        return [one["data"]["number"] for one in self.received if "number" in one["data"]]


@contextmanager
def receiving() -> Iterator[Inbox]:
    inbox = Inbox()

    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            inbox.received.append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.wfile.flush()
            inbox.on_line(len(inbox.received))

        def log_message(self, *_: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver) as server:
        inbox.url = f"http://127.0.0.1:{server.server_address[1]}/"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield inbox
        finally:
            server.shutdown()
            thread.join()


def work(service: Service, times: int = 5) -> None:
    for _ in range(times):
        for verb in ("close", "open"):
            service.order(f"hosts/h3/{verb}")


def has_all(service: Service, inbox: Inbox) -> None:
    last = service.journal()[-1]["number"]
    wait_until(lambda: last in inbox.numbers, "the receiver has all of it")


def test_over_kills_of_the_service_a_receiver_misses_nothing_and_the_order_stays(
    tmp_path: Path,
) -> None:
    with receiving() as inbox, running(tmp_path, settings=SETTINGS) as service:
        made = service.cli("webhook", "add", "ops", inbox.url, "--from", "oldest")
        assert made.returncode == 0, made
        assert made.stdout.startswith("whsec_")
        has_all(service, inbox)
        for _ in range(3):
            killed = threading.Event()
            after = len(inbox.received) + 3

            def kill(count: int, after: int = after, killed: threading.Event = killed) -> None:
                """Between its answer and the commit that keeps it."""
                if count == after:
                    service.process.kill()
                    killed.set()

            inbox.on_line = kill
            with suppress(OSError, AssertionError):  # it is killed under the orders
                while not killed.is_set():
                    work(service, 1)
            assert killed.wait(WAIT_S)
            service.kill()
            service.start()
            has_all(service, inbox)
        inbox.on_line = lambda _: None
        work(service)
        has_all(service, inbox)
        found = inbox.numbers
        assert sorted(set(found)) == [line["number"] for line in service.journal()]
        # What came again was what had come last: nothing was overtaken.
        firsts = list(dict.fromkeys(found))
        assert firsts == sorted(firsts)


def test_the_command_line_adds_tests_and_ends_a_webhook(tmp_path: Path) -> None:
    with receiving() as inbox, running(tmp_path, settings=SETTINGS) as service:
        refused = service.cli("webhook", "add", "ops", "https://169.254.169.254/")
        assert refused.returncode == 1
        assert "link-local" in refused.stderr
        assert "webhook_targets" in refused.stderr
        for arguments in (
            ("add", "ops", inbox.url, "--format", "text", "--kind", "started"),
            ("change", "ops", "--everything", "--batch", "5"),
            ("rotate", "ops", "--overlap", "1h"),
            ("replay", "ops", "--from", "end"),
            ("disable", "ops"),
            ("enable", "ops"),
        ):
            ran = service.cli("webhook", *arguments)
            assert ran.returncode == 0, ran
        tested = service.cli("webhook", "test", "ops")
        assert "Answered 200" in tested.stdout
        texts = [one["text"] for one in inbox.received]
        assert sum(text.startswith("Test: the webhook ops") for text in texts) == 1
        listed = service.cli("webhook", "list").stdout
        assert "ops" in listed
        assert "text" in listed
        shown = service.cli("webhook", "show", "ops").stdout
        assert inbox.url in shown
        assert "whsec_" not in shown
        assert service.metric('forewarn_webhooks{condition="ok"}') == 1
        assert service.cli("webhook", "remove", "ops").returncode == 0
        assert "There are no webhooks." in service.cli("webhook", "list").stdout


def test_a_test_that_was_not_taken_is_a_failure_of_the_command(tmp_path: Path) -> None:
    with receiving() as inbox:
        url = inbox.url  # where none listens in a moment
    with running(tmp_path, settings=SETTINGS) as service:
        assert service.cli("webhook", "add", "ops", url).returncode == 0
        tested = service.cli("webhook", "test", "ops")
        assert tested.returncode == 1
        assert "No answer" in tested.stdout
        assert "has not taken it" in tested.stderr


def test_the_emulator_tells_a_receiver_on_this_machine(tmp_path: Path) -> None:
    with receiving() as inbox, simulating(tmp_path) as emulator:
        emulator.said("webhook", "add", "app", inbox.url, "--kind", "scheduled")
        emulator.said("vm", "restart", "vm0")
        wait_until(lambda: inbox.received, "the receiver is told")
        assert inbox.received[0]["type"] == "io.forewarn.event.scheduled.v1"


def test_the_example_mails_what_people_want_to_know(tmp_path: Path) -> None:
    sent = tmp_path / "sent"
    sendmail = tmp_path / "sendmail"
    sendmail.write_text(f'#!/bin/sh\ncat >> "{sent}"\necho "$@" >> "{sent}"\n')
    sendmail.chmod(0o755)
    example = Path(__file__).parents[2] / "examples" / "feed-mail" / "mail.sh"
    with running(tmp_path) as service:
        where = ":".join(map(str, service.operator_where()))
        environment = {
            **service.environment,
            "SENDMAIL": str(sendmail),
            "FOREWARN_URL": f"http://{where}",
            "FOREWARN_TOKEN": service.token(),
        }
        mailing = subprocess.Popen(
            [str(example), str(tmp_path / "place"), "ops@example.com"],
            stdin=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,
        )
        try:
            event_id = service.order("vms/vm0/restart")["event_id"]
            wait_until(
                lambda: sent.exists() and event_id[:8] in sent.read_text().partition("-t")[0]
            )
        finally:
            os.killpg(mailing.pid, signal.SIGKILL)
            mailing.wait()
    mail = sent.read_text()
    assert mail.startswith("To: ops@example.com\nSubject: [forewarn] Announced: Reboot of vm0")
