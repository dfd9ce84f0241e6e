"""One breakage for each check of events: their lives, their fields, and the rate limit.

A breakage must break one promise and keep all others, so those that change what a document says
without the endpoint knowing also count its incarnations on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime
from typing import Any

from verify.breaking_requests import (
    ERROR,
    METADATA,
    NEWEST,
    OK,
    UNKNOWN_ID,
    Breakages,
    answering,
    asking,
    both,
    document,
    giving,
    has,
    in_json,
    lacks,
    on_nth,
    tag,
    with_metadata,
)
from verify.front import Asked, Given, Tampering, refusal

OTHER = "2019-01-01"  # a version in which a field can be wrong without disturbing other checks
OLDEST = "2017-03-01"

Event = dict[str, Any]


def in_events(
    change: Callable[[list[Event]], list[Event]], version: str | None = None
) -> Callable[[], Tampering]:
    """Change the events of every document of a version, or of all."""

    def give(asked: Asked, given: Given) -> Given:
        if given.status != 200 or not asked.is_document(version):
            return given
        content = given.json
        return given.with_json({**content, "Events": change(content["Events"])})

    return lambda: Tampering(give=give)


def in_each(
    change: Callable[[Event], Event], version: str | None = OTHER
) -> Callable[[], Tampering]:
    return in_events(lambda events: [change(event) for event in events], version)


def setting(name: str, value: Any, version: str = OTHER) -> Callable[[], Tampering]:
    return in_each(lambda event: {**event, name: value}, version)


def scheduled(event: Event) -> bool:
    return bool(event["EventStatus"] == "Scheduled")


def renamed(event: Event) -> Event:
    return {**event, "Resources": [name.upper() for name in event["Resources"]]}


def with_other_id(event: Event) -> Event:
    if scheduled(event):
        return event
    return {**event, "EventId": f"DEADBEEF{event['EventId'][8:]}"}


def shifted(event: Event, seconds: int) -> Event:
    text = event["NotBefore"]
    if not text:
        return event
    if text.endswith("Z"):
        at = datetime.fromisoformat(text) + timedelta(seconds=seconds)
        return {**event, "NotBefore": at.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {**event, "NotBefore": rfc_1123(parsedate_to_datetime(text), seconds)}


def rfc_1123(at: datetime, seconds: int = 0) -> str:
    return format_datetime(at.astimezone(UTC) + timedelta(seconds=seconds), usegmt=True)


def in_rfc_1123(event: Event) -> Event:
    if not scheduled(event):
        return event
    return {**event, "NotBefore": rfc_1123(datetime.fromisoformat(event["NotBefore"]))}


def on_wrong_day(event: Event) -> Event:
    days = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
    text = event["NotBefore"]
    if not text:
        return event
    wrong = days[(days.index(text[:3]) + 1) % 7]
    return {**event, "NotBefore": wrong + text[3:]}


def notice(event_type: str) -> Callable[[], Tampering]:
    """Events of that type have twenty seconds less than they should."""
    return in_each(
        lambda event: shifted(event, -20) if event["EventType"] == event_type else event, None
    )


def hiding(event_type: str, version: str) -> Callable[[], Tampering]:
    return in_events(lambda events: [e for e in events if e["EventType"] != event_type], version)


class Remembering(Tampering):
    """Knows the newest document as it really is, and the order in which events came."""

    def __init__(self) -> None:
        super().__init__(give=self.tamper)
        self.events: list[Event] = []
        self.first: dict[str, Event] = {}  # each event as it was first seen
        self.now = datetime.fromtimestamp(0, UTC)
        self.added = 0  # to the incarnation of the newest documents

    def tamper(self, asked: Asked, given: Given) -> Given:
        if given.status != 200 or not asked.is_document():
            return given
        content = given.json
        if asked.version == NEWEST:
            self.events = content["Events"]
            self.now = parsedate_to_datetime(given.header("Date") or "")
            for event in self.events:
                self.first.setdefault(event["EventId"], event)
            events = self.newest([dict(event) for event in self.events])
            number = content["DocumentIncarnation"] + self.added
            return given.with_json({"DocumentIncarnation": number, "Events": events})
        return given.with_json(self.older(asked.version or "", content))

    def nth(self, number: int) -> str:
        """The id of the event that came as that number; blank as long as there is none."""
        ids = list(self.first)
        return ids[number - 1] if len(ids) >= number else ""

    def newest(self, events: list[Event]) -> list[Event]:
        return events

    def older(self, version: str, content: Any) -> Any:  # noqa: ARG002 - for others to use
        return content


class Stuck(Remembering):
    """One event stays in the newest document for ever, as it was first seen."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number

    def newest(self, events: list[Event]) -> list[Event]:
        stuck = self.nth(self.number)
        others = [event for event in events if event["EventId"] != stuck]
        return [*([self.first[stuck]] if stuck else []), *others]


