"""The command log: everything that the decisions of a run rest on, in the order of the run.

`Began` is one life of control; `LoggedBatch` is what the writer decides for one commit, and is
given to the log before that commit; `TakenBack` says that the batch before it was not kept. Who
decides the same batches over the same beginning comes to the same journal: nothing else is looked
up. Of the last batch before a process dies the log does not know whether it was kept; the next
`Began` tells, by the number of the last commit. As JSON: `command_json`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from forewarn.control.hosts.liveness import News
from forewarn.core.model import Policy
from forewarn.ports import Ids


class _Entry(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="entry",
):
    pass


class Began(_Entry, frozen=True, kw_only=True, tag="began"):
    """A life of control begins, at this monotonic time, after the commit `position` of its store.

    `powers_hosts` if its hosts are simulated in the same process, and it cuts their power.
    """

    monotonic_ms: int
    position: int
    policy: Policy
    powers_hosts: bool = False


class LoggedBatch(_Entry, frozen=True, kw_only=True, tag="batch"):
    """Commands that one commit was made of, refused ones included, and what they were decided by.

    `heard` is what was heard of hosts since the batch before; `ids` are those that were made.
    """

    now_ms: int
    monotonic_ms: int
    commands: tuple[Any, ...]  # each a Command
    heard: News = News()
    ids: tuple[str, ...] = ()


class TakenBack(_Entry, frozen=True, kw_only=True, tag="taken-back"):
    """Nothing of the batch before was kept."""


Entry = Began | LoggedBatch | TakenBack

# Who keeps the log, on the writer's thread. What it raises fails the batch.
CommandLog = Callable[[LoggedBatch | TakenBack], None]


class NotedIds:
    """`ports.Ids` that notes what it gave, and can give it again."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._given: list[str] = []
        self._again: list[str] = []  # the next one last

    def event_id(self) -> str:
        given = self._again.pop() if self._again else self._ids.event_id()
        self._given.append(given)
        return given

    def given(self) -> int:
        """How many were given since `take`."""
        return len(self._given)

    def give_again(self, given: int) -> None:
        """Give those after so many once more: what they were given for is decided anew."""
        while len(self._given) > given:
            self._again.append(self._given.pop())

    def take(self) -> tuple[str, ...]:
        """Those that were given since this was last asked."""
        given, self._given = self._given, []
        return tuple(given)
