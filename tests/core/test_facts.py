"""What the lines of the journal say: one value for each kind, as readable JSON, for ever."""

from __future__ import annotations

import msgspec
import pytest

from forewarn.core.facts import (
    DETAILS,
    ApprovedDetail,
    CanceledDetail,
    EarlierDetail,
    MovedDetail,
    ScheduledDetail,
    approved_by_kind,
    detail_from,
    detail_text,
    detail_words,
    is_typed,
)
from forewarn.core.model import Cause, Detail, EventSource, EventType, Fact, FactKind
from forewarn.core.principal import PrincipalKind
from support.store_values import Values

SCHEDULED = (
    '{"event_type":"Reboot","event_source":"Platform","cause":"maintenance",'
    '"resources":["web_0"],"update_domain":0,"not_before_ms":5,"silent":false}'
)


def test_every_kind_of_fact_has_a_detail_of_its_own_that_says_what_it_means() -> None:
    assert list(DETAILS) == list(FactKind)
    assert len(set(DETAILS.values())) == len(FactKind)
    for kind, detail in DETAILS.items():
        assert issubclass(detail, Detail)
        assert detail.__name__ == f"{kind.value.title().replace('-', '')}Detail"
        assert (detail.__doc__ or "").rstrip().endswith(".")
        assert msgspec.json.schema(detail)


@pytest.mark.parametrize("seed", range(200))
def test_what_a_fact_says_is_the_same_after_it_was_stored(seed: int) -> None:
    fact = Values(seed).fact()
    text = detail_text(fact.detail)
    assert detail_from(fact.kind, text) == fact.detail
    assert msgspec.json.decode(text) == detail_words(fact.detail)


@pytest.mark.parametrize(
    ("kind", "detail", "text"),
    [
        (
            FactKind.SCHEDULED,
            ScheduledDetail(
                event_type=EventType.REBOOT,
                event_source=EventSource.PLATFORM,
                cause=Cause.MAINTENANCE,
                resources=("web_0",),
                update_domain=0,
                not_before_ms=5,
                silent=False,
            ),
            SCHEDULED,
        ),
        (FactKind.MOVED, MovedDetail(from_host="h1", sure=False), '{"from":"h1","sure":false}'),
        (FactKind.CANCELED, CanceledDetail(reason="no"), '{"reason":"no"}'),
        (
            FactKind.APPROVED,
            ApprovedDetail(by_kind=PrincipalKind.CONTROL),
            '{"by_kind":"control"}',
        ),
        (FactKind.COMPLETED, None, "{}"),
    ],
)
def test_stored_details_read_as_they_always_did(
    kind: FactKind, detail: Detail | None, text: str
) -> None:
    assert detail_text(detail) == text
    assert detail_from(kind, text) == detail


@pytest.mark.parametrize(
    "text",
    [
        '{"reason":"no","still_running":1,"added later":{"and":["deep",null]}}',  # a key too many
        '{"still_running":1}',  # before there were reasons
        '{"reason":7}',  # when it was a number
    ],
)
def test_lines_that_an_earlier_version_wrote_otherwise_keep_every_word(text: str) -> None:
    earlier = detail_from(FactKind.CANCELED, text)
    assert isinstance(earlier, EarlierDetail)
    assert detail_words(earlier) == msgspec.json.decode(text)
    assert detail_text(earlier) == text


def test_who_approved_is_known_of_earlier_lines_too() -> None:
    def kind_of(text: str) -> PrincipalKind:
        detail = detail_from(FactKind.APPROVED, text)
        return approved_by_kind(Fact(kind=FactKind.APPROVED, at_ms=1, detail=detail))

    assert kind_of("{}") is PrincipalKind.VM
    assert kind_of('{"by_kind":"operator"}') is PrincipalKind.OPERATOR
    assert kind_of('{"by_kind":"operator","of old":1}') is PrincipalKind.OPERATOR


def test_a_fact_says_what_its_kind_says() -> None:
    moved = MovedDetail(from_host="h1")
    assert is_typed(Fact(kind=FactKind.MOVED, at_ms=1, detail=moved))
    assert is_typed(Fact(kind=FactKind.MOVED, at_ms=1))
    assert not is_typed(Fact(kind=FactKind.DELETED, at_ms=1, detail=moved))
    assert not is_typed(Fact(kind=FactKind.MOVED, at_ms=1, detail=EarlierDetail(said={})))