class OtherType(Remembering):
    """The first event is shown as one of another type."""

    def newest(self, events: list[Event]) -> list[Event]:
        for event in events:
            if event["EventId"] == self.nth(1):
                event["EventType"] = "Freeze"
        return events


class NeverOver(Remembering):
    """An event that has started stays in the newest document for ever."""

    started: Event | None = None

    def newest(self, events: list[Event]) -> list[Event]:
        for event in events:
            if not scheduled(event):
                self.started = event
        if self.started is None or self.started in events:
            return events
        return [self.started, *events]


class Early(Remembering):
    """The third event is shown as Started a minute after it appeared."""

    seen: datetime | None = None

    def newest(self, events: list[Event]) -> list[Event]:
        for event in events:
            if event["EventId"] != self.nth(3):
                continue
            self.seen = self.seen or self.now
            if self.now - self.seen > timedelta(minutes=1):
                self.added = 1
                event.update(EventStatus="Started", NotBefore="")
        return events


class Moved(Remembering):
    """NotBefore of the third event moves a minute after it appeared."""

    seen: datetime | None = None

    def newest(self, events: list[Event]) -> list[Event]:
        for index, event in enumerate(events):
            if event["EventId"] != self.nth(3):
                continue
            self.seen = self.seen or self.now
            if self.now - self.seen > timedelta(minutes=1):
                self.added = 1
                events[index] = shifted(event, 60)
        return events


class BackAgain(Remembering):
    """The first event is Scheduled again after it was seen Started."""

    seen = 0

    def newest(self, events: list[Event]) -> list[Event]:
        for event in events:
            if event["EventId"] == self.nth(1) and not scheduled(event):
                self.seen += 1
                if self.seen > 2:
                    self.added = 1
                    event.update(self.first[event["EventId"]])
        return events


class Changing(Remembering):
    """What an event says is other words at each look."""

    looks = 0

    def newest(self, events: list[Event]) -> list[Event]:
        self.looks += 1
        return [{**event, "Description": f"look {self.looks}"} for event in events]


class Revealing(Remembering):
    """Events of a type are shown at a version that does not know them."""

    def __init__(self, event_type: str, version: str) -> None:
        super().__init__()
        self.event_type = event_type
        self.version = version

    def older(self, version: str, content: Any) -> Any:
        if version != self.version:
            return content
        known = [e for e in self.events if e["EventType"] == self.event_type]
        base = list(known[0])[:6] if known else []
        more = [{name: event[name] for name in base} for event in known]
        return {**content, "Events": [*content["Events"], *more]}


class Backwards(Remembering):
    """While there is a Terminate, 2017-11-01 shows the first document of all."""

    def older(self, version: str, content: Any) -> Any:
        terminates = any(event["EventType"] == "Terminate" for event in self.events)
        if version == "2017-11-01" and terminates:
            return {"DocumentIncarnation": 1, "Events": []}
        return content


class ApprovalsLost(Remembering):
    """Approvals of the event that came as that number are answered and forgotten."""

    def __init__(self, number: int, answer: Given) -> None:
        super().__init__()
        self.ask = lambda asked: answer if self.meant(asked, number) else asked

    def meant(self, asked: Asked, number: int) -> bool:
        return asked.is_post() and self.nth(number) in asked.event_ids


