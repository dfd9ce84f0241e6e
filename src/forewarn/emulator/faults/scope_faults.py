"""What faults do to the documents of a whole scope: numbers, events that are not told, lateness.

Between the scope as control tells it and the scope as its guests read it. Pure but for what it
remembers of each scope; `later` has a change shown at its instant.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import Struct

from forewarn.core.incarnation_marks import ScopeWithIncarnation
from forewarn.emulator.faults.book import FaultBook
from forewarn.wire.link import ShownEvent, ShownScope


class _Content(Struct, frozen=True):
    """What changes in a document."""

    incarnation: int
    events: tuple[ShownEvent, ...]


class ScopeFaults:
    """Belongs to the event loop.

    `later` is called with a number of milliseconds, the name of a scope and what to do then.
    """

    def __init__(
        self, book: FaultBook, later: Callable[[int, str, Callable[[], None]], None]
    ) -> None:
        self._book = book
        self._later = later
        self._visible: dict[str, _Content] = {}
        self._waiting: dict[str, list[_Content]] = {}
        self._show: Callable[[str, int, tuple[ShownEvent, ...]], None] = lambda *_: None

    def on_release(self, show: Callable[[str, int, tuple[ShownEvent, ...]], None]) -> None:
        """Call `show` with a scope, its incarnation and events when a late change is due."""
        self._show = show

    def shown(self, scope: ShownScope, whole: ScopeWithIncarnation) -> ShownScope:
        """The scope as its guests read it now. `whole` is the same with the VMs of all hosts."""
        number = self._book.renumbered(whole)
        started = [event.event_id for event in scope.events if event.phase == "started"]
        hidden = self._book.hidden(whole, started)
        events = tuple(event for event in scope.events if event.event_id not in hidden)
        content = self._visible_of(whole, _Content(number, events))
        return msgspec.structs.replace(
            scope, incarnation=content.incarnation, events=content.events
        )

    def _visible_of(self, whole: ScopeWithIncarnation, new: _Content) -> _Content:
        visible = self._visible.get(whole.name)
        waiting = self._waiting.get(whole.name, [])
        newest = waiting[-1] if waiting else visible
        if newest is not None and newest.incarnation == new.incarnation:
            return visible or new
        late_ms = self._book.late_ms(whole) if visible is not None else 0
        if visible is None or (not late_ms and not waiting):
            self._visible[whole.name] = new
            return new
        self._waiting.setdefault(whole.name, []).append(new)
        self._later(late_ms, whole.name, lambda: self._release(whole.name, new))
        return visible

    def _release(self, name: str, content: _Content) -> None:
        waiting = self._waiting.get(name, [])
        if content not in waiting:
            return  # a later change was shown already
        del waiting[: waiting.index(content) + 1]
        self._visible[name] = content
        self._show(name, content.incarnation, content.events)
