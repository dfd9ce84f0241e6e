"""What hosts see and are told of VMs: values of the core as messages of the link, and back.

A word that a newer host says and this control does not know is said to the operator as a problem of
that VM; nothing else of the report waits for it.
"""

from __future__ import annotations

from enum import StrEnum
from operator import attrgetter
from typing import Any, TypeVar

from forewarn.core.errors import Invalid
from forewarn.core.inventory.host_report import Nic, Power, SeenVm, Traits, WhenHostGoesDown
from forewarn.core.model import EventType, ScopeKind
from forewarn.core.vm_profile import ATTRIBUTES, IN_METADATA, NOTHING_SAID, Priority, VmProfile
from forewarn.wire.link import VmNic, VmSeen, VmTraits

E = TypeVar("E", bound=StrEnum)

_attributes_of = attrgetter(*ATTRIBUTES)


def vm_seen(vm: SeenVm) -> VmSeen:
    return VmSeen(
        name=vm.name,
        vm_id=vm.vm_id,
        power=vm.power.value,
        traits=vm_traits(vm.traits),
        nics=tuple(VmNic(mac=nic.mac, tap=nic.tap, bridge=nic.bridge) for nic in vm.nics),
        definition=vm.definition,
        problem=vm.problem,
    )


def seen_vm(said: VmSeen) -> SeenVm:
    """What a host said of a VM."""
    problem = said.problem
    try:
        traits = traits_of(said.traits)
        power = _word(Power, said.power)
    except Invalid as why:
        traits, power = Traits(), Power.RUNNING
        problem = problem or f"{why.refused} {why.accepted}"
    return SeenVm(
        name=said.name,
        vm_id=said.vm_id,
        power=power,
        traits=traits,
        nics=tuple(Nic(mac=nic.mac, tap=nic.tap, bridge=nic.bridge) for nic in said.nics),
        definition=said.definition,
        problem=problem,
    )


def vm_traits(traits: Traits) -> VmTraits:
    approves = traits.auto_approve
    return VmTraits(
        scope=traits.scope,
        update_domain=traits.update_domain,
        scope_kind=_said(traits.scope_kind),
        terminate_notice_ms=traits.terminate_notice_ms,
        auto_approve=None if approves is None else tuple(sorted(one.value for one in approves)),
        **_said_in_metadata(traits.profile),
        freeze_by_move=traits.freeze_by_move,
        when_host_goes_down=traits.when_host_goes_down.value,
    )


def traits_of(said: VmTraits) -> Traits:
    """The traits that were said. Raises Invalid for a word that is not known here."""
    approves = said.auto_approve
    return Traits(
        scope=said.scope,
        update_domain=said.update_domain,
        scope_kind=None if said.scope_kind is None else _word(ScopeKind, said.scope_kind),
        terminate_notice_ms=said.terminate_notice_ms,
        auto_approve=None
        if approves is None
        else frozenset(_word(EventType, one) for one in approves),
        profile=_profile_of(said),
        freeze_by_move=said.freeze_by_move,
        when_host_goes_down=_word(WhenHostGoesDown, said.when_host_goes_down),
    )


def profile_said(profile: VmProfile) -> dict[str, Any]:
    """The attributes of a profile as messages of the link say them; words are plain texts."""
    said = dict(zip(ATTRIBUTES, _attributes_of(profile), strict=True))
    said["priority"] = profile.priority.value
    return said


def _said_in_metadata(profile: VmProfile) -> dict[str, Any]:
    """What the owner of a domain has said; a default need not be."""
    said = profile_said(profile)
    return {name: said[name] for name in IN_METADATA if said[name] != _DEFAULTS[name]}


def _profile_of(said: VmTraits) -> VmProfile:
    """The profile that a message says. Raises Invalid for a word that is not known here."""
    known = {name: value for name in IN_METADATA if (value := getattr(said, name)) is not None}
    if "priority" in known:
        known["priority"] = _word(Priority, known["priority"])
    return VmProfile(**known)


def _said(word: StrEnum | None) -> str | None:
    return None if word is None else word.value


def _word(kind: type[E], said: str) -> E:
    try:
        return kind(said)
    except ValueError:
        known = ", ".join(one.value for one in kind)
        raise Invalid(
            f"This control does not know {said[:64]!r}.", f"It knows {known}; upgrade it first."
        ) from None


_DEFAULTS = profile_said(NOTHING_SAID)