class MalformedBreaks(Remembering):
    """What is malformed is answered 500 while an event stands."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = lambda asked: ERROR if self.meant(asked) else asked

    def meant(self, asked: Asked) -> bool:
        return asked.is_post() and not asked.event_ids and bool(self.events)


class ServedWithEvents(Remembering):
    """While an event stands, the newest document needs no Metadata header."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = lambda asked: with_metadata(asked) if self.meant(asked) else asked

    def meant(self, asked: Asked) -> bool:
        return asked.is_document(NEWEST) and not METADATA(asked) and bool(self.events)


class EndUnchanged(Remembering):
    """When the events are over, any tag gets 304."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = lambda asked: Given(304) if self.meant(asked) else asked

    def meant(self, asked: Asked) -> bool:
        over = bool(self.first) and not self.events
        return asked.is_document(NEWEST) and has("If-None-Match")(asked) and over


class UnknownApproves(Remembering):
    """An unknown id is refused, and approves what stands."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = self.as_known
        self.give = self.refused

    def as_known(self, asked: Asked) -> Asked:
        if asked.event_ids != [UNKNOWN_ID] or not self.events:
            return asked
        body = asked.body.replace(UNKNOWN_ID.encode(), self.events[0]["EventId"].encode())
        return replace(asked, body=body)

    def refused(self, asked: Asked, given: Given) -> Given:
        return refusal(400) if asked.event_ids == [UNKNOWN_ID] else self.tamper(asked, given)


class OnceStarted(Remembering):
    """The newest document is changed while an event of it is Started."""

    def __init__(self, change: Callable[[Asked, Given], Given]) -> None:
        super().__init__()
        self.give = lambda asked, given: self.changed(asked, self.tamper(asked, given), change)

    def changed(self, asked: Asked, given: Given, change: Callable[[Asked, Given], Given]) -> Given:
        started = any(not scheduled(event) for event in self.events)
        meant = asked.is_document(NEWEST) and given.status == 200 and started
        return change(asked, given) if meant else given


def unchanged_for_any_tag(asked: Asked, given: Given) -> Given:
    return Given(304) if has("If-None-Match")(asked) else given


class CountingOn(Tampering):
    """GETs of the newest document in a row have one number after the other."""

    def __init__(self) -> None:
        super().__init__(give=self.count)
        self.row = self.added = 0

    def count(self, asked: Asked, given: Given) -> Given:
        plain = asked.is_document(NEWEST) and lacks("If-None-Match")(asked)
        self.row = self.row + 1 if plain else 0
        if not plain or given.status != 200:
            return given
        self.added += self.row > 1
        content = given.json
        number = content["DocumentIncarnation"] + self.added
        return given.with_json({**content, "DocumentIncarnation": number})


class OthersVanish(Remembering):
    """When one of two events starts, the other is no longer shown."""

    gone = ""

    def newest(self, events: list[Event]) -> list[Event]:
        if len(events) == 2 and not scheduled(events[0]):
            self.gone = events[1]["EventId"]
        return [event for event in events if event["EventId"] != self.gone]


class Turned(Remembering):
    """When one of two events starts, they change places."""

    def newest(self, events: list[Event]) -> list[Event]:
        if len(events) == 2 and not scheduled(events[0]):
            return events[::-1]
        return events


def good_post(asked: Asked) -> bool:
    """An approval of known events, with everything that it needs."""
    ids = asked.event_ids
    whole = asked.version == OLDEST or (asked.version is not None and METADATA(asked))
    return asked.is_post() and bool(ids) and UNKNOWN_ID not in ids and whole


def lower_case(asked: Asked) -> bool:
    return good_post(asked) and asked.event_ids[0] != asked.event_ids[0].upper()


def plain_post(asked: Asked) -> bool:
    """One id, in upper case, at the newest version and without anything beside it."""
    ids = asked.event_ids
    more = ("Content-Type", "If-None-Match")
    odd = b"DocumentIncarnation" in asked.body or any(asked.header(name) for name in more)
    return good_post(asked) and asked.version == NEWEST and not odd and ids == [ids[0].upper()]


def only_the_first(asked: Asked) -> Asked:
    wanted = f'{{"StartRequests":[{{"EventId":"{asked.event_ids[0]}"}}]}}'.encode()
    return replace(asked, body=wanted).having("Content-Length", str(len(wanted)))


def two_ids(*, same: bool) -> Callable[[Asked], bool]:
    return lambda asked: (
        good_post(asked) and len(asked.event_ids) == 2 and (len(set(asked.event_ids)) == 1) == same
    )


