"""Lines of the feed as short texts for people: a chat, a mail. Most lines have none.

Words only. Texts are made of a CloudEvent as its JSON has it, so that what follows the feed from
elsewhere says the same as a webhook.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from forewarn.core.model import SECOND_MS, FactKind
from forewarn.wire.cloud_events import CloudEvent, FeedData
from forewarn.wire.documents import http_date

NAMES_MAX = 5  # of VMs
TEXT_CHARS_MAX = 600
ID_CHARS = 8

Detail = Mapping[str, Any]


def text_of(event: CloudEvent) -> str | None:
    """What a person is told of this line; None if it is not for people.

    The first word says what it is, so that a rule for mails or a search in a chat can use it.
    """
    said = _TEXTS.get(event.data.kind)
    text = None if said is None else said(event.data, event.data.detail)
    if text is None or len(text) <= TEXT_CHARS_MAX:
        return text
    return f"{text[: TEXT_CHARS_MAX - 3]}..."


def chat_text(text: str) -> str:
    """The text where `<`, `>` and `&` would be commands: `<!channel>` in a name calls no person."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _scheduled(line: FeedData, detail: Detail) -> str:
    silent = " No VM of the scope listens, so none reads it." if detail.get("silent") else ""
    before = _when(detail.get("not_before_ms"))
    return f"Announced: {_what(line, detail)}, not before {before}.{silent}{_id(line)}"


def _appeared(line: FeedData, detail: Detail) -> str:
    return (
        f"Announced: an event of scope {line.scope} that was silent is shown now, not before"
        f" {_when(detail.get('not_before_ms'))}.{_id(line)}"
    )


def _approved(line: FeedData, detail: Detail) -> str | None:
    """An override alone: that a VM approves is as it should be."""
    if not detail.get("overridden_by"):
        return None
    return (
        f"Override: {detail['overridden_by']} has approved {_what(line, detail)} in the place of"
        f" its VMs. Reason: {detail.get('reason') or 'none given'}.{_id(line)}"
    )


def _ordered(line: FeedData, detail: Detail) -> str | None:
    broken = detail.get("broke_domains") or []
    if not broken:
        return None
    return (
        f"Override: {_by(line)} has ordered a {detail.get('event_type')} of host {line.host} that"
        f" hits two update domains of {_names(broken)} at once. Reason:"
        f" {detail.get('reason') or 'none given'}."
    )


def _started(line: FeedData, detail: Detail) -> str | None:
    return _of_event(line, f"Starting: {_what(line, detail)}.")


def _completed(line: FeedData, detail: Detail) -> str | None:
    return _of_event(line, f"Done: {_what(line, detail)}.")


def _failed(line: FeedData, detail: Detail) -> str | None:
    why = detail.get("reason") or detail.get("outcome") or "no reason is known"
    return _of_event(line, f"Failed: {_what(line, detail)}: {why}.")


def _canceled(line: FeedData, detail: Detail) -> str | None:
    return _of_event(line, f"Canceled: {_what(line, detail)}: {detail.get('reason') or 'ordered'}.")


def _postponed(line: FeedData, detail: Detail) -> str | None:
    later = _when(detail.get("not_before_ms"))
    text = f"Postponed: an event of scope {line.scope}, now not before {later}."
    return _of_event(line, text)


def _held(line: FeedData, detail: Detail) -> str:
    return (
        f"Held: platform events of scope {line.scope} wait, because an event has failed."
        f" To go on: {detail.get('release') or f'forewarn scope release {line.scope}'}{_id(line)}"
    )


def _silent(line: FeedData, detail: Detail) -> str:
    last = _when(detail.get("last_poll_ms"))
    return (
        f"Silent: no VM of scope {line.scope} has asked for 24 hours (last {last}). Its agents"
        " hear of no new event until one asks again."
    )


def _host_failed(line: FeedData, detail: Detail) -> str:
    forced = f"Override: {_by(line)} says so although it is heard. " if detail.get("forced") else ""
    return f"{forced}Failed: host {line.host} is declared failed.{_reason(detail)}"


def _host_fenced(line: FeedData, detail: Detail) -> str | None:
    if not detail.get("forced"):
        return None
    return (
        f"Override: {_by(line)} says that host {line.host} is off, although it was heard."
        f"{_reason(detail)}"
    )


def _webhook_disabled(_: FeedData, detail: Detail) -> str:
    return f"Disabled: the webhook {detail.get('name')} sends no more: {detail.get('because')}."


_TEXTS: Mapping[FactKind, Callable[[FeedData, Detail], str | None]] = {
    FactKind.SCHEDULED: _scheduled,
    FactKind.APPEARED: _appeared,
    FactKind.APPROVED: _approved,
    FactKind.ORDERED: _ordered,
    FactKind.STARTED: _started,
    FactKind.COMPLETED: _completed,
    FactKind.FAILED: _failed,
    FactKind.CANCELED: _canceled,
    FactKind.POSTPONED: _postponed,
    FactKind.HELD: _held,
    FactKind.DISABLED: _silent,
    FactKind.HOST_FAILED: _host_failed,
    FactKind.HOST_FENCED: _host_fenced,
    FactKind.WEBHOOK_DISABLED: _webhook_disabled,
}
KINDS_WITH_TEXT = frozenset(_TEXTS)


def _of_event(line: FeedData, text: str) -> str | None:
    """Of events alone: the operation that they belong to would say the same again."""
    return f"{text}{_id(line)}" if line.event_id else None


def _what(line: FeedData, detail: Detail) -> str:
    kind = detail.get("event_type") or "an event"
    names = detail.get("resources") or []
    where = f" on host {line.host}" if line.host else ""
    vms = f" of {_names(names)}" if names else ""
    return f"{kind}{vms} in scope {line.scope}{where}"


def _names(names: list[str]) -> str:
    more = len(names) - NAMES_MAX
    listed = ", ".join(str(name) for name in names[:NAMES_MAX])
    return f"{listed} and {more} more" if more > 0 else listed


def _when(ms: object) -> str:
    return http_date(ms // SECOND_MS) if isinstance(ms, int) else "a time that is not known"


def _by(line: FeedData) -> str:
    return line.by.name if line.by is not None else "an operator"


def _reason(detail: Detail) -> str:
    return f" Reason: {detail['reason']}." if detail.get("reason") else ""


def _id(line: FeedData) -> str:
    return f" [{line.event_id[:ID_CHARS]}]" if line.event_id else ""
