"""`cloud.report(path)`: the story of a cloud as one HTML page, to be read after a test has failed.

One file without scripts or links, so that a build server can keep it. `page_of` makes the text of
what `gathered` finds; everything that guests and tests have said is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from html import escape

from msgspec import Struct

from forewarn.core.model import ScheduledEvent
from forewarn.emulator.exchanges import Exchange
from forewarn.emulator.faults.book import Fault, fault_json
from forewarn.ports import JournalLine, ListFilter
from forewarn.testing.values import JournalFact, clock_text, event_of, fact_of, time_of
from forewarn.wire.api_versions import NEWEST
from forewarn.wiring.simulate import Emulator

FACTS_MAX = 10_000
EVENTS_MAX = 1_000
DOCUMENTS_MAX = 200  # of VMs, as they are now

_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
h1 { font-size: 1.3em; overflow-wrap: anywhere; } h2 { margin-top: 2em; font-size: 1.1em; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid #ddd; padding: .2em .6em; text-align: left; vertical-align: top; }
td { overflow-wrap: break-word; }
td.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
pre { background: #f6f6f6; padding: .7em; overflow-x: auto; }
tr.guest { background: #eef5ff; } tr.trouble { background: #fdecea; } summary { cursor: pointer; }
.bar { fill: #9db7d8; } .started { fill: #d9822b; } .now { stroke: #b00; }
"""


class ReportContent(Struct, frozen=True, kw_only=True):
    """Everything that the page tells."""

    now_ms: int
    started_ms: int
    seed: int
    events: Sequence[ScheduledEvent]
    journal: Sequence[JournalLine]
    exchanges: Sequence[Exchange]
    dropped: int
    faults: Sequence[Fault]
    documents: dict[str, bytes]


async def gathered(emulator: Emulator) -> ReportContent:
    """What there is to tell, when everything has settled."""
    await emulator.pacer.settle()
    events = await emulator.control.read(
        lambda store: store.events(ListFilter(), open_only=False, limit=EVENTS_MAX)
    )
    journal = await emulator.control.read(
        lambda store: store.journal(ListFilter(), after=0, limit=FACTS_MAX)
    )
    vms = list(emulator.urls())[:DOCUMENTS_MAX]
    return ReportContent(
        now_ms=emulator.clock.now_ms(),
        started_ms=emulator.clock.start_ms,
        seed=emulator.seed,
        events=[listed.event for listed in events],
        journal=journal,
        exchanges=emulator.exchanges.all(),
        dropped=emulator.exchanges.dropped,
        faults=emulator.faults.list(over=True),
        documents={vm: emulator.document(vm, NEWEST.name) for vm in vms},
    )


def page_of(found: ReportContent, *, title: str, failure: str, version: str) -> str:
    """The page. `failure` is what the test said, if it is known."""
    about = (
        f"Forewarn {escape(version)}. The clock started at {_time(found.started_ms)} and shows"
        f" {_time(found.now_ms)}. With seed {found.seed} and the same start, the same orders give"
        " the same run."
    )
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{about}</p>"]
    if failure:
        parts.append(f"<h2>What failed</h2>\n<pre>{escape(failure)}</pre>")
    parts += [
        _events(found),
        _timeline(found),
        _documents(found),
        _journal(found),
        _faults(found),
    ]
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _time(ms: int) -> str:
    return clock_text(time_of(ms))


# Events, each as a bar from its order to its end.


def _events(found: ReportContent) -> str:
    events = [event_of(event) for event in reversed(found.events)]
    if not events:
        return "<h2>Events</h2>\n<p>There was none.</p>"
    first_ms = min(event.scheduled_ms for event in found.events)
    last_ms = max([found.now_ms, *(event.not_before_ms for event in found.events)])
    span_ms = max(1, last_ms - first_ms)
    rows = [
        (
            str(event),
            event.phase.value,
            clock_text(event.scheduled),
            clock_text(event.not_before),
            f"{event.approved_by} at {clock_text(event.approved)}" if event.approved else "",
            clock_text(event.started) if event.started else "",
            clock_text(event.ended) if event.ended else "",
        )
        for event in events
    ]
    heads = ("event", "phase", "scheduled", "not before", "approved by", "started", "ended")
    by_id = {event.event_id: event for event in found.events}
    bars = "".join(
        _bar(number, by_id[event.event_id], found.now_ms, first_ms, span_ms)
        for number, event in enumerate(events)
    )
    now_x = 1000 * (found.now_ms - first_ms) / span_ms
    height = 20 * len(events) + 4
    chart = (
        f'<svg viewBox="0 0 1000 {height}" width="100%" role="img" aria-label="events in time">'
        f'{bars}<line class="now" x1="{now_x:.1f}" x2="{now_x:.1f}" y1="0" y2="{height}"/></svg>'
    )
    return f"<h2>Events</h2>\n{chart}\n{_table(heads, rows)}"


