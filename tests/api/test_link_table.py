"""Every question that control answers, and every answer to one, is a message of the link."""

from __future__ import annotations

from typing import Any, cast, get_type_hints

import msgspec
import pytest

from forewarn.api.link.routes import Asking, LinkRoutes
from forewarn.control.hosts.host_feed import EncodedChanges
from forewarn.wire import link as wire

NOTHING = cast("Any", None)
TABLE = LinkRoutes(NOTHING, host_feed=NOTHING, report_intake=NOTHING).table()


@pytest.mark.parametrize("name", TABLE)
def test_what_is_asked_and_answered_is_a_message(name: str) -> None:
    """`tests/wire/test_link.py` sees to it that no type of the core is in one."""
    asking: Asking = TABLE[name]
    hints = get_type_hints(asking.answer)
    answer = wire.Changes if hints["return"] is EncodedChanges else hints["return"]
    assert hints["asked"] is asking.kind
    assert {asking.kind.__module__, answer.__module__} == {wire.__name__}
    assert issubclass(answer, msgspec.Struct)
    if asking.at_once is not None:
        assert get_type_hints(asking.at_once)["return"] == answer | None


def test_changes_that_are_encoded_before_say_all_that_the_message_has() -> None:
    assert EncodedChanges.__struct_fields__ == wire.Changes.__struct_fields__
    encoded = EncodedChanges("life", 3, ("web",), (), work=True, adoptions=())
    told = wire.Changes("life", 3, ("web",), (), work=True)
    assert msgspec.json.decode(msgspec.json.encode(encoded), type=wire.Changes) == told
