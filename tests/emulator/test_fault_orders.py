"""Orders for faults: what is read, what is assumed, and what is refused with which words."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.core.errors import Conflict, Invalid, NotFound
from forewarn.emulator.faults import book as faults
from forewarn.emulator.faults.book import FaultBook, fault_json
from forewarn.emulator.faults.kinds import KINDS, FaultKind, Method
from forewarn.emulator.faults.orders import OF_SOME_KINDS, FaultOrder, read_order
from support.clock import START_MS

NOW_MS = START_MS


def book(**words: Any) -> FaultBook:
    return FaultBook(lambda: NOW_MS, 1, **words)


DOCUMENT = '{"DocumentIncarnation":1,"Events":[]}'


@pytest.mark.parametrize("kind", FaultKind)
def test_a_kind_needs_nothing_but_its_name_and_a_replay_its_document(kind: FaultKind) -> None:
    needs = {"document": DOCUMENT} if kind is FaultKind.REPLAY else {}
    assert read_order({"kind": kind.value, **needs}).kind is kind
    assert read_order({"kind": kind, **needs}).kind is kind


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (410, FaultKind.GONE),
        ("429", FaultKind.THROTTLED),
        (500, FaultKind.ERROR),
        ("503", FaultKind.UNAVAILABLE),
    ],
)
def test_a_kind_with_a_status_may_be_named_by_it(status: int | str, kind: FaultKind) -> None:
    assert read_order({"kind": status}).kind is kind


def test_words_are_read_however_loosely_they_are_typed() -> None:
    typed = {"kind": "stall", "vm": "web_0", "method": "get", "count": 3, "share": 0.5}
    spelled = {"kind": "stall", "vm": "web_0", "method": "GET", "count": "3", "share": "0.5"}
    order = read_order({**typed, "for": 70, "seconds": 1.5})
    assert order == read_order({**spelled, "for-s": "70s", "seconds": "1.5s", "by": None})
    assert order == FaultOrder(
        kind=FaultKind.STALL,
        vm="web_0",
        method=Method.GET,
        count=3,
        share=0.5,
        for_ms=70_000,
        delay_ms=1_500,
    )
    assert read_order({"kind": "rate-limit", "per-second": "2"}).per_second == 2
    assert read_order({"kind": "skip", "by": 14, "vm": ""}).vm is None


def test_what_is_not_said_is_assumed_as_documented() -> None:
    assert read_order({"kind": "slow-first"}).delay_ms == 60_000
    assert read_order({"kind": "stall"}).delay_ms == 30_000
    assert read_order({"kind": "skip"}).by == 1
    assert read_order({"kind": "rate-limit"}).per_second == 5
    assert read_order({"kind": "gone"}).for_ms == 70_000
    assert read_order({"kind": "gone", "count": 1}).for_ms is None
    assert read_order({"kind": "gone", "share": 0.5}).for_ms == 70_000
    assert read_order({"kind": "empty"}).method is Method.GET
    assert read_order({"kind": "cut"}).method is None


REFUSED: list[tuple[dict[str, object], str, str]] = [
    ({}, "kind is missing", "slow-first"),
    ({"kind": "wrong"}, 'no kind of fault "wrong"', "unquoted-etag"),
    ({"kind": 404}, "no kind of fault 404", "410, 429, 500, 503"),
    ({"kind": True}, "no kind of fault true", "gone"),
    ({"kind": "error", "vms": "a"}, 'no key "vms"', "Did you mean vm?"),
    ({"kind": "error", "for": 1, "for_s": 1}, "for is given twice", "once"),
    ({"kind": "error", "vm": 7}, "vm = 7 is refused", "name of one VM"),
    ({"kind": "error", "vm": "x" * 300}, "vm = ", "name of one VM"),
    ({"kind": "error", "method": "PUT"}, "method = ", "GET or POST"),
    ({"kind": "empty", "method": "POST"}, 'method = "POST" is refused', "Accepted: GET."),
    ({"kind": "skip", "method": "GET"}, "takes no method", "There are: kind, vm"),
    ({"kind": "rate-limit", "share": 0.5}, "takes no share", "There are: kind, vm"),
    ({"kind": "error", "count": 0}, "count = 0 is refused", "from 1 to 1000000"),
    ({"kind": "error", "count": 1.5}, "count = 1.5 is refused", "whole number"),
    ({"kind": "error", "count": "many"}, 'count = "many" is refused', "a whole number"),
    ({"kind": "error", "count": 10**400}, "count = ", "a whole number"),
    ({"kind": "error", "count": [1]}, "count = [1] is refused", "a whole number"),
    ({"kind": "error", "share": 0}, "share = 0 is refused", "up to 1"),
    ({"kind": "error", "share": 1.01}, "share = 1.01 is refused", "up to 1"),
    ({"kind": "error", "share": True}, "share = true is refused", "a number"),
    ({"kind": "error", "share": "nan"}, 'share = "nan" is refused', "a number"),
    ({"kind": "error", "for": "soon"}, 'for: The duration "soon" was not understood', "70s"),
    ({"kind": "error", "for": {}}, "for = {} is refused", "70s"),
    ({"kind": "error", "for": "0s"}, 'for = "0s" is refused', "more than 0s"),
    (
        {"kind": "gone", "for": "71s"},
        'for = "71s" is refused',
        "at most 70s, as long as",
    ),
    ({"kind": "gone", "for": "2m", "count": 1}, 'for = "2m" is refused', "at most 70s"),
    (
        {"kind": "error", "seconds": 3},
        "error was refused: it takes no seconds",
        "There are: kind, vm",
    ),
    ({"kind": "stall", "by": 3}, "stall was refused: it takes no by", "for, seconds."),
    ({"kind": "slow-first", "seconds": 121}, "seconds = 121 is refused", "at most 120s"),
    ({"kind": "stall", "seconds": "11m"}, 'seconds = "11m" is refused', "at most 600s"),
    ({"kind": "stall", "seconds": 0}, "seconds = 0 is refused", "more than 0s"),
    ({"kind": "throttled", "retry_after": 1.5}, "retry_after = ", "whole seconds"),
    ({"kind": "throttled", "retry_after": "2h"}, "retry_after = ", "at most 3600s"),
    ({"kind": "skip", "by": 1_001}, "by = ", "from 1 to 1000"),
    ({"kind": "rate-limit", "per_second": 0}, "per_second = ", "up to 1000"),
]


@pytest.mark.parametrize(("words", "refused", "accepted"), REFUSED)
def test_a_mistake_is_named_with_what_would_be_accepted(
    words: dict[str, object], refused: str, accepted: str
) -> None:
    with pytest.raises(Invalid) as caught:
        read_order(words)
    assert caught.value.refused.startswith("The fault")
    assert refused in caught.value.refused
    assert accepted in str(caught.value)
    assert caught.value.accepted.startswith(("Accepted: ", "No fault was added."))


def test_a_misspelt_kind_is_found_among_the_words() -> None:
    with pytest.raises(Invalid, match=r'there is no key "kinds". Did you mean kind\?'):
        read_order({"kinds": "gone"})


def test_all_mistakes_of_an_order_are_named_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        read_order({"kind": "410", "count": 0, "share": 2, "for": "71s", "seconds": 1, "cuont": 1})
    first, *mistakes = caught.value.refused.splitlines()
    assert first == "The fault gone was refused:"
    assert [words.partition(" is refused")[0] for words in mistakes[:3]] == [
        "count = 0",
        "share = 2",
        'for = "71s"',
    ]
    assert mistakes[3].startswith("it takes no seconds. ")
    assert mistakes[4] == 'there is no key "cuont". Did you mean count?'


@pytest.mark.parametrize("kind", FaultKind)
@pytest.mark.parametrize("word", OF_SOME_KINDS)
def test_a_kind_takes_its_own_words_and_no_others(kind: FaultKind, word: str) -> None:
    words = {"kind": kind.value, word: DOCUMENT if word == "document" else 1}
    if kind is FaultKind.REPLAY:
        words["document"] = DOCUMENT
    if word in KINDS[kind].takes:
        read_order(words)
    else:
        with pytest.raises(Invalid, match=f"takes no {word}"):
            read_order(words)


# The book.


def test_faults_are_named_by_their_number_and_keep_it() -> None:
    this = book()
    assert [this.add(read_order({"kind": "error"})).fault_id for _ in range(3)] == [
        "f1",
        "f2",
        "f3",
    ]
    this.clear("f2")
    assert [fault.fault_id for fault in this.list()] == ["f1", "f3"]
    assert this.add(read_order({"kind": "error"})).fault_id == "f4"
    assert [fault.fault_id for fault in this.list(over=True)] == ["f2", "f1", "f3", "f4"]


def test_clearing_says_what_it_has_ended_and_may_be_repeated() -> None:
    this = book()
    this.add(read_order({"kind": "error"}))
    this.add(read_order({"kind": "cut"}))
    assert [(fault.fault_id, fault.over) for fault in this.clear("f1")] == [("f1", True)]
    assert this.clear("f1") == ()
    assert [fault.fault_id for fault in this.clear()] == ["f2"]
    assert this.clear() == ()
    with pytest.raises(NotFound, match='There is no fault "f9"'):
        this.clear("f9")


def test_a_name_that_a_terminal_would_obey_is_shown_in_words() -> None:
    book = FaultBook(lambda: 0, 1, vms=lambda: ())
    name = "\x1b[31m\x9b31m"
    with pytest.raises(NotFound) as unknown_fault:
        book.get(name)
    with pytest.raises(NotFound) as unknown_vm:
        book.add(read_order({"kind": "error", "vm": name}))
    for refusal in (unknown_fault.value, unknown_vm.value):
        assert r"\u001b[31m\u009b31m" in str(refusal)
        assert str(refusal).isprintable()


def test_a_fault_of_a_vm_that_there_is_not_is_refused_with_those_there_are() -> None:
    this = book(vms=lambda: ["db_0", "web_0"])
    this.add(read_order({"kind": "error", "vm": "web_0"}))
    with pytest.raises(NotFound) as near:
        this.add(read_order({"kind": "error", "vm": "web_9"}))
    assert str(near.value) == 'There is no VM "web_9". Did you mean web_0?'
    with pytest.raises(NotFound) as far:
        this.add(read_order({"kind": "error", "vm": "elsewhere"}))
    assert str(far.value) == 'There is no VM "elsewhere". There are: db_0, web_0.'


def test_there_are_only_so_many_faults_at_once_and_only_so_many_remembered() -> None:
    this = book()
    order = read_order({"kind": "error"})
    for _ in range(faults.FAULTS_OVER_KEPT_MAX // faults.FAULTS_MAX + 1):
        for _ in range(faults.FAULTS_MAX):
            this.add(order)
        with pytest.raises(Conflict, match="100 faults already"):
            this.add(order)
        this.clear()
    assert len(this.list(over=True)) == faults.FAULTS_OVER_KEPT_MAX
    with pytest.raises(NotFound):
        this.get("f1")


def test_a_fault_as_json_says_everything_that_was_ordered() -> None:
    this = book()
    this.add(read_order({"kind": "429", "vm": "a", "method": "GET", "count": 2, "retry-after": 9}))
    this.add(read_order({"kind": "stall", "share": 0.5, "for": "70s", "seconds": "1.5s"}))
    this.pick("a", "GET")
    first, second = map(fault_json, this.list())
    assert first == {
        "fault_id": "f1",
        "kind": "throttled",
        "vm": "a",
        "method": "GET",
        "count": 2,
        "share": None,
        "seconds": None,
        "retry_after": 9,
        "by": None,
        "per_second": None,
        "document": None,
        "added": "2026-03-03T10:00:00.000Z",
        "until": None,
        "hits": 1,
        "over": False,
    }
    assert (second["share"], second["seconds"]) == (0.5, 1.5)
    assert second["until"] == "2026-03-03T10:01:10.000Z"
