"""The link is a protocol of its own: nothing of the core is in it, and a minor version may add."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, TypedDict

import msgspec
import pytest

from forewarn.core.inventory.host_report import Nic, Power, SeenVm, Traits, WhenHostGoesDown
from forewarn.core.model import EventType, ScopeKind
from forewarn.core.vm_profile import Priority
from forewarn.wire import link
from forewarn.wire.link_values import seen_vm, traits_of, vm_seen, vm_traits
from support import profiles
from support.value_types import types_in

MESSAGES = sorted(
    (
        kind
        for kind in vars(link).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ),
    key=lambda kind: kind.__name__,
)
PIECES = {link._Pieces}  # a sighting that is not read yet, for which there is a message
TRAITS = profiles.traits(
    scope="web",
    update_domain=3,
    scope_kind=ScopeKind.PLACEMENT_GROUP,
    terminate_notice_ms=600_000,
    auto_approve=frozenset({EventType.REBOOT, EventType.FREEZE}),
    priority=Priority.SPOT,
    address="10.0.0.7",
    tags=(("owner", "shop"),),
    fault_domain=1,
    zone="2",
    freeze_by_move=True,
    when_host_goes_down=WhenHostGoesDown.MOVE,
)
SEEN = SeenVm(
    name="web-0",
    vm_id="1",
    power=Power.PAUSED,
    traits=TRAITS,
    nics=(Nic(mac="52:54:00:00:00:01", tap="vnet0", bridge="br0"),),
    definition="<domain/>",
    problem="it has no scope",
)


def modules_in(kind: Any) -> set[str]:
    return {one.__module__ for one in types_in(kind)}


class _Pair(NamedTuple):
    vm: str


class _Keyed(TypedDict):
    vm: str


@pytest.mark.parametrize(
    "field",
    [Priority, list[Priority], dict[str, Priority], Nic, Traits | None, _Pair, _Keyed, Any],
    ids=str,
)
def test_a_type_of_its_own_or_of_nobody_does_not_go_unseen(field: Any) -> None:
    """Whatever it hides in: the test below would find it."""
    message = msgspec.defstruct("Message", [("field", field)], module="forewarn.wire.link")
    assert modules_in(message) != {"forewarn.wire.link"}


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_no_type_of_the_core_is_in_a_message(kind: type[msgspec.Struct]) -> None:
    assert modules_in(kind) == {"forewarn.wire.link"} | ({"builtins"} if kind in PIECES else set())


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_what_a_newer_version_adds_to_a_message_is_ignored(kind: type[msgspec.Struct]) -> None:
    assert not kind.__struct_config__.forbid_unknown_fields


def test_a_field_that_is_missing_is_named() -> None:
    with pytest.raises(msgspec.ValidationError, match="missing required field `epoch`"):
        msgspec.json.decode(b'{"action_id": "A"}', type=link.Holds)


def test_a_vm_comes_over_the_link_as_its_host_has_seen_it() -> None:
    said = msgspec.json.decode(msgspec.json.encode(vm_seen(SEEN)), type=link.VmSeen)
    assert seen_vm(said) == SEEN
    plain = SeenVm(name="a", vm_id="2", power=Power.RUNNING)
    assert seen_vm(vm_seen(plain)) == plain
    assert json.loads(msgspec.json.encode(vm_seen(plain))) == {
        "name": "a",
        "vm_id": "2",
        "power": "running",
        "traits": {},
    }
    assert traits_of(vm_traits(TRAITS)) == TRAITS


@pytest.mark.parametrize(
    "more",
    [
        {"power": "hibernated"},
        {"traits": {"priority": "urgent"}},
        {"traits": {"auto_approve": ["Reboot", "Relocate"]}},
    ],
)
def test_a_word_that_only_a_newer_host_knows_is_a_problem_of_that_vm(more: dict[str, Any]) -> None:
    words = {"name": "a", "vm_id": "2", "power": "running", **more}
    seen = seen_vm(msgspec.convert(words, type=link.VmSeen))
    assert (seen.name, seen.power, seen.traits) == ("a", Power.RUNNING, Traits())
    assert "This control does not know" in seen.problem
    assert "upgrade it first" in seen.problem
