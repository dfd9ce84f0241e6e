"""Endpoints that each break one fact of the contract, written before a look at `verify`.

A bug says which fact it breaks (ids of docs/compatibility.md; `wild` is what clients in the wild
need). None of them says how it could be found.
"""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import format_datetime
from typing import NamedTuple

from verify.planted_endpoint import (
    FIELD_SINCE,
    PREVIEW,
    VERSIONS,
    Answer,
    Event,
    Json,
    RefusedError,
    Request,
    Service,
)

NEWEST = VERSIONS[-1]


class Bug(NamedTuple):
    """One way to break the contract."""

    name: str
    fact: str
    says: str
    service: type[Service]


BUGS: dict[str, Bug] = {}


def planted(fact: str, says: str) -> Callable[[type[Service]], type[Service]]:
    def keep(service: type[Service]) -> type[Service]:
        name = "".join("-" + each.lower() if each.isupper() else each for each in service.__name__)
        bug = Bug(name.lstrip("-"), fact, says, service)
        BUGS[bug.name] = bug
        return service

    return keep


# Requests.


@planted("H1", "a GET without the Metadata header is served")
class HeaderNotNeeded(Service):
    def check_header(self, request: Request) -> None:
        if request.method == "POST":
            super().check_header(request)


@planted("H1", "any value of the Metadata header will do")
class HeaderOfAnyValue(Service):
    def has_header(self, request: Request) -> bool:
        return "metadata" in request.headers


@planted("H2", "the preview version asks for the Metadata header too")
class PreviewNeedsHeader(Service):
    def check_header(self, request: Request) -> None:
        if not self.has_header(request):
            raise RefusedError(400, "Bad request: . Required metadata header not specified")


@planted("H3", "Metadata: True is refused, only true is taken")
class HeaderInLowerCaseOnly(Service):
    def has_header(self, request: Request) -> bool:
        return request.headers.get("metadata") == "true"


@planted("H4", "a request that was forwarded is served")
class ForwardedIsServed(Service):
    def check_forwarded(self, request: Request) -> None:
        return


@planted("A5", "an approval without the Metadata header is taken")
class ApprovalWithoutHeader(Service):
    def check_header(self, request: Request) -> None:
        if request.method != "POST":
            super().check_header(request)


@planted("Q1", "without an api-version the newest one is served")
class VersionNotNeeded(Service):
    def check_version(self, request: Request) -> None:
        if not request.version:
            request.query.append(("api-version", NEWEST))
        super().check_version(request)


@planted("E3", "an unknown api-version is served as the newest one")
class UnknownVersionServed(Service):
    def check_version(self, request: Request) -> None:
        if request.version and request.version not in VERSIONS:
            request.query[:] = [("api-version", NEWEST)]
        super().check_version(request)


@planted("E3", "an unknown api-version is answered 500")
class UnknownVersionBreaks(Service):
    def check_version(self, request: Request) -> None:
        if request.version and request.version not in VERSIONS:
            raise RefusedError(500, "Internal error")
        super().check_version(request)


@planted("Q2", "2017-11-01 is not served")
class OneVersionMissing(Service):
    def check_version(self, request: Request) -> None:
        if request.version == "2017-11-01":
            raise RefusedError(404, "Not found. Invalid version requested")
        super().check_version(request)


@planted("Q5", "a query parameter may be repeated")
class RepeatedParameter(Service):
    def check_query(self, request: Request) -> None:
        self.check_version(request)


@planted("wild", "another query parameter than api-version is refused")
class ExtraParameterRefused(Service):
    def check_query(self, request: Request) -> None:
        if any(name != "api-version" for name, _ in request.query):
            raise RefusedError(400, "Bad request")
        super().check_query(request)


@planted("E11", "PUT and DELETE are answered as GET is")
class OtherVerbsServed(Service):
    def other_verb(self, request: Request) -> Answer:
        self.check_header(request)
        self.check_query(request)
        return self.get(request)


@planted("E12", "an unknown path is answered 200 and a page")
class UnknownPathServed(Service):
    def unknown_path(self, request: Request) -> Answer:
        return Answer(200, b"<html>Welcome</html>", {"Content-Type": "text/html"})


@planted("2.1", "refusals are pages of HTML")
class RefusalsInHtml(Service):
    def refusal(self, request: Request, refused: RefusedError) -> Answer:
        return Answer(refused.status, b"<html>No</html>", {"Content-Type": "text/html"})


