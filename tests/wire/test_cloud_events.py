"""Lines of the journal as CloudEvents: the envelope, the types, the size, the schemas."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from forewarn.core.errors import Invalid
from forewarn.core.facts import (
    DETAILS,
    CompletedDetail,
    EarlierDetail,
    ScheduledDetail,
    StartedDetail,
    VmGoneDetail,
)
from forewarn.core.model import Cause, EventSource, EventType, Fact, FactKind
from forewarn.core.principal import PrincipalKind
from forewarn.wire import cloud_events
from forewarn.wire.cloud_events import (
    EVENT_BYTES_MAX,
    OPERATION_TYPES,
    TYPES,
    CloudEvent,
    FeedPosition,
    cloud_event,
    encoded,
    read_position,
    schema,
    schema_names,
    subject_of,
    type_of,
)
from support.store_values import Values

AT_MS = 1_772_532_000_123
DONE = Fact(
    kind=FactKind.COMPLETED,
    at_ms=AT_MS,
    scope="web",
    event_id="4D6A",
    operation_id="OP1",
    host="h1",
    by="ann",
    by_kind=PrincipalKind.OPERATOR,
    by_id="token:3k",
    detail=CompletedDetail(event_type=EventType.REBOOT, resources=("web_0", "web_1")),
)


def sent(fact: Fact, number: int = 503, generation: int = 1) -> dict[str, Any]:
    event = cloud_event(fact, number, generation=generation, installation="9f2c")
    found: dict[str, Any] = json.loads(encoded(event))
    return found


def test_a_completed_event_is_told_with_all_that_a_reader_needs() -> None:
    assert sent(DONE) == {
        "specversion": "1.0",
        "id": "1-503",
        "source": "/forewarn/9f2c",
        "type": "io.forewarn.event.completed.v1",
        "subject": "scopes/web/events/4D6A",
        "time": "2026-03-03T10:00:00.123Z",
        "datacontenttype": "application/json",
        "dataschema": "urn:forewarn:feed:event.completed.v1",
        "sequence": "0000000001-0000000000000503",
        "data": {
            "kind": "completed",
            "number": 503,
            "scope": "web",
            "event_id": "4D6A",
            "operation_id": "OP1",
            "host": "h1",
            "by": {"name": "ann", "kind": "operator", "id": "token:3k"},
            "detail": {"event_type": "Reboot", "resources": ["web_0", "web_1"]},
        },
    }


def test_every_kind_has_a_type_and_no_two_share_one() -> None:
    assert list(TYPES) == list(FactKind)
    names = [*TYPES.values(), *OPERATION_TYPES.values()]
    assert len(set(names)) == len(names)
    assert sorted(schema_names()) == sorted(names)
    form = re.compile(
        r"(event|operation|action|vm|scope|host|service|webhook|access)\.[a-z]+(-[a-z]+)*\.v1"
    )
    assert [name for name in names if not form.fullmatch(name)] == []


def test_lines_of_an_operation_and_of_an_event_are_told_apart() -> None:
    of_event = Fact(kind=FactKind.CANCELED, at_ms=1, scope="web", event_id="E", operation_id="O")
    of_operation = Fact(kind=FactKind.CANCELED, at_ms=1, operation_id="O", host="h1")
    assert type_of(of_event) == "io.forewarn.event.canceled.v1"
    assert type_of(of_operation) == "io.forewarn.operation.canceled.v1"
    assert subject_of(of_event) == "scopes/web/events/E"
    assert subject_of(of_operation) == "operations/O"


@pytest.mark.parametrize(
    ("kind", "about", "subject"),
    [
        (FactKind.MOVED, {"scope": "web", "vm": "a", "event_id": "E"}, "scopes/web/vms/a"),
        (FactKind.ADOPTION_ORDERED, {"vm": "a", "host": "h"}, "vms/a"),
        (FactKind.HELD, {"scope": "web", "event_id": "E", "host": "h"}, "scopes/web"),
        (FactKind.HOST_FAILED, {"host": "h"}, "hosts/h"),
        (FactKind.CLAIMED, {"host": "h", "operation_id": "O"}, "operations/O"),
        (FactKind.CLAIMED, {"scope": "web", "host": "h", "event_id": "E"}, "scopes/web/events/E"),
        (FactKind.DOWNTIME, {"host": "h"}, "hosts/h"),
        (FactKind.DOWNTIME, {}, None),
    ],
)
def test_the_subject_is_the_thing_that_the_line_is_about(
    kind: FactKind, about: dict[str, Any], subject: str | None
) -> None:
    fact = Fact(kind=kind, at_ms=1, **about)
    assert subject_of(fact) == subject
    assert sent(fact).get("subject") == subject


@pytest.mark.parametrize("seed", range(100))
def test_any_line_has_the_attributes_that_the_specification_wants(seed: int) -> None:
    values = Values(seed)
    fact = values.fact(at_ms=values.rng.randrange(1 << 41))
    found = sent(fact)
    for name in ("id", "source", "type", "specversion", "time", "sequence"):
        assert isinstance(found[name], str)
        assert found[name]
    assert all(re.fullmatch("[a-z0-9]{1,20}", name) for name in found)
    assert found.get("subject") != ""
    assert msgspec.json.decode(encoded_of(fact), type=CloudEvent).id == "1-1"
    assert b"\n" not in encoded_of(fact)
    if "dataschema" in found:
        assert msgspec.convert(found["data"]["detail"], DETAILS[fact.kind]) is not None


def encoded_of(fact: Fact) -> bytes:
    return encoded(cloud_event(fact, 1, generation=1, installation="x"))


def test_the_sequence_sorts_as_text_also_over_a_restore() -> None:
    order = [(1, 9), (1, 10), (1, 2**53 - 1), (1_772_532_000, 5), (1_772_532_001, 2)]
    texts = [sent(DONE, number, generation)["sequence"] for generation, number in order]
    assert texts == sorted(texts)
    assert len({len(text) for text in texts}) == 1


def scheduled(resources: tuple[str, ...]) -> Fact:
    detail = ScheduledDetail(
        event_type=EventType.REBOOT,
        event_source=EventSource.PLATFORM,
        cause=Cause.MAINTENANCE,
        resources=resources,
        update_domain=0,
        not_before_ms=1,
        silent=False,
    )
    return Fact(kind=FactKind.SCHEDULED, at_ms=1, scope="s", event_id="E", detail=detail)


@pytest.mark.parametrize(
    "fact",
    [
        scheduled(tuple(f"vm-{n:04}" for n in range(5_000))),
        scheduled(tuple("\x1f" * 256 for _ in range(100))),
        Fact(kind=FactKind.VM_GONE, at_ms=1, detail=VmGoneDetail(because="x" * 99_999, vm_id="1")),
        Fact(kind=FactKind.STARTED, at_ms=1, detail=StartedDetail(resources=("é" * 9_000,) * 9)),
        Fact(
            kind=FactKind.DOWNTIME,
            at_ms=1,
            detail=EarlierDetail(said={f"{n}" * 900: [["deep"] * 900] * 900 for n in range(99)}),
        ),
        Fact(
            kind=FactKind.DOWNTIME,
            at_ms=1,
            detail=EarlierDetail(said={f"key {n}": {"x": "y" * 9} for n in range(9_999)}),
        ),
    ],
    ids=["many names", "long names", "long text", "wide text", "deep", "many keys"],
)
def test_what_is_too_long_is_shortened_and_says_so(fact: Fact) -> None:
    text = encoded_of(fact)
    assert len(text) <= EVENT_BYTES_MAX < 20 * 1_024
    assert json.loads(text)["data"]["shortened"] is True


def test_what_was_shortened_begins_as_the_whole_does_and_keeps_its_schema() -> None:
    data = sent(scheduled(tuple(f"vm-{n:04}" for n in range(5_000))))["data"]
    assert data["detail"]["resources"] == [f"vm-{n:04}" for n in range(100)]
    assert msgspec.convert(data["detail"], ScheduledDetail).update_domain == 0
    assert "shortened" not in sent(DONE)["data"]


def test_a_line_that_an_earlier_version_wrote_keeps_its_words_and_claims_no_schema() -> None:
    said = {"reason": "no", "of old": [1]}
    earlier = Fact(kind=FactKind.CANCELED, at_ms=1, detail=EarlierDetail(said=said))
    found = sent(earlier)
    assert found["data"]["detail"] == said
    assert "dataschema" not in found
    assert "dataschema" not in sent(Fact(kind=FactKind.CANCELED, at_ms=1))
    assert "dataschema" in sent(Fact(kind=FactKind.COMPLETED, at_ms=1))


@pytest.mark.parametrize("name", list(schema_names()))
def test_each_type_has_a_schema_that_names_every_field_of_its_detail(name: str) -> None:
    found = json.loads(schema(name) or b"")
    kinds = {schema: kind for table in (TYPES, OPERATION_TYPES) for kind, schema in table.items()}
    detail = DETAILS[kinds[name]]
    assert found["$id"] == f"urn:forewarn:feed:{name}"
    assert found["title"] == f"io.forewarn.{name}"
    assert found["properties"]["kind"] == {"const": kinds[name].value}
    shape = found["$defs"][found["properties"]["detail"]["$ref"].rpartition("/")[2]]
    assert set(shape["properties"]) == set(detail.__struct_encode_fields__)
    assert "additionalProperties" not in json.dumps(found)
    referred = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(found)))
    assert referred == set(found["$defs"])


def test_there_is_no_schema_of_another_name() -> None:
    assert schema("event.sung.v1") is None
    assert schema("") is None


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("0", FeedPosition(0)),
        ("503", FeedPosition(503)),
        ("1-503", FeedPosition(503, 1)),
        ("1772532000-0503", FeedPosition(503, 1_772_532_000)),
    ],
)
def test_a_place_in_the_feed_is_an_id_or_a_number(text: str, position: FeedPosition) -> None:
    assert read_position(text) == position
    assert read_position(str(position)) == position


@pytest.mark.parametrize("text", ["", "-1", "1-", "-", "1-2-3", " 1", "1\n", "٣", "1e3", "9" * 17])
def test_what_is_no_place_in_the_feed_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_position(text)
    assert "1-503" in refused.value.accepted


def test_ids_are_those_of_positions() -> None:
    assert read_position(sent(DONE, 7, 1_772_532_000)["id"]) == FeedPosition(7, 1_772_532_000)
    assert cloud_events.GENERATION_DIGITS == 10
