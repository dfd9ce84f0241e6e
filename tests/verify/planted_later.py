"""More endpoints that each break one fact: what was thought of once the first bugs were found.

They go where checks look once, or only while there is no event.
"""

import json
from datetime import datetime, timedelta
from email.utils import format_datetime

from verify.planted_bugs import NEWEST, planted
from verify.planted_endpoint import (
    BEGINNING,
    PREVIEW,
    Answer,
    Event,
    Json,
    RefusedError,
    Request,
    Service,
)


@planted("G3", "Content-Length counts characters, not bytes")
class LengthInCharacters(Service):
    def get(self, request: Request) -> Answer:
        answer = super().get(request)
        if answer.status == 200:
            answer.body = answer.body.replace(b"maintenance", "maintenànce".encode())
            answer.headers["Content-Length"] = str(len(answer.body.decode()))
        return answer


@planted("G4", "documents with events have no ETag")
class NoEtagWithEvents(Service):
    def get(self, request: Request) -> Answer:
        answer = super().get(request)
        if self.events and answer.status == 200:
            del answer.headers["ETag"]
        return answer


@planted("G2", "documents with a Started event are text/html")
class HtmlOnceStarted(Service):
    def get(self, request: Request) -> Answer:
        answer = super().get(request)
        if any(event.started for event in self.events) and answer.status == 200:
            answer.headers["Content-Type"] = "text/html"
        return answer


@planted("G3", "Date stands still")
class DateStands(Service):
    def get(self, request: Request) -> Answer:
        answer = super().get(request)
        answer.headers["Date"] = format_datetime(BEGINNING, usegmt=True)
        return answer


@planted("L10", "an event that has gone is there again after half a minute")
class ComesBack(Service):
    def removed(self, event: Event) -> None:
        super().removed(event)
        self.ghosts = [*getattr(self, "ghosts", []), (event, self.clock.now())]

    def document(self, request: Request) -> Json:
        document = super().document(request)
        now = self.clock.now()
        for event, gone_at in getattr(self, "ghosts", []):
            if timedelta(seconds=30) <= now - gone_at <= timedelta(seconds=90):
                document["Events"].append(self.show(event, request.version))
        return document


@planted("L11", "a canceled event is Started before it goes")
class CanceledStarts(Service):
    def cancel(self, event_id: str) -> None:
        with self.lock:
            for event in self.events:
                if event.id.upper() == event_id.upper():
                    event.approved, event.started_for = True, 5
            self.settle(self.clock.now())


@planted("L11", "a canceled event is hidden, and starts at its NotBefore")
class CanceledStartsLater(Service):
    hidden: frozenset[str] = frozenset()

    def cancel(self, event_id: str) -> None:
        self.hidden |= {event_id.upper()}
        self.moved("removed")

    def listed_at(self, event: Event, version: str) -> bool:
        shown = event.started or event.id not in self.hidden
        return super().listed_at(event, version) and shown


@planted("A1", "every second approval is lost")
class EverySecondApprovalLost(Service):
    approvals = 0

    def approve(self, request: Request, events: list[Event]) -> None:
        if not any(event.approved for event in events):
            self.approvals += 1
            super().approve(request, events if self.approvals % 2 else [])


@planted("H7", "an approval with If-None-Match is refused")
class TaggedApprovalRefused(Service):
    def start_requests(self, request: Request) -> list[str]:
        if "if-none-match" in request.headers:
            raise RefusedError(412, "Precondition failed")
        return super().start_requests(request)


@planted("wild", "the connection ends after an approval, without a word")
class HangsUpAfterApproval(Service):
    def post(self, request: Request) -> Answer:
        answer = super().post(request)
        answer.hangs_up = True
        return answer