def saying_ok(asked: Asked, given: Given) -> Given:
    return given.saying(b"OK") if asked.is_post() and given.status == 200 else given


def unchanged_for_old_tags(asked: Asked, given: Given) -> Given:
    old = both(document(), tag(r'"[1-9]\d*"'), lacks("Prefer"))(asked)
    return Given(304) if old and given.status == 200 else given


LIVES: Breakages = {
    "life-appears": in_events(lambda _: [], NEWEST),
    "life-type": OtherType,
    "life-names-vm": in_each(renamed, None),
    "life-every-version": hiding("Reboot", OTHER),
    "life-old-tag": lambda: Tampering(give=unchanged_for_old_tags),
    "approve-unknown-too": asking(
        lambda a: len(a.event_ids) == 2 and UNKNOWN_ID in a.event_ids, only_the_first
    ),
    "refused-standing": ServedWithEvents,
    "post-malformed-standing": MalformedBreaks,
    "post-unknown-standing": UnknownApproves,
    "approve-200": answering(good_post, ERROR),
    "approve-body": lambda: Tampering(give=saying_ok),
    "approve-starts": answering(good_post, OK),
    "start-old-tag": lambda: OnceStarted(unchanged_for_any_tag),
    "life-id-stable": in_each(with_other_id, None),
    "approve-again": on_nth(2, plain_post, lambda when: answering(when, ERROR)),
    "approve-any-case": answering(lower_case, refusal(400)),
    "approve-other-version": answering(lambda a: good_post(a) and a.version == OTHER, refusal(400)),
    "approve-oldest": answering(lambda a: good_post(a) and a.version == OLDEST, refusal(400)),
    "approve-more-fields": answering(
        lambda a: good_post(a) and b"DocumentIncarnation" in a.body, refusal(400)
    ),
    "approve-content-type": answering(both(good_post, has("Content-Type", "text")), refusal(415)),
    "approve-with-tag": answering(both(good_post, has("If-None-Match")), refusal(412)),
    "approve-keep-alive": lambda: Tampering(
        give=lambda asked, given: replace(given, then_close=True) if good_post(asked) else given
    ),
    "approve-twice-in-one": answering(two_ids(same=True), refusal(400)),
    "life-ends": NeverOver,
    "end-old-tag": EndUnchanged,
    "approve-ended": on_nth(4, plain_post, lambda when: answering(when, refusal(400))),
}


def lost_at(version: str) -> Callable[[], Tampering]:
    """Approvals at that api-version are answered and forgotten."""
    return answering(lambda asked: good_post(asked) and asked.version == version, OK)


SCHEDULES: Breakages = {
    **{
        f"start-{version}": lost_at(version)
        for version in (OLDEST, "2017-08-01", "2017-11-01", OTHER, "2019-04-01", "2019-08-01")
    },
    "cancel-removes": lambda: Stuck(2),
    "alone-waits": Early,
    "alone-starts": lambda: Stuck(3),
    "starts-Reboot": lambda: ApprovalsLost(4, OK),
    "starts-Redeploy": lambda: ApprovalsLost(6, OK),
    "starts-Freeze": lambda: ApprovalsLost(5, ERROR),
    "notice-Reboot": notice("Reboot"),
    "notice-Redeploy": notice("Redeploy"),
    "notice-Freeze": notice("Freeze"),
    "notice-Preempt": notice("Preempt"),
    "notice-Terminate": notice("Terminate"),
    "shown-Preempt": hiding("Preempt", "2019-08-01"),
    "hidden-Preempt": lambda: Revealing("Preempt", "2017-08-01"),
    "shown-Terminate": hiding("Terminate", "2019-08-01"),
    "hidden-Terminate": lambda: Revealing("Terminate", "2017-11-01"),
    "start-any-case": answering(lower_case, OK),
    "approve-one": OthersVanish,
    "start-other-version": lost_at("2017-08-01"),
    "approve-several": asking(two_ids(same=False), only_the_first),
}


def incarnation_as_text(content: Any) -> Any:
    return {**content, "DocumentIncarnation": str(content["DocumentIncarnation"])}


