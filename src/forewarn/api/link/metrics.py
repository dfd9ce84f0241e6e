"""Numbers of the link for /metrics: who has joined, who is silent, what was answered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from forewarn.core.model import SECOND_MS
from forewarn.metrics import Family, counters, gauge, gauges
from forewarn.wire import link as wire

VERSIONS = ("same", "older", "newer", "unknown")  # as `compared` says it


def compared(version: str) -> str:
    """How a version of the link is beside that of this control."""
    theirs, ours = _numbers(version), _numbers(wire.LINK_VERSION)
    if theirs is None or ours is None:
        return "unknown"
    if theirs == ours:
        return "same"
    return "older" if theirs < ours else "newer"


def _numbers(version: str) -> tuple[int, ...] | None:
    parts = version.split(".")
    short = all(part.isascii() and part.isdecimal() and len(part) <= 4 for part in parts)
    return tuple(map(int, parts)) if short and len(parts) == 2 else None


class LinkMetrics:
    """Counts answers, and asks the others at a scrape. On the event loop."""

    def __init__(
        self,
        *,
        members: Callable[[], Sequence[str]],
        silent_ms: Callable[[str], int],
        refuses: Callable[[str], bool],
        two_daemons: Callable[[str], bool],
        waiting: Callable[[], int],
        handshakes: Callable[[], int],
        speaks: Callable[[str, str], None] = lambda _host, _version: None,
    ) -> None:
        self._speaks = speaks
        self._members = members
        self._silent_ms = silent_ms
        self._refuses = refuses
        self._two_daemons = two_daemons
        self._waiting = waiting
        self._handshakes = handshakes
        self._answers: Counter[tuple[str, str]] = Counter()
        self._versions: dict[str, str] = {}

    def answered(self, question: str, status: int) -> None:
        """One question was answered. `question` is one of a few names, never what a host sent."""
        self._answers[question, str(status)] += 1

    def spoke(self, host: str, version: str) -> None:
        """A member said which version of the link it speaks."""
        if self._versions.get(host) != version:
            self._versions[host] = version
            self._speaks(host, version)

    def collect(self) -> Iterator[Family]:
        members = self._members()
        self._versions = {name: self._versions.get(name, "") for name in members}
        spoken = Counter(map(compared, self._versions.values()))
        yield gauges(
            "forewarn_link_hosts",
            "Hosts that have joined, by the version of the link they speak beside that of control.",
            ("version",),
            [((one,), spoken[one]) for one in VERSIONS],
        )
        yield gauge("forewarn_link_members", "Hosts that have joined.", len(members))
        yield gauge(
            "forewarn_link_waiting",
            "Questions of hosts that wait for a change now; one for each host is right.",
            self._waiting(),
        )
        yield gauge(
            "forewarn_link_handshakes",
            "Connections to the link that have not finished TLS now; normally few.",
            self._handshakes(),
        )
        yield gauges(
            "forewarn_link_silent_seconds",
            "For how long a host that has joined was not heard, since control started.",
            ("host",),
            [((name,), self._silent_ms(name) / SECOND_MS) for name in members],
        )
        yield gauges(
            "forewarn_link_refusing",
            "1 for a host that takes no orders from this control; `host show` has its words.",
            ("host",),
            [((name,), int(self._refuses(name))) for name in members],
        )
        yield gauges(
            "forewarn_link_two_daemons",
            "1 for a host as which two daemons speak; neither is given anything to do.",
            ("host",),
            [((name,), int(self._two_daemons(name))) for name in members],
        )
        yield counters(
            "forewarn_link_answers",
            "Answers to hosts, by question and status.",
            ("question", "status"),
            sorted(self._answers.items()),
        )