# The answer to a GET.


@planted("G2", "the document is text/plain")
class DocumentAsText(Service):
    def get(self, request: Request) -> Answer:
        answer = super().get(request)
        answer.headers["Content-Type"] = "text/plain"
        return answer


@planted("G1", "the document begins with a byte order mark")
class ByteOrderMark(Service):
    def get(self, request: Request) -> Answer:
        answer = super().get(request)
        answer.body = b"\xef\xbb\xbf" + answer.body if answer.body else b""
        return answer


@planted("G1", "Events is null when nothing is scheduled")
class NullForNothing(Service):
    def document(self, request: Request) -> Json:
        document = super().document(request)
        return {**document, "Events": document["Events"] or None}


@planted("G4", "there is no ETag")
class NoEtag(Service):
    def get(self, request: Request) -> Answer:
        answer = super().get(request)
        del answer.headers["ETag"]
        return answer


@planted("H7", "the document is sent again though the client has it")
class NeverUnchanged(Service):
    def unchanged(self, request: Request) -> bool:
        return False


@planted("H7", "a client that ever had a document is never told of a change")
class AlwaysUnchanged(Service):
    def unchanged(self, request: Request) -> bool:
        return request.headers.get("if-none-match", "0") not in ("0", "null")


@planted("H7", "304 for what the client had before an event started")
class StartIsUnchanged(Service):
    def unchanged(self, request: Request) -> bool:
        had = request.headers.get("if-none-match", "").strip('"')
        started = any(event.started for event in self.events)
        return super().unchanged(request) or (started and had == str(self.incarnation - 1))


# Numbers of documents.


@planted("S2", "DocumentIncarnation is a string")
class IncarnationAsText(Service):
    def document(self, request: Request) -> Json:
        document = super().document(request)
        return {**document, "DocumentIncarnation": str(document["DocumentIncarnation"])}


@planted("S3", "the incarnation stays as it is when an event starts")
class IncarnationStaysAtStart(Service):
    def moved(self, why: str) -> None:
        if why != "started":
            super().moved(why)


@planted("S3", "the incarnation stays as it is when an event goes")
class IncarnationStaysAtRemoval(Service):
    def moved(self, why: str) -> None:
        if why != "removed":
            super().moved(why)


@planted("L14", "the incarnation goes back when an event goes")
class IncarnationGoesBack(Service):
    def moved(self, why: str) -> None:
        self.incarnation += -1 if why == "removed" else 1


@planted("wild", "the incarnation grows with each GET")
class IncarnationCountsReads(Service):
    def get(self, request: Request) -> Answer:
        self.incarnation += 1
        return super().get(request)


# Fields of an event.


