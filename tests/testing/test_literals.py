"""The words that type checkers know of are those that a cloud takes and tells."""

from __future__ import annotations

from typing import get_args

import forewarn
from forewarn.control.operator_commands import EVENT_TYPES_OF_HOSTS
from forewarn.core.model import EventSource, EventType
from forewarn.emulator.faults.kinds import BY_STATUS, FaultKind, Method
from forewarn.testing import literals
from forewarn.wire.api_versions import API_VERSIONS
from forewarn_guest import __version__ as guest_version


def test_every_literal_has_the_words_of_the_product_and_no_other() -> None:
    assert get_args(literals.EventTypeName) == tuple(one.value for one in EventType)
    assert get_args(literals.EventSourceName) == tuple(one.value for one in EventSource)
    assert get_args(literals.HostEventType) == tuple(one.value for one in EVENT_TYPES_OF_HOSTS)
    assert get_args(literals.MethodName) == tuple(one.value for one in Method)
    assert get_args(literals.ApiVersion) == tuple(API_VERSIONS)
    assert get_args(literals.FaultName) == tuple(one.value for one in FaultKind)
    assert {str(one) for one in get_args(literals.FaultStatus)} == set(BY_STATUS)


def test_forewarn_says_its_version() -> None:
    assert forewarn.__version__ == guest_version
    assert not hasattr(forewarn, "no_such_name")
