"""Endpoints that do otherwise where the contract leaves it open: each is a choice, and no break."""

import json
from datetime import datetime, timedelta

from verify.planted_endpoint import Answer, Event, Json, Request, Service

CHOICES: dict[str, type[Service]] = {}


def choice(service: type[Service]) -> type[Service]:
    CHOICES[service.__name__] = service
    return service


@choice
class FieldsInAnotherOrder(Service):
    def show(self, event: Event, version: str) -> Json:
        return dict(reversed(super().show(event, version).items()))


@choice
class IdsInLowerCase(Service):
    def show(self, event: Event, version: str) -> Json:
        return {**super().show(event, version), "EventId": event.id.lower()}


@choice
class QuotedTag(Service):
    def etag(self) -> str:
        return f'"{self.incarnation}"'

    def unchanged(self, request: Request) -> bool:
        return request.headers.get("if-none-match", "").strip('"') == str(self.incarnation)


@choice
class TagOfItsOwn(Service):
    def etag(self) -> str:
        return f"document-{self.incarnation}"


@choice
class PrettyDocument(Service):
    def json(self, value: object, status: int = 200) -> Answer:
        answer = super().json(value, status)
        answer.body = json.dumps(value, indent=2).encode()
        return answer


@choice
class ApprovalAnswersTheDocument(Service):
    def post(self, request: Request) -> Answer:
        super().post(request)
        return self.json(self.document(request))


@choice
class IncarnationJumps(Service):
    def moved(self, why: str) -> None:
        self.incarnation += 7


@choice
class OtherOrderOfEvents(Service):
    def listed(self, version: str) -> list[Event]:
        return list(reversed(super().listed(version)))


@choice
class StartsAMinuteLate(Service):
    def due(self, event: Event, now: datetime) -> bool:
        return event.approved or super().due(event, now - timedelta(seconds=60))
