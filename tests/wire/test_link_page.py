"""docs/link.md against the messages: a second implementation is written from that page."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from forewarn.api.link import protocol, routes
from forewarn.control.hosts import action_claims, reported_vms
from forewarn.wire import link as wire
from support.link_messages import MESSAGES, kinds

PAGE = Path(__file__).parents[2] / "docs" / "link.md"

# What follows on the page after these words.
LIMITS = [
    ("| `holding` |", wire.HOLDING_MAX),
    ("| `refuses` |", wire.DETAIL_CHARS_MAX),
    ("| `confirms` |", wire.CONFIRMS_MAX),
    ("| `first_reads` |", wire.FIRST_READS_MAX),
    ("| `polls` |", wire.POLLS_MAX),
    ("| `vm_polls` |", wire.POLLS_MAX),
    ("| `returned` |", wire.RETURNED_MAX),
    ("| `ended` |", wire.ENDED_MAX),
    ("| `daemon` |", routes.BOOT_ID_CHARS_MAX),
    ("| `claim` | `boot_id`, at most", routes.BOOT_ID_CHARS_MAX),
    ("`work`, at most", action_claims.CLAIMS_PER_CALL_MAX),
    ("| `targets` | `vms`, at most", routes.TARGETS_MAX),
    ("| `sight` | `vms`", reported_vms.VMS_PER_HOST_MAX),
    ("| `approve` | `vm`, `event_ids`, at most", routes.EVENT_IDS_MAX),
    ("`wait_s`, at most", wire.CHANGES_WAIT_S_MAX),
    ("One host may have", protocol.PEER_CONNECTIONS_MAX),
    ("control has room for", protocol.LINK_CONNECTIONS_MAX),
    ("A question has at most", wire.QUESTION_BYTES_MAX // 2**20),
]


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def words() -> set[str]:
    """Everything that stands in backticks, word for word."""
    return {
        word for code in re.findall(r"`([^`\n]+)`", page()) for word in re.findall(r"\w+", code)
    }


def test_every_question_and_every_field_is_on_the_page() -> None:
    named = words()
    assert [name for name in MESSAGES if name not in named] == []
    missing = [
        f"{kind.__name__}.{field.encode_name}"
        for kind in kinds()
        for field in msgspec.structs.fields(kind)
        if field.encode_name not in named
    ]
    assert missing == []


def test_the_page_says_the_version_and_the_headers() -> None:
    assert f"(now `{wire.LINK_VERSION}`)" in page()
    assert f"`{wire.VERSION_HEADER}: MAJOR.MINOR`" in page()
    assert f"`{wire.NOW_HEADER}`" in page()


@pytest.mark.parametrize(("after", "limit"), LIMITS)
def test_a_limit_on_the_page_is_that_of_the_code(after: str, limit: int) -> None:
    found = [line.partition(after)[2] for line in page().splitlines() if after in line]
    assert found, after
    said = re.compile(rf"(?<![\d,]){limit:,}(?![\d,])")
    assert any(said.search(line) for line in found), (after, limit)
