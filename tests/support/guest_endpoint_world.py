"""An endpoint that says what a test wants said, and a VM that asks it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripted_endpoint import Asked, Reply, document
from support.guest_agent_world import Guest

DATE = "Tue, 03 Mar 2026 10:00:00 GMT"  # a quarter of an hour before the events of `event`


class Told:
    """What the endpoint answers now: first what is in `odd`, one by one, then the events."""

    def __init__(self, *odd: Reply) -> None:
        self.odd = list(odd)
        self.events: list[dict[str, Any]] = []
        self.incarnation = 1
        self.approved: list[str] = []
        self.asked = 0

    def show(self, *events: dict[str, Any]) -> None:
        self.events = list(events)
        self.incarnation += 1

    def answer(self, asked: Asked) -> Reply:
        self.asked += 1
        if asked.method == "POST":
            wanted = json.loads(asked.body)["StartRequests"]
            self.approved += [one["EventId"] for one in wanted]
            return Reply()
        if self.odd:
            return self.odd.pop(0)
        return document(self.incarnation, *self.events, Date=DATE)


@contextmanager
def guest_at(url: str, folder: Path) -> Iterator[Guest]:
    guest = Guest(folder, url)
    try:
        yield guest
    finally:
        guest.end()