def null_if_empty(content: Any) -> Any:
    return {**content, "Events": content["Events"] or None}


def blank_as_null(event: Event) -> Event:
    return event if scheduled(event) else {**event, "NotBefore": None}


def in_lower_case(event: Event) -> Event:
    return {**event, "EventId": event["EventId"].lower()}


def waiting_still(event: Event) -> Event:
    if scheduled(event):
        return event
    at = "Fri, 02 Jan 2026 00:00:00 GMT"
    return {**event, "EventStatus": "Scheduled", "NotBefore": at}


def only_scheduled(events: list[Event]) -> list[Event]:
    return [event for event in events if scheduled(event)]


DOCUMENTS: Breakages = {
    "get-incarnation-stands": CountingOn,
    "document-type": lambda: OnceStarted(lambda _, g: g.having("Content-Type", "text/html")),
    "document-etag": lambda: OnceStarted(lambda _, g: g.without("ETag")),
    "same-events": in_events(only_scheduled, OTHER),
    "same-status": in_each(waiting_still),
    "same-type": in_each(
        lambda e: {**e, "EventType": "Freeze"} if e["EventType"] == "Reboot" else e
    ),
    "same-not-before": in_each(lambda event: shifted(event, 120)),
    "same-names": in_each(renamed),
    "started-shown": in_events(only_scheduled),
    "incarnation-number": giving(document(OTHER), in_json(incarnation_as_text)),
    "incarnation-forward": Backwards,
    "incarnation-same-events": Changing,
    "events-array": giving(document(OTHER), in_json(null_if_empty)),
    **{
        f"fields-{version}": setting("Extra", 1, version)
        for version in (OLDEST, "2017-08-01", "2017-11-01", OTHER, "2019-04-01", "2019-08-01")
    },
    f"fields-{NEWEST}": setting("Extra", 1, NEWEST),
    "fields-order": in_each(lambda event: dict(reversed(event.items()))),
    "event-id-form": in_each(lambda event: {**event, "EventId": f"{{{event['EventId']}}}"}),
    "event-id-upper": in_each(in_lower_case, None),
    "event-id-kept": in_each(in_lower_case),
    "event-id-once": in_events(lambda events: [*events, *events], OTHER),
    "event-status": in_each(lambda e: {**e, "EventStatus": e["EventStatus"].lower()}),
    "event-type": in_each(
        lambda e: {**e, "EventType": "REBOOT"} if e["EventType"] == "Reboot" else e
    ),
    "event-resource-type": setting("ResourceType", "Vm"),
    "event-resources": setting("Resources", []),
    "event-description": setting("Description", None, "2019-04-01"),
    "event-source": setting("EventSource", "Azure", "2019-08-01"),
    "event-duration": setting("DurationInSeconds", "5", NEWEST),
    "not-before-form": in_each(on_wrong_day),
    "not-before-oldest": in_each(in_rfc_1123, OLDEST),
    "not-before-blank": in_each(blank_as_null),
    "not-before-kept": Moved,
    "names-underscore": in_each(
        lambda e: {**e, "Resources": [name[1:] for name in e["Resources"]]}, OLDEST
    ),
    "phases-forward": BackAgain,
    "events-order": Turned,
}


def throttled_once(change: Callable[[int, Given], Given]) -> Callable[[], Tampering]:
    """Change what follows the first 429; the number counts the answers since."""

    def make() -> Tampering:
        since = -1

        def give(_: Asked, given: Given) -> Given:
            nonlocal since
            if since >= 0 or given.status == 429:
                since += 1
            return change(since, given)

        return Tampering(give=give)

    return make


RATES: Breakages = {
    "rate-429": throttled_once(lambda _, g: replace(g, status=200) if g.status == 429 else g),
    "rate-error-object": throttled_once(lambda n, g: g.saying(b"slow down") if n == 0 else g),
    "rate-retry-after": throttled_once(lambda n, g: g.without("Retry-After") if n == 0 else g),
    "rate-recovers": throttled_once(lambda n, g: ERROR if n == 1 else g),
    "rate-allows-five": throttled_once(lambda n, g: refusal(429) if n == 4 else g),
}

BREAKAGES: Breakages = {**LIVES, **SCHEDULES, **DOCUMENTS, **RATES}
