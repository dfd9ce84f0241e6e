"""Lines of the journal as people read them: what, about what, by whom, and the rest in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from forewarn.api.console.view_models.values import Kind, Ref, named
from forewarn.core.facts import detail_words
from forewarn.ports import JournalLine
from forewarn.text.durations import span

# What only machines need.
_FOR_MACHINES = frozenset({"action_id", "epoch", "event_source", "actions", "by_kind"})
_EVENTS = frozenset({"postponed_from", "postponed_to"})
_FIRST_INSTANT_MS = 1_000_000_000_000  # in 2001; what is less is a length of time
_LIST_SHOWN_MAX = 8

# What has to be seen: it went wrong, or a person overrode something.
_BAD = frozenset({"failed", "held", "host-failed", "host-fenced", "vm-on-two-hosts", "disabled"})
_GOOD = frozenset({"completed", "approved", "recovered", "released", "host-repaired", "enabled"})
_ACTIVE = frozenset({"started", "claimed", "reported", "assigned", "moved"})


class LineDetail(Struct, frozen=True):
    """One thing that a line says beside what it names: a text, an instant, another event."""

    label: str
    text: str
    at_ms: int | None = None
    ref: Ref | None = None


class Line(Struct, frozen=True, kw_only=True):
    """One line of the journal. `tone` is how it is to be seen: good, bad, active or plain."""

    number: int
    at_ms: int
    kind: str
    tone: str
    summary: str
    refs: tuple[Ref, ...]
    by: str
    details: tuple[LineDetail, ...]


def line(found: JournalLine) -> Line:
    fact = found.fact
    kind = fact.kind.value
    named: tuple[tuple[Kind, str | None], ...] = (
        ("event", fact.event_id),
        ("operation", fact.operation_id if not fact.event_id else None),
        ("scope", fact.scope),
        ("vm", fact.vm),
        ("host", fact.host),
    )
    refs = tuple(Ref(what, name) for what, name in named if name)
    said = dict(detail_words(fact.detail))
    summary = _summary(said)
    return Line(
        number=found.number,
        at_ms=fact.at_ms,
        kind=kind,
        tone=_tone(kind, said.get("overridden_by")),
        summary=summary,
        refs=refs,
        by=fact.by or "",
        details=tuple(_details(said)),
    )


def _summary(said: dict[str, object]) -> str:
    """What is done to which VMs: `Reboot of web_0, domain 2`. Takes those words out."""
    if "event_type" not in said:
        return ""
    event_type, found = str(said.pop("event_type")), said.pop("resources", ())
    vms = named([str(one) for one in found] if isinstance(found, list | tuple) else [])
    domain = said.pop("update_domain", None)
    if not vms.first:
        return event_type
    more = f" and {vms.more} more" if vms.more else ""
    where = "" if domain is None else f", domain {domain}"
    return f"{event_type} of {', '.join(vms.first)}{more}{where}"


def _tone(kind: str, overridden_by: object) -> str:
    if kind in _BAD or overridden_by:
        return "bad"
    if kind in _GOOD:
        return "good"
    return "active" if kind in _ACTIVE else "plain"


def _details(said: Mapping[str, object]) -> Iterator[LineDetail]:
    for key, value in said.items():
        if key in _FOR_MACHINES or value in ("", None, [], False):
            continue
        label = key.removesuffix("_ms").replace("_", " ")
        if key.endswith("_ms") and isinstance(value, int) and not isinstance(value, bool):
            instant = value >= _FIRST_INSTANT_MS
            text = "" if instant else span(abs(value) / 1_000)
            yield LineDetail(label, text, value if instant else None)
        elif key in _EVENTS:
            yield LineDetail(label, "", ref=Ref("event", str(value)))
        elif value is True:
            yield LineDetail("", label)
        else:
            yield LineDetail(label, _plain(value))


def _plain(value: object) -> str:
    if isinstance(value, list | tuple):
        shown = ", ".join(_plain(one) for one in value[:_LIST_SHOWN_MAX])
        more = len(value) - _LIST_SHOWN_MAX
        return f"{shown} and {more} more" if more > 0 else shown
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items() if one)
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
