"""Orders as the operator API takes them: what their bodies may say, and the commands they mean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from forewarn.api.requests import NAME_CHARS_MAX
from forewarn.control import commands
from forewarn.control.commands import Answer
from forewarn.core.errors import BadInventory, Invalid
from forewarn.core.model import EventType
from forewarn.core.principal import Principal
from forewarn.wire.instants import TimeInput, WindowInput, parse_instant
from forewarn.wire.operator_answers import InventoryApplied

BODY_BYTES_MAX = 64 * 1_024


class EmptyRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An order that its path says whole."""


class WindowRequest(msgspec.Struct, forbid_unknown_fields=True):
    """When the order may start at all: from `start` on and before `end`, approved or not."""

    start: str
    end: str


class VmOrderRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What an order for a VM may say beside its path."""

    window: WindowRequest | None = None


class RedeployRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`lose_disk`: the VM starts on its new host with empty local disks."""

    window: WindowRequest | None = None
    lose_disk: bool = False


class StartRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Where a VM of a failed host starts. `break_domains` accepts another update domain of its
    scope there, and needs a `reason`.
    """

    on: str
    break_domains: bool = False
    reason: str = ""


class DegradeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """When the VMs of a degraded host are moved: without approval, from `not_before` on.

    That is a week ahead by default, or when the window opens.
    """

    not_before: str | None = None
    window: WindowRequest | None = None


class RepairRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A host that is not heard is not taken for well, unless `force`, for a `reason`."""

    force: bool = False
    reason: str = ""


class ApproveRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`reason`: why an operator approves in place of a VM; the receipt and the journal have it.

    An owner of the event's scope needs none.
    """

    reason: str = ""


class PostponeRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`until`: the earliest start without approval that is announced; later than it is now.

    The minimum notice begins anew: if it ends later, then that is announced. `reason` is in the
    journal and in the outcome of the event that is withdrawn.
    """

    until: str
    reason: str = ""


class FailRequest(msgspec.Struct, forbid_unknown_fields=True):
    """`fenced`: the host is surely off, so that its VMs may start elsewhere.

    A host that was heard just now says otherwise, fenced or not, and is believed unless `force`,
    for a `reason`.
    """

    fenced: bool = False
    force: bool = False
    reason: str = ""


class MaintainRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What is done to a host, and when.

    `not_before` is the earliest start without approval. `duration_seconds` is how long a Freeze
    lasts, and only a Freeze may have it; `description` is what guests read. `break_domains` accepts
    that a Freeze or Reboot hits two update domains of one scope at once, for a `reason`.
    `lose_disk`: the VMs of a Redeploy start with empty local disks.
    """

    event_type: Literal["Freeze", "Reboot", "Redeploy"]
    not_before: str | None = None
    window: WindowRequest | None = None
    duration_seconds: int | None = None
    description: str | None = None
    break_domains: bool = False
    lose_disk: bool = False
    reason: str = ""


Words = TypeVar("Words", bound=msgspec.Struct)


def words(body: bytes, kind: type[Words]) -> Words:
    """The body as `kind`; an empty one says nothing. Raises Invalid with what would be right."""
    try:
        said = msgspec.json.decode(body or b"{}", type=kind)
        refuse_doubled_keys(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        fields = ", ".join(kind.__struct_fields__)
        accepted = f"a JSON object with {fields}" if fields else "an empty body"
        raise Invalid(
            f"The body was not understood: {error}.", f"What would be accepted: {accepted}."
        ) from None
    return said


def refuse_doubled_keys(body: bytes) -> None:
    """Raises Invalid if an object in a body that was read has a key twice: which one is meant?"""
    if body:
        json.loads(body, object_pairs_hook=_once_each, parse_int=str, parse_float=str)


def _once_each(pairs: Sequence[tuple[str, Any]]) -> None:
    keys: set[str] = set()
    for key, _ in pairs:
        if key in keys:
            shown = ascii(key[:NAME_CHARS_MAX])
            raise Invalid(f"The body has the key {shown} twice.", "Say each key once.")
        keys.add(key)


def maintain_host(host: str, said: MaintainRequest, by: Principal) -> commands.MaintainHost:
    return commands.MaintainHost(
        by=by,
        host=host,
        event_type=EventType(said.event_type),
        not_before=_when(said.not_before),
        window=window(said.window),
        duration_s=said.duration_seconds,
        description=said.description,
        break_domains=said.break_domains,
        lose_disk=said.lose_disk,
        reason=said.reason,
    )


def redeploy_vm(vm: str, said: RedeployRequest, by: Principal) -> commands.RedeployVm:
    return commands.RedeployVm(by=by, vm=vm, window=window(said.window), lose_disk=said.lose_disk)


def degrade_host(host: str, said: DegradeRequest, by: Principal) -> commands.DegradeHost:
    return commands.DegradeHost(
        by=by, host=host, not_before=_when(said.not_before), window=window(said.window)
    )


def start_vm(vm: str, said: StartRequest, by: Principal) -> commands.StartVm:
    return commands.StartVm(
        by=by, vm=vm, host=said.on, break_domains=said.break_domains, reason=said.reason
    )


def postpone_event(event_id: str, said: PostponeRequest, by: Principal) -> commands.PostponeEvent:
    return commands.PostponeEvent(
        by=by, event_id=event_id, until=parse_instant(said.until), reason=said.reason
    )


def fail_host(host: str, said: FailRequest, by: Principal) -> commands.FailHost:
    return commands.FailHost(
        by=by, host=host, fenced=said.fenced, force=said.force, reason=said.reason
    )


def window(said: WindowRequest | None) -> WindowInput | None:
    """The window that a body names. Raises Invalid."""
    if said is None:
        return None
    return WindowInput(start=parse_instant(said.start), end=parse_instant(said.end))


def repair_host(host: str, said: RepairRequest, by: Principal) -> commands.RepairHost:
    return commands.RepairHost(by=by, host=host, force=said.force, reason=said.reason)


def _when(text: str | None) -> TimeInput | None:
    return None if text is None else parse_instant(text)


REPLACED_NOTE = (
    "Another inventory was applied since, and the fleet is what that one says. Nothing was changed"
    " now; listed is what this one changed, or was to change, when it was first sent. Send it under"
    " another Idempotency-Key to have it applied again."
)


def inventory_text(body: bytes) -> str:
    """The inventory file in a body. Raises BadInventory."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = body.count(b"\n", 0, error.start) + 1
        raise BadInventory(
            f"Line {line} of the inventory is not UTF-8.", "A TOML file in UTF-8 is accepted."
        ) from None


def with_waiting(answer: Answer, waiting: Sequence[str]) -> Answer:
    """The answer to an inventory of which something has to wait: with the words why."""
    return _saying(answer, replace(_said(answer), waiting=tuple(waiting)))


def with_replaced(answer: Answer) -> Answer:
    """The answer to an inventory that is sent again, after another one was applied."""
    return _saying(answer, replace(_said(answer), replaced=True, note=REPLACED_NOTE))


def _said(answer: Answer) -> InventoryApplied:
    return msgspec.json.decode(answer.text, type=InventoryApplied)


def _saying(answer: Answer, said: InventoryApplied) -> Answer:
    return Answer(text=msgspec.json.encode(said).decode(), repeated=answer.repeated)
