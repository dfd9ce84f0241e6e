"""MemoryMax= of the units: above all that the limits of the program allow together."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT

from forewarn.adapters.child_processes import CHILD_BYTES_MAX
from forewarn.api.guarded_protocol import CONNECTIONS_MAX, HEAD_BYTES_MAX
from forewarn.api.guarded_server import OPERATOR_HANDSHAKES_MAX
from forewarn.api.link.app import (
    ANSWERS_BYTES_MAX,
    LONG_QUESTIONS_BYTES_MAX,
    PACED_BYTES_MIN,
    SHORT_QUESTIONS_BYTES_MAX,
)
from forewarn.api.link.protocol import HANDSHAKES_MAX, LINK_CONNECTIONS_MAX
from forewarn.api.memory_budget import PIECE_BYTES
from forewarn.api.operator_routes import ORDERS_BYTES_MAX
from forewarn.api.order_bodies import BODY_BYTES_MAX
from forewarn.control.journal_log import LINES_WAITING_MAX
from forewarn.control.operator_overview import ITEMS_MAX
from forewarn.endpoint.limits import Limits
from forewarn.host.channels.plan import CHANNELS_MAX
from forewarn.wire import link as wire

SYSTEMD = Path(__file__).parent.parent.parent / "packaging" / "systemd"
KIB, MIB = 1_024, 1_024 * 1_024

# What the event loops and OpenSSL take for one connection, not named by us: a read of TLS, and the
# state of a connection (54 KiB were measured for one that waits for its handshake).
TLS_READ_BYTES = 256 * KIB
TLS_STATE_BYTES = 64 * KIB
STATE_BYTES = 16 * KIB
# What waits to be taken by a peer: up to the mark at which the transport says so, and one piece.
UNTAKEN_BYTES = HIGH_WATER_LIMIT + PIECE_BYTES
FACT_BYTES = 4 * KIB  # as a value, with what it names
ITEM_BYTES = KIB  # of a list: a line of the journal, an event, a host
FOLDS = 4  # a body as it came, as one text, as values, and as what is made of them
LISTENERS_PER_TAP = 2  # IPv4 and IPv6

_LINE = re.compile(r"#   ([\d,]+) (MiB of )?(.+?) x ([\d,]+)( KiB)? = ([\d,]+) MiB")
_SUM = re.compile(r"#   together ([\d,]+) MiB\nMemoryMax=(\d+)M\n")


def number(text: str) -> int:
    return int(text.replace(",", ""))


def text_of(unit: str) -> str:
    return (SYSTEMD / unit).read_text(encoding="utf-8")


def told(unit: str) -> dict[str, tuple[int, int, int]]:
    """What each line of the sum says: how many, how much of each in KiB, and the product in MiB."""
    found = {}
    for count, mib, what, each, kib, product in _LINE.findall(text_of(unit)):
        size = number(each) if kib else number(each) * KIB
        assert bool(mib) != bool(kib), f"{what}: either MiB times so many, or so many times KiB"
        found[what] = (number(count), size, number(product))
    return found


def open_files(unit: str) -> int:
    found = re.search(r"(?m)^LimitNOFILE=(\d+)$", text_of(unit))
    assert found is not None
    return int(found[1])


def needed() -> dict[str, dict[str, tuple[int, float]]]:
    """What the limits say: how many, and how much of each in KiB at least."""
    limits = Limits()
    http = HEAD_BYTES_MAX + HIGH_WATER_LIMIT + UNTAKEN_BYTES
    link = TLS_READ_BYTES + TLS_STATE_BYTES + http
    assert PACED_BYTES_MIN <= PIECE_BYTES
    assert BODY_BYTES_MAX <= HIGH_WATER_LIMIT
    listed = ITEMS_MAX * ITEM_BYTES + http + STATE_BYTES + TLS_READ_BYTES + TLS_STATE_BYTES
    guest = limits.head_bytes + limits.body_bytes + limits.pipelined_bytes
    return {
        "forewarn-control.service": {
            "connections of hosts": (LINK_CONNECTIONS_MAX, link / KIB),
            "unfinished TLS handshakes": (
                HANDSHAKES_MAX,
                (TLS_READ_BYTES + TLS_STATE_BYTES) / KIB,
            ),
            "connections of operators": (CONNECTIONS_MAX, listed / KIB),
            "unfinished TLS handshakes of operators": (
                OPERATOR_HANDSHAKES_MAX,
                (TLS_READ_BYTES + TLS_STATE_BYTES) / KIB,
            ),
            "long questions": (LONG_QUESTIONS_BYTES_MAX // MIB, FOLDS * KIB),
            "short questions": (SHORT_QUESTIONS_BYTES_MAX // MIB, FOLDS * KIB),
            "long answers": (ANSWERS_BYTES_MAX // MIB, KIB),
            "operators' orders": (ORDERS_BYTES_MAX // MIB, FOLDS * KIB),
            "the process that reads an inventory": (CHILD_BYTES_MAX // MIB, KIB),
            "facts on their way to the log": (LINES_WAITING_MAX, FACT_BYTES / KIB),
        },
        "forewarn-host.service": {
            "connections of guests": (
                open_files("forewarn-host.service") - LISTENERS_PER_TAP * CHANNELS_MAX,
                (guest + HIGH_WATER_LIMIT + STATE_BYTES) / KIB,
            ),
            "one answer of control": (wire.BODY_BYTES_MAX // MIB, FOLDS * KIB),
            "one report to control": (wire.BODY_BYTES_MAX // MIB, FOLDS * KIB),
        },
    }


UNITS = sorted(needed())


@pytest.mark.parametrize("unit", UNITS)
def test_the_sum_above_memory_max_says_what_the_limits_of_the_program_are(unit: str) -> None:
    lines = told(unit)
    for what, (count, each_kib) in needed()[unit].items():
        assert lines[what][0] == count, what
        assert lines[what][1] >= each_kib, what


@pytest.mark.parametrize("unit", UNITS)
def test_all_limits_together_are_below_memory_max(unit: str) -> None:
    lines = told(unit)
    assert lines.keys() > needed()[unit].keys()  # and the program itself
    for what, (count, each_kib, product) in lines.items():
        assert product == math.ceil(count * each_kib / KIB), what
    said = _SUM.search(text_of(unit))
    assert said is not None
    assert number(said[1]) == sum(product for _, _, product in lines.values())
    assert number(said[1]) * 1.1 < int(said[2])  # a tenth for what an allocator wastes


def test_the_link_may_open_all_that_it_may_hold() -> None:
    taken = LINK_CONNECTIONS_MAX + HANDSHAKES_MAX + CONNECTIONS_MAX + OPERATOR_HANDSHAKES_MAX
    assert taken < open_files("forewarn-control.service")
