"""What a check is: an id, a sentence, its source, what it cannot see, and a function that looks.

Only values and the two ways in which a look can end early live here. Which checks there are is in
the topic modules; `table` puts them in order, `runner` runs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forewarn.verify.probe import Probe

SHOWN_CHARS_MAX = 300


class Level(StrEnum):
    """What a check may do to the endpoint, and so what has to be asked for."""

    READ = "read"  # GETs, a HEAD, and a PUT without a body, which is to be refused
    APPROVE = "approve"  # POSTs, also such as start an event
    OPERATOR = "operator"  # has events scheduled by the operator's command
    BURST = "burst"  # goes beyond the rate limit


class Failed(Exception):  # noqa: N818 - a verdict, not an error
    """The endpoint does not do what the sentence says."""

    def __init__(self, seen: object, expected: str) -> None:
        super().__init__(f"seen: {seen}; expected: {expected}")
        self.seen = shown(seen) or "nothing"
        self.expected = expected


class Skipped(Exception):  # noqa: N818 - a verdict, not an error
    """The check could not look; the text says why."""


Look = Callable[["Probe"], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One sentence about the endpoint and the function that checks it.

    `source` is a fact id of the contract, a section of the design or an RFC. `not_checked` says
    what an endpoint can still get wrong while the check passes. `choice` marks what Forewarn
    decided where the real service is not known to do so, or does otherwise. A check is skipped
    unless every check that it `needs` has passed. Those that it comes `after` are made before it,
    because it judges what they saw, whatever their verdict is.
    """

    id: str
    topic: str
    sentence: str
    source: str
    not_checked: str
    look: Look
    level: Level = Level.READ
    needs: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    choice: bool = False


class Topic:
    """The checks about one thing, in the order in which they run."""

    def __init__(
        self, name: str, title: str, *, level: Level = Level.READ, needs: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.title = title
        self.checks: list[Check] = []
        self._level = level
        self._needs = needs

    def check(
        self,
        check_id: str,
        sentence: str,
        source: str,
        *,
        not_checked: str,
        level: Level | None = None,
        needs: tuple[str, ...] = (),
        after: tuple[str, ...] = (),
        choice: bool = False,
    ) -> Callable[[Look], Look]:
        """Add the decorated function as a check. `needs` come on top of those of the topic."""

        def add(look: Look) -> Look:
            self.checks.append(
                Check(
                    id=check_id,
                    topic=self.name,
                    sentence=sentence,
                    source=source,
                    not_checked=not_checked,
                    look=look,
                    level=level or self._level,
                    needs=(*self._needs, *needs),
                    after=after,
                    choice=choice,
                )
            )
            return look

        return add


def expect(condition: object, seen: object, expected: str) -> None:
    """Fail unless the condition holds."""
    if not condition:
        raise Failed(seen, expected)


def shown(what: object) -> str:
    """Something the endpoint sent, as one printable line of bounded length."""
    text = str(what)
    line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: SHOWN_CHARS_MAX + 1])
    return line if len(line) <= SHOWN_CHARS_MAX else line[: SHOWN_CHARS_MAX - 3] + "..."
