"""The terminal at the top of the README: real commands, really run, and what they printed.

The emulator with a seed prints the same each time, so a test can say whether the picture is still
true. Only ports and paths are put in place afterwards: it is run on free ports, in an empty folder.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMNS = 96
WAIT_S = 60
FIRST = "a cloud with one VM, on your laptop"
SIMULATE = "forewarn simulate --seed 7"
GUEST = "127.0.0.1:8254"
URL = f"http://{GUEST}/metadata/scheduledevents?api-version=2020-07-01"
APPROVE = """curl -s -H Metadata:true "$URL" -w '%{http_code}\\n' \\
    -d '{"StartRequests":[{"EventId":"EVENT"}]}'"""
# A comment and what is typed; EVENT becomes the id that the first command prints.
STEPS = (
    ("be the cloud: announce a restart", "forewarn vm restart vm0"),
    (
        "be the VM: read what will happen",
        f"URL='{URL}'\ncurl -s -H Metadata:true \"$URL\" | python3 -m json.tool --indent 1",
    ),
    (
        "ten minutes later the VM has drained, and says go ahead",
        "forewarn clock advance 10m > /dev/null",
    ),
    (
        "",
        APPROVE,
    ),
    ("the reboot is done; the receipt proves the notice", "forewarn clock advance 1m"),
    ("", "forewarn event show EVENT | tail -9"),
)
THEME = TerminalTheme(
    (31, 36, 44),
    (220, 226, 232),
    [
        *((60, 66, 74), (230, 110, 110), (130, 200, 130), (225, 190, 110)),
        *((120, 170, 235), (200, 150, 220), (110, 200, 205), (220, 226, 232)),
    ],
)
# As Rich has it, without fonts from another server: what a reader's machine has will do.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" role="img" \
xmlns="http://www.w3.org/2000/svg">
<title>Forewarn in a terminal: a restart is announced, read, approved and proved</title>
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@contextmanager
def emulator(folder: Path) -> Iterator[dict[str, str]]:
    """`forewarn simulate` on free ports; the environment in which commands find it."""
    environment = {**os.environ, "FOREWARN_DATA": str(folder), "COLUMNS": str(COLUMNS), "TZ": "UTC"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    ports = ["--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0", "--json"]
    with subprocess.Popen(
        [*SIMULATE.split(), *ports], env=environment, stdout=subprocess.PIPE, text=True
    ) as running:
        try:
            assert running.stdout is not None
            where = json.loads(running.stdout.readline())
            yield {**environment, "REAL_GUEST": where["vm_urls"]["vm0"].removeprefix("http://")}
        finally:
            running.terminate()
            running.wait(WAIT_S)


def said(command: str, environment: Mapping[str, str]) -> str:
    """What a command prints, with the address that the reader would have. CalledProcessError."""
    ran = subprocess.run(
        ["sh", "-c", f"URL='{URL}'\n{command}".replace(GUEST, environment["REAL_GUEST"])],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    return (ran.stdout + ran.stderr).replace(environment["REAL_GUEST"], GUEST)


def session() -> Iterator[tuple[str, str, str]]:
    """Each comment and command with what it printed."""
    event = "EVENT"
    with tempfile.TemporaryDirectory() as folder, emulator(Path(folder)) as environment:
        yield FIRST, f"{SIMULATE} &", ""
        for comment, command in STEPS:
            typed = command.replace("EVENT", event)
            printed = said(typed, environment)
            found = re.search(r"event ([0-9A-F-]{36})", printed)
            event = found[1] if found and event == "EVENT" else event
            yield comment, typed, printed


def picture() -> str:
    """The session as SVG. CalledProcessError without curl."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False
    )
    for comment, command, printed in session():
        if comment and comment != FIRST:
            console.print()
        if comment:
            console.print(Text(f"# {comment}", Style(color="cyan")))
        for line in command.splitlines():
            prompt = "" if line.startswith(" ") else "$ "
            console.print(Text.assemble((prompt, "bold green"), (line, "bold")))
        if printed:
            console.print(Text(printed.rstrip("\n")))
    return console.export_svg(
        title="forewarn", theme=THEME, code_format=FORMAT, unique_id="forewarn"
    )


def record(file: Path) -> None:
    """Write the picture."""
    file.write_text(picture(), encoding="utf-8")