def _bar(number: int, event: ScheduledEvent, now_ms: int, first_ms: int, span_ms: int) -> str:
    def x(ms: int) -> float:
        return 1000 * (ms - first_ms) / span_ms

    end_ms = event.ended_ms or max(now_ms, event.not_before_ms)
    y = 20 * number + 2
    text = f"{event.event_type.value} of {', '.join(event.resources)}"

    def piece(name: str, from_ms: int, to_ms: int) -> str:
        width = max(2.0, x(to_ms) - x(from_ms))
        return (
            f'<rect class="{name}" x="{x(from_ms):.1f}" y="{y}" width="{width:.1f}" height="16">'
            f"<title>{escape(text)}</title></rect>"
        )

    bar = piece("bar", event.scheduled_ms, event.started_ms or end_ms)
    if event.started_ms is not None:
        bar += piece("started", event.started_ms, event.ended_ms or now_ms)
    return f'{bar}<text x="4" y="{y + 12}" font-size="11">{escape(text)}</text>'


# The timeline: journal and requests in the order in which they happened.


def _timeline(found: ReportContent) -> str:
    told = [((line.number, 0, 0), *_of_fact(fact_of(line))) for line in found.journal]
    asked = [
        ((one.facts, 1, number), *_of_exchange(one)) for number, one in enumerate(found.exchanges)
    ]
    rows = "".join(
        f'<tr class="{name}"><td class="time">{at}</td><td>{escape(who)}</td><td>{what}</td></tr>\n'
        for _, name, at, who, what in sorted(told + asked)
    )
    lost = f"<p>{found.dropped} older requests were left out.</p>\n" if found.dropped else ""
    return (
        f"<h2>Timeline</h2>\n{lost}<table>\n<tr><th>clock</th><th>who</th><th>what</th></tr>\n"
        f"{rows}</table>"
    )


def _of_fact(fact: JournalFact) -> tuple[str, str, str, str]:
    about = " ".join(f"{k}={v}" for k, v in sorted(fact.detail.items()) if v not in (None, ""))
    event = f" of event {fact.event_id[:8]}" if fact.event_id else ""
    what = f"{fact.kind}{event}" + (f": {about}" if about else "")
    return "fact", clock_text(fact.at), fact.by or fact.host or "", escape(what)


def _of_exchange(one: Exchange) -> tuple[str, str, str, str]:
    times = f", {one.times} times until {_time(one.last_ms)}" if one.times > 1 else ""
    if not one.method:
        return "trouble", _time(one.at_ms), one.vm, escape(one.note + times)
    note = f" ({one.note})" if one.note else ""
    line = escape(f"{one.method} {one.target} → {one.status}{note}{times}")
    if one.sent:
        line += f"<details><summary>sent</summary><pre>{escape(_text(one.sent))}</pre></details>"
    if one.body:
        line += f"<details><summary>{escape(_about(one.body))}</summary>"
        line += f"<pre>{escape(_text(one.body))}</pre></details>"
    bad = one.note or one.status >= 400
    return "trouble" if bad else "guest", _time(one.at_ms), one.vm, line


def _about(body: bytes) -> str:
    """A document in a few words."""
    with suppress(ValueError, KeyError, TypeError):
        document = json.loads(body)
        events = [f"{e['EventType']} {e['EventStatus']}" for e in document["Events"]]
        return f"incarnation {document['DocumentIncarnation']}: {', '.join(events) or 'no event'}"
    return "answer"


def _text(body: bytes) -> str:
    with suppress(ValueError):
        return json.dumps(json.loads(body), indent=2, ensure_ascii=False)
    return body.decode(errors="replace")


# Documents, journal, faults.


def _documents(found: ReportContent) -> str:
    parts = [
        f"<details><summary>{escape(vm)}: {escape(_about(body))}</summary>"
        f"<pre>{escape(_text(body))}</pre></details>"
        for vm, body in found.documents.items()
    ]
    return "<h2>Documents at the end</h2>\n" + "\n".join(parts)


def _journal(found: ReportContent) -> str:
    rows = [
        (
            str(fact.number),
            clock_text(fact.at),
            fact.kind,
            fact.scope or "",
            (fact.event_id or "")[:8],
            fact.vm or "",
            fact.host or "",
            fact.by or "",
            json.dumps(fact.detail, default=str) if fact.detail else "",
        )
        for fact in (fact_of(line) for line in found.journal)
    ]
    heads = ("number", "clock", "fact", "scope", "event", "VM", "host", "by", "detail")
    return f"<h2>Journal</h2>\n{_table(heads, rows)}"


def _faults(found: ReportContent) -> str:
    if not found.faults:
        return "<h2>Faults</h2>\n<p>There was none.</p>"
    shown = [fault_json(fault) for fault in found.faults]
    heads = ("fault_id", "kind", "vm", "method", "count", "hits", "over")
    rows = [tuple("" if one[head] is None else str(one[head]) for head in heads) for one in shown]
    return f"<h2>Faults</h2>\n{_table(heads, rows)}"


def _table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def lines() -> Iterator[str]:
        yield "<tr>" + "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"
        for row in rows:
            yield "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"

    return "<table>\n" + "\n".join(lines()) + "\n</table>"
