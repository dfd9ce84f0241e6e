"""The link is a protocol of its own: nothing of the core is in it, and a minor version may add."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from forewarn.core.machines import Nic, Power, SeenVm, Traits, WhenHostGoesDown
from forewarn.core.model import EventType, Priority, ScopeKind
from forewarn.wire import link
from forewarn.wire.link_values import seen_vm, traits_of, vm_seen, vm_traits

MESSAGES = sorted(
    (
        kind
        for kind in vars(link).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ),
    key=lambda kind: kind.__name__,
)
TRAITS = Traits(
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


def types_in(of: msgspec.inspect.Type) -> Iterator[type]:
    """Every class that a type is made of."""
    if isinstance(
        of, msgspec.inspect.CustomType | msgspec.inspect.EnumType | msgspec.inspect.DataclassType
    ):
        yield of.cls
    if isinstance(of, msgspec.inspect.StructType):
        yield of.cls
        for field in of.fields:
            yield from types_in(field.type)
    for name in ("item_type", "key_type", "value_type"):
        inner = getattr(of, name, None)
        if isinstance(inner, msgspec.inspect.Type):
            yield from types_in(inner)
    for inner in (*getattr(of, "item_types", ()), *getattr(of, "types", ())):
        yield from types_in(inner)


@pytest.mark.parametrize("kind", MESSAGES, ids=lambda kind: kind.__name__)
def test_no_type_of_the_core_is_in_a_message(kind: type[msgspec.Struct]) -> None:
    found = {one.__module__ for one in types_in(msgspec.inspect.type_info(kind))}
    assert found == {"forewarn.wire.link"}


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
