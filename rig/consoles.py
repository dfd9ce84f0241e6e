"""What guests say: their consoles, read as they are written, with the time of arrival."""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

LOOK_EVERY_S = 0.02
_LINE = re.compile(r"fw (\w+) (name=.*)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a guest. `at_s` is when it came out, by the monotonic clock of this machine."""

    at_s: float
    kind: str
    vm: str
    boot: str
    uptime_s: float
    words: dict[str, str]

    @property
    def answered(self) -> bool:
        return self.words.get("status") == "200"

    def events(self) -> dict[str, tuple[str, str]]:
        """EventId -> (type, status) as the guest saw them."""
        text = self.words.get("events", "-")
        if text == "-":
            return {}
        parts = (event.split(":") for event in text.split(","))
        return {part[0]: (part[1], part[2]) for part in parts}


def parse(text: str, at_s: float) -> Line | None:
    """A line of the guest's program; None for anything else, and for half a line."""
    found = _LINE.search(text)
    if found is None:
        return None
    words = dict(word.partition("=")[::2] for word in found[2].split())
    try:
        return Line(
            at_s=at_s,
            kind=found[1],
            vm=words.pop("name"),
            boot=words.pop("boot"),
            uptime_s=float(words.pop("up")),
            words=words,
        )
    except (KeyError, ValueError):
        return None  # cut off by a power failure


class Consoles:
    """All consoles of a folder (`VM.log`), followed by a thread of its own. Use with `with`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lines: dict[str, list[Line]] = {}
        self._read_to: dict[Path, int] = {}
        self._rest: dict[Path, bytes] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="consoles", daemon=True)

    def __enter__(self) -> Consoles:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        why: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def path(self, vm: str) -> Path:
        return self.folder / f"{vm}.log"

    def lines(self, vm: str) -> list[Line]:
        """Everything a guest has said so far."""
        return list(self._lines.get(vm, ()))

    def last_poll(self, vm: str, *, since_s: float = 0.0) -> Line | None:
        """The newest poll that was answered with a document after an instant."""
        for line in reversed(self.lines(vm)):
            if line.at_s <= since_s:
                return None
            if line.kind == "poll" and line.answered:
                return line
        return None

    def _follow(self) -> None:
        while not self._stop.wait(LOOK_EVERY_S):
            for path in sorted(self.folder.glob("*.log")):
                self._read(path)

    def _read(self, path: Path) -> None:
        begin = self._read_to.get(path, 0)
        if path.stat().st_size <= begin:
            return
        with path.open("rb") as file:
            file.seek(begin)
            content = file.read()
        at_s = time.monotonic()
        self._read_to[path] = begin + len(content)
        whole, _, self._rest[path] = (self._rest.get(path, b"") + content).rpartition(b"\n")
        for text in whole.decode("utf-8", "replace").splitlines():
            line = parse(text.rstrip("\r"), at_s)
            if line is not None:
                self._lines.setdefault(path.stem, []).append(line)
