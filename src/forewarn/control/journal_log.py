"""The facts of the journal in the log of the service too, one line each, as they are committed."""

from __future__ import annotations

from collections.abc import Sequence

from forewarn.core.model import Fact
from forewarn.logs import Log
from forewarn.ports import Change

log = Log(__name__)

_FIELDS = ("scope", "event_id", "operation_id", "host", "vm", "by")


def log_facts(changes: Sequence[Change]) -> None:
    """Say what a commit has added to the journal. What is empty is left out."""
    for change in changes:
        for fact in change.facts:
            log.info("fact", **fields_of(fact))


def fields_of(fact: Fact) -> dict[str, object]:
    """What one line says."""
    named = {name: getattr(fact, name) for name in _FIELDS}
    found: dict[str, object] = {"kind": fact.kind.value}
    found.update((name, value) for name, value in named.items() if value)
    if fact.detail:
        found["detail"] = dict(fact.detail)
    return found
