"""Control and hosts of different minor versions of the link, as real processes, in any mix.

In each mix a host joins, shows an event, confirms it, its guest approves, the VM is rebooted once,
and the event completes. What one side does not know is refused by name, and costs nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

from forewarn.wire import link as wire
from support.host_processes import (
    END_LIMIT_S,
    Cloud,
    approves,
    enabled,
    ended,
    judge,
    ordered,
    polls,
)
from support.lasting_machines import take_away
from support.link_messages import MESSAGES, default_of
from support.link_peers import (
    LATER_QUESTION,
    LATER_WORK,
    LEFT_OUT,
    MORE,
    NEWER,
    NO_QUESTION,
    NO_WORK,
    OLDER,
    VERSIONS,
    as_said_by,
)
from support.waiting import wait_until

OURS = ""
MIXES = [
    pytest.param(control, host, id=f"control-{control or 'ours'}-host-{host or 'ours'}")
    for control, host in (
        (OURS, NEWER),
        (OURS, OLDER),
        (NEWER, OURS),
        (OLDER, OURS),
        (NEWER, OLDER),
        (OLDER, NEWER),
    )
]


@contextmanager
def mixed(folder: Path, control: str, host: str) -> Iterator[Cloud]:
    there = Cloud(folder, control_peer=control, host_peer=host)
    try:
        there.start_control()
        yield there
    finally:
        there.close()


waited = partial(wait_until, limit_s=END_LIMIT_S)


def restarts(there: Cloud) -> None:
    """A restart of the VM from its order to its end; nothing of it is lost."""
    event_id = ordered(there)
    waited(
        lambda: there.try_(lambda guest: event_id in guest.events()),
        "the guest reads its event",
    )
    waited(lambda: "confirmed" in there.journal(event_id), "the host has confirmed it")
    waited(lambda: approves(there, event_id), "it is approved")
    judge(there, event_id)
    receipt = there.ask("GET", f"events/{event_id}")["receipt"]
    assert [(read["vm"], bool(read["read"])) for read in receipt["first_reads"]] == [("solo", True)]
    waited(lambda: there.try_(lambda guest: not guest.events()), "the guest reads no event")
    assert not there.ask("GET", "hosts/h1")["refuses"]


@pytest.mark.parametrize(("control", "host"), MIXES)
def test_an_event_takes_its_course_whichever_side_is_newer(
    tmp_path: Path, control: str, host: str
) -> None:
    with mixed(tmp_path, control, host) as there:
        enabled(there)
        restarts(there)
        assert there.host_versions() == {host_beside(control, host): 1}
        if host == NEWER:
            asks_what_control_does_not_know(there)
        if control == NEWER:
            is_given_what_the_host_does_not_know(there)


def host_beside(control: str, host: str) -> str:
    """How control counts the version of the link that the host speaks."""
    order = (OLDER, OURS, NEWER)
    return OLDER if order.index(host) < order.index(control) else NEWER


def asks_what_control_does_not_know(there: Cloud) -> None:
    log = there.host_log()
    assert f"This control does not know the question '{NO_QUESTION}'" in log
    assert "It knows adopted, approve" in log


def is_given_what_the_host_does_not_know(there: Cloud) -> None:
    waited(lambda: "newer_work_ended" in there.control_log(), "the host says how it ended")
    line = next(one for one in there.control_log().splitlines() if "newer_work_ended" in one)
    assert "failed" in line
    assert f"this host does not know how to {NO_WORK}; upgrade its daemon" in line


def test_a_question_that_an_older_control_does_not_know_is_gone_on_without(tmp_path: Path) -> None:
    with mixed(tmp_path, OLDER, OURS) as there:
        enabled(there)
        take_away(there.world, "Libvirt cannot be reached.")
        refused = f"This control does not know the question '{LATER_QUESTION}'"
        waited(lambda: refused in there.host_log(), "the host is told so")
        assert polls(there)
        restarts(there)
        take_away(there.world, "")
        waited(lambda: "problem_over" in there.host_log(), "the host shows its VMs again")
        assert there.host_log().count(refused) == 1


def test_work_that_an_older_host_does_not_know_fails_and_says_what_to_upgrade(
    tmp_path: Path,
) -> None:
    with mixed(tmp_path, OURS, OLDER) as there:
        enabled(there)
        order = there.ask("POST", "hosts/h1/maintain", {"event_type": "Freeze"})
        event_id = order["events"][0]["event_id"]
        waited(lambda: approves(there, event_id), "it is approved")
        assert ended(there, event_id) == "failed"
        operation = there.ask("GET", f"operations/{order['operation_id']}")
        why = f"this host does not know how to {LATER_WORK}; upgrade its daemon"
        assert operation["action"]["detail"] == why
        restarts(there)


# The peers themselves.


def test_peers_are_one_minor_version_older_and_newer() -> None:
    versions = [VERSIONS[OLDER], wire.LINK_VERSION, VERSIONS[NEWER]]
    numbers = [tuple(map(int, version.split("."))) for version in versions]
    (major, minor) = numbers[1]
    assert numbers == [(major, minor - 1), (major, minor), (major, minor + 1)]


def test_what_an_older_peer_leaves_out_has_a_default() -> None:
    for kind, names in LEFT_OUT.items():
        fields = {field.name: default_of(field) for field in msgspec.structs.fields(kind)}
        assert all(fields[name] is not msgspec.NODEFAULT for name in names), kind


def test_peers_say_more_and_less_in_every_message_also_inside() -> None:
    (more,) = MORE
    body = b'{"vms":[{"name":"a","vm_id":"1","power":"off","nics":[{"mac":"m"}]}],"boot_id":"b"}'
    grown = msgspec.json.decode(as_said_by(NEWER, "sight", body, answer=False))
    (vm,) = grown["vms"]
    assert more in grown
    assert more in vm
    assert more in vm["nics"][0]
    cut = msgspec.json.decode(as_said_by(OLDER, "sight", body, answer=False))
    assert cut == {"vms": [{"name": "a", "vm_id": "1", "power": "off"}]}
    assert NO_QUESTION not in MESSAGES