@planted("Q7", "approvals at 2019-04-01 are answered 200 and lost")
class LostAtOneVersion(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        if request.version != "2019-04-01":
            super().approve(request, events)


@planted("H2", "approvals at 2017-03-01 are answered 200 and lost")
class LostAtThePreview(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        if request.version != PREVIEW:
            super().approve(request, events)


@planted("H5", "approvals that curl sends as a form are answered 200 and lost")
class FormsLost(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        if "form" not in request.headers.get("content-type", ""):
            super().approve(request, events)


@planted("A3", "approvals with a stale DocumentIncarnation are answered 200 and lost")
class StaleLost(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        said = json.loads(request.body).get("DocumentIncarnation", self.incarnation)
        if str(said) == str(self.incarnation):
            super().approve(request, events)


@planted("H7", "approvals with If-None-Match are answered 200 and lost")
class TaggedLost(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        if "if-none-match" not in request.headers:
            super().approve(request, events)


@planted("H7", "304 for what the client had before an event went")
class EndIsUnchanged(Service):
    gone = 0

    def removed(self, event: Event) -> None:
        super().removed(event)
        self.gone = self.incarnation

    def unchanged(self, request: Request) -> bool:
        had = request.headers.get("if-none-match", "").strip('"')
        late = self.gone == self.incarnation and had == str(self.incarnation - 1)
        return late or super().unchanged(request)


@planted("H1", "while an event stands, a GET without the Metadata header is served")
class HeaderNotNeededWithEvents(Service):
    def check_header(self, request: Request) -> None:
        if request.method == "POST" or not self.events:
            super().check_header(request)


@planted("Q1", "while an event stands, a GET without an api-version is served")
class VersionNotNeededWithEvents(Service):
    def check_version(self, request: Request) -> None:
        if not request.version and self.events and request.method == "GET":
            request.query.append(("api-version", NEWEST))
        super().check_version(request)


@planted("L19", "only the last event is shown")
class OnlyTheLast(Service):
    def listed(self, version: str) -> list[Event]:
        return super().listed(version)[-1:]


@planted("L12", "NotBefore is the local time of a zone that is an hour ahead")
class LocalTime(Service):
    def not_before(self, event: Event, version: str) -> str:
        local = event.not_before + timedelta(hours=1)
        return "" if event.started else format_datetime(local, usegmt=True)


@planted("3.3", "an event starts ten minutes after its NotBefore")
class StartsTenMinutesLate(Service):
    def due(self, event: Event, now: datetime) -> bool:
        return event.approved or super().due(event, now - timedelta(minutes=10))


@planted("L13", "an EventId is used again for the next event")
class IdsUsedAgain(Service):
    def removed(self, event: Event) -> None:
        super().removed(event)
        self.used = event.id

    def schedule(
        self,
        event_type: str,
        resources: list[str],
        *,
        notice: float | None = None,
        source: str = "Platform",
        started_for: float | None = None,
    ) -> str:
        made = super().schedule(
            event_type, resources, notice=notice, source=source, started_for=started_for
        )
        if getattr(self, "used", ""):
            self.events[-1].id, self.used = self.used, ""
        return made


@planted("I4", "the name of the VM as text ends with a line end")
class NameWithLineEnd(Service):
    def instance(self, request: Request, path: str) -> Answer:
        answer = super().instance(request, path)
        if answer.headers["Content-Type"] == "text/plain":
            answer.body += b"\n"
        return answer


@planted("L42", "an event that has started names no VM any more")
class NamesGoneOnceStarted(Service):
    def names(self, event: Event, version: str) -> list[str]:
        return [] if event.started else super().names(event, version)


# Broken, but in no answer that one VM could tell from a good one; each with the reason.

UNSEEN: dict[str, str] = {
    "freeze-approvals-lost": "a start of the platform may wait for other tenants (A9)",
    "starts-half-a-second-early": "Date and NotBefore are whole seconds (N7)",
    "all-orders-are-the-platforms": "who gave an order is not on the wire",
    "neighbour-not-named": "which VMs share a host is not on the wire (L42)",
}


@planted("A1", "approvals of a Freeze of the platform are lost")
class FreezeApprovalsLost(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        super().approve(request, [event for event in events if event.type != "Freeze"])


@planted("L12", "an event starts 0.5 s before its NotBefore")
class StartsHalfASecondEarly(Service):
    def due(self, event: Event, now: datetime) -> bool:
        return super().due(event, now + timedelta(seconds=0.5))


@planted("6.1", "EventSource of what a user has ordered is Platform")
class AllOrdersAreThePlatforms(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        return {**shown, "EventSource": "Platform"} if "EventSource" in shown else shown


@planted("L42", "a Freeze names one VM of its host alone")
class NeighbourNotNamed(Service):
    def names(self, event: Event, version: str) -> list[str]:
        return super().names(event, version)[:1]