@planted("1.5", "there is no ResourceType")
class FieldMissing(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        del shown["ResourceType"]
        return shown


@planted("wild", "Started events have a field of their own")
class ExtraFieldWhenStarted(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        return {**shown, "StartedAt": "now"} if event.started else shown


@planted("S1", "fields that are newer than the version are null")
class NewerFieldsNull(Service):
    def show(self, event: Event, version: str) -> Json:
        return {**dict.fromkeys(FIELD_SINCE), **super().show(event, version)}


@planted("1.5", "EventSource is there from 2019-04-01 on")
class SourceTooSoon(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        return {**shown, "EventSource": event.source} if version == "2019-04-01" else shown


@planted("wild", "DurationInSeconds is a string")
class DurationAsText(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        if "DurationInSeconds" in shown:
            shown["DurationInSeconds"] = str(event.duration)
        return shown


@planted("S4", "names at 2017-08-01 still have the underscore of the preview")
class UnderscoreTooLong(Service):
    def names(self, event: Event, version: str) -> list[str]:
        return super().names(event, PREVIEW if version == "2017-08-01" else version)


@planted("S4", "names in the preview have no underscore")
class NoUnderscore(Service):
    def names(self, event: Event, version: str) -> list[str]:
        return super().names(event, NEWEST)


@planted("C6", "names in Resources are in upper case, compute.name is not")
class NamesInUpperCase(Service):
    def names(self, event: Event, version: str) -> list[str]:
        return [name.upper() for name in super().names(event, version)]


@planted("1.5", "Resources is one string")
class ResourcesAsText(Service):
    def show(self, event: Event, version: str) -> Json:
        return {**super().show(event, version), "Resources": ",".join(event.resources)}


@planted("1.6", "Terminate is shown at 2017-08-01")
class TerminateTooSoon(Service):
    def listed_at(self, event: Event, version: str) -> bool:
        return super().listed_at(event, version) or event.type == "Terminate"


@planted("1.6", "Terminate is hidden at 2019-01-01")
class TerminateTooLate(Service):
    def listed_at(self, event: Event, version: str) -> bool:
        hidden = event.type == "Terminate" and version == "2019-01-01"
        return super().listed_at(event, version) and not hidden


@planted("1.5", "EventType is in lower case at 2019-08-01")
class TypeInLowerCase(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        if version == "2019-08-01":
            shown["EventType"] = event.type.lower()
        return shown


@planted("wild", "the EventId of a Started event is in lower case")
class StartedIdInLowerCase(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        return {**shown, "EventId": event.id.lower()} if event.started else shown


@planted("Q7", "an event has another EventId at each api-version")
class IdOfEachVersion(Service):
    def show(self, event: Event, version: str) -> Json:
        number = f"{VERSIONS.index(version):04X}"
        return {**super().show(event, version), "EventId": event.id[:-4] + number}

    def start_requests(self, request: Request) -> list[str]:
        asked = [each[:-4].upper() for each in super().start_requests(request)]
        return [event.id for event in self.events if event.id[:-4] in asked] or asked


@planted("L19", "only the first event is shown")
class OnlyTheFirst(Service):
    def listed(self, version: str) -> list[Event]:
        return super().listed(version)[:1]


# NotBefore.


@planted("N1", "NotBefore is an ISO time")
class IsoTime(Service):
    def not_before(self, event: Event, version: str) -> str:
        return "" if event.started else event.not_before.strftime("%Y-%m-%dT%H:%M:%SZ")


@planted("N3", "the day of the week in NotBefore is the one before")
class WrongWeekday(Service):
    def not_before(self, event: Event, version: str) -> str:
        shown = super().not_before(event, version)
        return (event.not_before - timedelta(days=1)).strftime("%a") + shown[3:] if shown else ""


@planted("N4", "NotBefore stays once the event has started")
class NotBeforeStays(Service):
    def not_before(self, event: Event, version: str) -> str:
        return format_datetime(event.not_before, usegmt=True)


@planted("1.5", "NotBefore is null once the event has started")
class NotBeforeNull(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        return {**shown, "NotBefore": None} if event.started else shown


@planted("S3", "NotBefore at 2019-01-01 is two minutes later than elsewhere")
class NotBeforeOfEachVersion(Service):
    def not_before(self, event: Event, version: str) -> str:
        moved = timedelta(minutes=2 if version == "2019-01-01" else 0)
        return "" if event.started else format_datetime(event.not_before + moved, usegmt=True)


@planted("S3", "NotBefore is always the whole notice away")
class NotBeforeSlides(Service):
    def not_before(self, event: Event, version: str) -> str:
        far = self.clock.now() + (event.not_before - event.scheduled_at)
        return "" if event.started else format_datetime(far.replace(microsecond=0), usegmt=True)


@planted("3.3", "a Freeze has one minute of notice")
class ShortNotice(Service):
    def notice(self, event_type: str) -> float:
        return 60 if event_type == "Freeze" else super().notice(event_type)


# How events live.


@planted("L12", "an event starts 1.5 s before its NotBefore")
class StartsALittleEarly(Service):
    def due(self, event: Event, now: datetime) -> bool:
        return super().due(event, now + timedelta(seconds=1.5))


@planted("L12", "an event starts 15 s after it was scheduled")
class StartsFarTooEarly(Service):
    def due(self, event: Event, now: datetime) -> bool:
        return super().due(event, now) or now >= event.scheduled_at + timedelta(seconds=15)


@planted("L12", "an event that nobody approves never starts")
class NeverByItself(Service):
    def due(self, event: Event, now: datetime) -> bool:
        return event.approved


@planted("L10", "an event goes at its start, Started is never shown")
class StartedNeverShown(Service):
    def over(self, event: Event, now: datetime) -> bool:
        return event.started


@planted("L10", "an event is missing at 2017-08-01 while it is Started")
class StartedMissingAtOneVersion(Service):
    def listed_at(self, event: Event, version: str) -> bool:
        return super().listed_at(event, version) and not (event.started and version == "2017-08-01")


@planted("L10", "an event is Completed before it goes")
class ShowsCompleted(Service):
    def over(self, event: Event, now: datetime) -> bool:
        return super().over(event, now - timedelta(seconds=60))

    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        if super().over(event, self.clock.now()):
            shown["EventStatus"] = "Completed"
        return shown


@planted("L10", "2019-04-01 still shows Scheduled when an event has started")
class ScheduledForTooLong(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        if version == "2019-04-01" and event.started:
            shown["EventStatus"] = "Scheduled"
            shown["NotBefore"] = format_datetime(event.not_before, usegmt=True)
        return shown


@planted("L10", "a Started event is Scheduled again after ten seconds")
class BackToScheduled(Service):
    def show(self, event: Event, version: str) -> Json:
        shown = super().show(event, version)
        began = event.started_at
        if began is not None and self.clock.now() >= began + timedelta(seconds=10):
            shown["EventStatus"] = "Scheduled"
            shown["NotBefore"] = format_datetime(event.not_before, usegmt=True)
        return shown


@planted("S3", "an event is listed twice")
class ListedTwice(Service):
    def listed(self, version: str) -> list[Event]:
        return [event for event in super().listed(version) for _ in range(2)]


# Approvals.


@planted("A1", "approvals are answered 200 and forgotten")
class ApprovalsIgnored(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        return


@planted("A2", "of several ids in one approval only the first counts")
class OnlyTheFirstApproved(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        super().approve(request, events[:1])


@planted("A1", "approvals of a Redeploy are lost")
class RedeployApprovalsLost(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        super().approve(request, [event for event in events if event.type != "Redeploy"])


@planted("L12", "an approval of an unknown id approves everything")
class UnknownApprovesAll(Service):
    def unknown_ids(self, request: Request, unknown: list[str]) -> Answer:
        self.approve(request, self.events)
        return super().unknown_ids(request, unknown)


@planted("L12", "an approval of one event starts the others too")
class OneApprovesAll(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        super().approve(request, self.events)


@planted("A12", "an approval of an event that has started is refused")
class StartedApprovalRefused(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        if any(event.started for event in events):
            raise RefusedError(400, "Bad request. It has started")
        super().approve(request, events)


@planted("A4", "a second approval is refused")
class SecondApprovalRefused(Service):
    def approve(self, request: Request, events: list[Event]) -> None:
        if any(event.approved for event in events):
            raise RefusedError(409, "Conflict. Approved before")
        super().approve(request, events)


@planted("A5", "a malformed approval is answered 500 while an event stands")
class MalformedBreaks(Service):
    def malformed(self, request: Request) -> list[str]:
        if self.events:
            raise RefusedError(500, "Internal error")
        return super().malformed(request)


@planted("A5", "a malformed approval is answered 200")
class MalformedTaken(Service):
    def malformed(self, request: Request) -> list[str]:
        return []


@planted("A3", "an approval with a stale DocumentIncarnation is refused")
class StaleIncarnationRefused(Service):
    def start_requests(self, request: Request) -> list[str]:
        ids = super().start_requests(request)
        said = json.loads(request.body).get("DocumentIncarnation", self.incarnation)
        if str(said) != str(self.incarnation):
            raise RefusedError(412, "Precondition failed")
        return ids


@planted("H5", "an approval must be application/json")
class JsonTypeNeeded(Service):
    def start_requests(self, request: Request) -> list[str]:
        if not request.headers.get("content-type", "").startswith("application/json"):
            raise RefusedError(415, "Unsupported media type")
        return super().start_requests(request)


@planted("Q7", "an approval must have the api-version 2020-07-01")
class ApprovalOfOneVersion(Service):
    def start_requests(self, request: Request) -> list[str]:
        if request.version != NEWEST:
            raise RefusedError(400, "Bad request")
        return super().start_requests(request)


@planted("A4", "an approval is answered 202")
class ApprovalAccepted(Service):
    def post(self, request: Request) -> Answer:
        answer = super().post(request)
        answer.status = 202
        return answer


@planted("A7", "an approval is answered with a word that is no JSON")
class ApprovalSaysOk(Service):
    def post(self, request: Request) -> Answer:
        answer = super().post(request)
        answer.body = b"OK"
        return answer
