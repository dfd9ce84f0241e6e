"""The SDK where Python has none of the modules that only POSIX systems have, as on Windows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripted_endpoint import Reply, ScriptedEndpoint, document, event

LIMIT_S = 60  # only ends a hang
MAKEFILE = Path(__file__).parents[2] / "Makefile"

# As on Windows: these cannot be imported, and `select` has no poll.
HIDDEN = """
import select, sys
for name in ("fcntl", "pwd", "grp", "termios", "resource"):
    sys.modules[name] = None
del select.poll
if hasattr(select, "epoll"):
    del select.epoll
"""
USES_THE_CLIENT = """
import forewarn_guest
for name in forewarn_guest.__all__:
    getattr(forewarn_guest, name)
with forewarn_guest.Client(sys.argv[1]) as client:
    (event,) = client.document().events
    client.approve(event.event_id)
    print(event.event_type)
    for change in client.watch():
        print(change.what.value, change.event.event_type)
        break
    print(*sorted(one for one in sys.modules if one.startswith("forewarn_guest")))
"""
RUNS_THE_PROGRAM = """
from forewarn_guest.cli import main
sys.exit(main(sys.argv[1:]))
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDDEN + code, *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_the_client_reads_approves_and_watches() -> None:
    def answer(method: str) -> Reply:
        return document(1, event()) if method == "GET" else Reply()

    with ScriptedEndpoint(lambda asked: answer(asked.method)) as endpoint:
        ran = run(USES_THE_CLIENT, endpoint.url)
        methods = [one.method for one in endpoint.asked]
    assert ran.returncode == 0, ran.stderr
    said = ran.stdout.splitlines()
    assert said[:2] == ["Reboot", "appeared Reboot"]
    assert "POST" in methods
    loaded = {one.removeprefix("forewarn_guest.") for one in said[2].split()}
    assert loaded - {"forewarn_guest"} <= checked_for_windows()


def checked_for_windows() -> set[str]:
    """The modules that `make check` looks at as on Windows."""
    if not MAKEFILE.exists():
        pytest.skip("no checkout")
    text = MAKEFILE.read_text(encoding="utf-8")
    lines = re.findall(r"^WINDOWS \+?:?= (?!\$)(.+)$", text, re.MULTILINE)
    return {name for line in lines for name in line.split()}


def test_the_commands_that_only_ask_work_and_the_agent_says_why_it_does_not() -> None:
    with ScriptedEndpoint(document(1, event())) as endpoint:
        listed = run(RUNS_THE_PROGRAM, "list", "--endpoint", endpoint.url)
    assert listed.returncode == 0, listed.stderr
    assert "Reboot" in listed.stdout
    refused = run(RUNS_THE_PROGRAM, "run", "--config", "agent.toml")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.startswith("This command needs Linux: ")
    assert refused.stderr.count("\n") == 1
