"""Whether the agent in a VM reads its document."""

from __future__ import annotations

import pytest

from forewarn.core.agent_polling import STOPPED_AFTER_MS, Reading, reading
from forewarn.core.model import Vm
from forewarn.wire.link import tells_vm_polls

LONG = STOPPED_AFTER_MS
SHORT = STOPPED_AFTER_MS - 1


@pytest.mark.parametrize(
    ("has_polled", "ago_ms", "listened_ms", "host_alive", "expected"),
    [
        (False, None, LONG, True, Reading.NEVER),
        (False, None, 0, False, Reading.NEVER),
        (True, None, SHORT, True, Reading.UNKNOWN),  # control has just started
        (True, None, LONG, True, Reading.STOPPED),
        (True, 0, 0, True, Reading.READING),
        (False, 0, 0, True, Reading.READING),  # told, and not written down yet
        (True, SHORT, LONG, True, Reading.READING),
        (True, LONG, LONG, True, Reading.STOPPED),
        (True, LONG, LONG, False, Reading.UNKNOWN),  # who would tell?
    ],
)
def test_what_is_said_of_an_agent_is_known(
    *, has_polled: bool, ago_ms: int | None, listened_ms: int, host_alive: bool, expected: Reading
) -> None:
    vm = Vm(name="a", vm_id="1", update_domain=0, host="h", has_polled=has_polled)
    found = reading(vm, polled_ago_ms=ago_ms, listened_ms=listened_ms, host_alive=host_alive)
    assert found is expected


@pytest.mark.parametrize("ago_ms", [None, 0, LONG])
def test_a_vm_that_is_switched_off_has_no_agent_that_stopped(ago_ms: int | None) -> None:
    vm = Vm(name="a", vm_id="1", update_domain=0, host="h", has_polled=True, off=True)
    found = reading(vm, polled_ago_ms=ago_ms, listened_ms=LONG, host_alive=True)
    assert found is Reading.OFF


@pytest.mark.parametrize("has_polled", [False, True])
def test_of_a_host_that_does_not_tell_polls_nothing_is_known(*, has_polled: bool) -> None:
    vm = Vm(name="a", vm_id="1", update_domain=0, host="h", has_polled=has_polled)
    found = reading(vm, polled_ago_ms=None, listened_ms=LONG, host_alive=True, polls_told=False)
    assert found is Reading.UNKNOWN


@pytest.mark.parametrize(
    ("version", "told"),
    [("1.0", False), ("1", False), ("1.x", False), ("", False), ("1.1", True), ("1.10", True)],
)
def test_hosts_tell_polls_since_version_1_1_of_the_link(version: str, *, told: bool) -> None:
    assert tells_vm_polls(version) is told
