"""The pages about the configuration say what the code does, and every example on them is read."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from config_reference import PAGE, REGENERATE, page
from forewarn_guest.config_file import parse
from forewarn_guest.config_keys import AGENT, RULE, STEP
from forewarn_guest.configuration import Configuration, Part
from forewarn_guest.deciding import steps_of
from forewarn_guest.steps import KINDS
from programs import needs

ROOT = PAGE.parent.parent
GUIDE = ROOT / "docs" / "guest.md"
README = ROOT / "guest" / "README.md"
EXAMPLES = sorted((ROOT / "examples" / "guest").glob("*.toml"))
TOML = re.compile(r"^```toml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
STEP_SECONDS_MAX = 30


def read(text: str, where: str) -> Configuration:
    """As on a VM that has every program."""
    return parse(text, where, lambda program: program)


def blocks(path: Path) -> list[str]:
    return TOML.findall(path.read_text(encoding="utf-8"))


def test_the_reference_says_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), (
        f"docs/{PAGE.name} is stale; run `{REGENERATE}`."
    )


def test_every_key_and_option_is_in_the_reference() -> None:
    text = page()
    for name in (*AGENT, *RULE, *STEP):
        assert f"| `{name}` |" in text
    for kind in KINDS.values():
        assert f"\n### {kind.name}\n" in text
        for option in set(kind.options) - {"limit"}:
            assert f"`{option}`" in text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_read_without_a_warning(path: Path) -> None:
    configuration = read(path.read_text(encoding="utf-8"), path.name)
    assert configuration.warnings == ()
    assert configuration.rules


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_stands_in_the_guide_as_it_is(path: Path) -> None:
    shown = f"`examples/guest/{path.name}`:\n\n```toml\n{path.read_text(encoding='utf-8')}```\n"
    assert shown in GUIDE.read_text(encoding="utf-8")


def test_the_examples_show_every_kind_of_step() -> None:
    shown = {
        step.kind
        for path in EXAMPLES
        for rule in read(path.read_text(encoding="utf-8"), path.name).rules
        for _, step in steps_of(rule)
    }
    assert shown == {*KINDS, "run", "shell"}


@pytest.mark.parametrize("path", [GUIDE, README], ids=lambda path: path.name)
def test_every_configuration_on_a_page_is_read(path: Path) -> None:
    found = blocks(path)
    assert found
    for text in found:
        assert read(text, path.name).rules
    assert len(found[0].splitlines()) <= 10


@contextmanager
def patroni(primary: int, switchover: int) -> Iterator[tuple[str, list[str]]]:
    """A member of Patroni that answers with these codes; where it is, and what was asked of it."""
    asked: list[str] = []

    class Member(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"GET {self.path}")
            self.answer(primary)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append(f"POST {self.path} {body}")
            self.answer(switchover)

        def answer(self, code: int) -> None:
            self.send_response(code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = HTTPServer(("127.0.0.1", 0), Member)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@needs("curl")
@pytest.mark.parametrize(
    ("primary", "switchover", "code", "calls"),
    [(503, 200, 0, 1), (200, 200, 0, 2), (200, 412, 22, 2), (500, 200, 1, 1)],
)
def test_the_step_for_patroni_hands_over_only_what_it_has(
    primary: int, switchover: int, code: int, calls: int
) -> None:
    text = (ROOT / "examples" / "guest" / "patroni.toml").read_text(encoding="utf-8")
    (step,) = read(text, "patroni.toml").rules[0].steps(Part.PREPARE)
    with patroni(primary, switchover) as (address, asked):
        argv = [argument.replace("127.0.0.1:8008", address) for argument in step.argv]
        ended = subprocess.run(argv, timeout=STEP_SECONDS_MAX, capture_output=True, check=False)
    assert ended.returncode == code
    assert asked[0] == "GET /primary"
    assert len(asked) == calls
    if calls > 1:
        assert re.fullmatch(r'POST /switchover \{"leader": "[^"]+"\}', asked[1])
