"""The record of what guests asked: one line for what repeats, and an end to what is kept."""

from __future__ import annotations

from forewarn.emulator.exchanges import BODY_BYTES_MAX, BYTES_MAX, EXCHANGES_MAX, ExchangeRecord
from forewarn.endpoint.http_parser import Head, Message

HEAD = Head(
    method="GET", target="/metadata", headers={}, hosts=("x",), http_1_0=False, keep_alive=True
)
ASKED = Message(head=HEAD, body=b"", key=None)


def answered(record: ExchangeRecord, body: bytes, vm: str = "vm0") -> None:
    record.answered(vm, ASKED, b"HTTP/1.1 200 OK\r\nDate: x\r\n\r\n" + body, "")


def test_what_repeats_is_told_once_with_how_often_also_when_others_ask_between() -> None:
    now = [1_000]
    record = ExchangeRecord(lambda: now[0], lambda: 7)
    for _ in range(3):
        answered(record, b"a")
        answered(record, b"a", vm="vm1")
        now[0] += 500
    answered(record, b"b")
    told = [(one.vm, one.body, one.times, one.at_ms, one.last_ms) for one in record.all()]
    assert told == [
        ("vm0", b"a", 3, 1_000, 2_000),
        ("vm1", b"a", 3, 1_000, 2_000),
        ("vm0", b"b", 1, 2_500, 2_500),
    ]
    assert {(one.status, one.facts) for one in record.all()} == {(200, 7)}


def test_the_oldest_are_forgotten_by_number_and_by_bytes() -> None:
    record = ExchangeRecord(lambda: 0, lambda: 0)
    for number in range(EXCHANGES_MAX + 3):
        answered(record, str(number).encode())
    assert len(record.all()) == EXCHANGES_MAX
    assert (record.dropped, record.all()[0].body) == (3, b"3")
    for number in range(2 * BYTES_MAX // BODY_BYTES_MAX):
        answered(record, b"%010d" % number + b"x" * BODY_BYTES_MAX)
    assert sum(one.size for one in record.all()) <= BYTES_MAX
