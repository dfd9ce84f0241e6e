"""Commands are values: written and read back whole, each decided by one function of its type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_type_hints

import msgspec
import pytest
from msgspec import Struct

from forewarn.control import command_json, commands
from forewarn.control.command_handlers import DECIDERS
from forewarn.control.commands import Command
from forewarn.control.hosts.report_slices import Report, Slice
from forewarn.control.inventory.file_reader import InventoryClash, Mistake
from forewarn.core.access import Access, Role
from forewarn.core.errors import AlreadyStarted, Invalid, NotFound, Refusal, Unavailable
from forewarn.core.inventory.entries import Applied, NameChanges
from forewarn.core.inventory.host_report import Power, SeenVm
from forewarn.core.model import (
    Came,
    EventType,
    FactKind,
    Failing,
    NewSecret,
    NewTerms,
    NewWebhook,
    Outcome,
    Removal,
    Replay,
    SwitchOff,
    SwitchOn,
    WebhookFormat,
    WebhookTerms,
)
from forewarn.core.principal import OPERATOR, TICKER, WEBHOOKS, the_host, the_vm
from forewarn.wire.instants import TimeInput, WindowInput
from support import ordered
from support.core_fleet import WEB, Cloud, scope, spot
from support.profiles import traits
from support.value_types import types_in

VM: Any = {"by": OPERATOR, "vm": "web_0"}
HOST: Any = {"by": OPERATOR, "host": "h1"}
SAID: Any = {"by": the_host("h1"), "host": "h1"}
SEEN = SeenVm(
    name="web_0", vm_id="1", power=Power.OFF, traits=traits(scope="web"), definition="<domain/>"
)
REPORT = Report(
    host="h1",
    told=(SEEN,),
    usable={"web_0": SEEN},
    unusable={"web_1": "it has no name"},
    texts={"web_0": "<domain/>"},
    boot_id="b",
)
APPLIED = Applied(differs=True, vms=NameChanges(added=("web_0",)), still_deleted=("web_1",))
PART = Slice(("web_0",), frozenset({"web"}))
IN_AN_HOUR = TimeInput(said="+1h", from_now_ms=3_600_000)
NEW_WEBHOOK = NewWebhook(
    terms=WebhookTerms(
        name="ops",
        url="https://hooks.example.com/x",
        format=WebhookFormat.TEXT,
        scopes=("web",),
        kinds=(FactKind.STARTED,),
        batch=2,
    ),
    secret="whsec_MTIz",
    number=3,
    later=True,
)

KINDS = set(DECIDERS) - {ordered.Acting}

# One of each kind, with everything said that can be.
SAMPLES: list[Command[Any]] = [
    commands.RestartVm(**VM),
    commands.RedeployVm(**VM),
    commands.DeleteVm(**VM),
    commands.EvictVm(**VM, window=WindowInput(start=IN_AN_HOUR, end=IN_AN_HOUR)),
    commands.StartVm(**VM, host="h2", break_domains=True, reason="there is no other"),
    commands.MaintainHost(
        **HOST,
        event_type=EventType.FREEZE,
        not_before=IN_AN_HOUR,
        window=WindowInput(start=IN_AN_HOUR, end=IN_AN_HOUR),
        duration_s=5,
        description="a new kernel",
        break_domains=True,
        reason="it cannot wait",
    ),
    commands.DegradeHost(**HOST, not_before=TimeInput(said="then", at_ms=9_000_000_000_000)),
    commands.FailHost(**HOST, fenced=True, force=True, reason="I pulled the plug"),
    commands.RepairHost(**HOST, force=True, reason="I am there"),
    commands.CloseHost(**HOST),
    commands.OpenHost(**HOST),
    commands.NoteAdoption(
        by=OPERATOR, host="h1", vm="v", traits=traits(scope="web", tags=(("a", "b"),))
    ),
    commands.ApproveEvent(by=OPERATOR, event_id="E", reason="a test"),
    commands.CancelEvent(by=OPERATOR, event_id="E"),
    commands.PostponeEvent(by=OPERATOR, event_id="E", until=IN_AN_HOUR, reason="a sale"),
    commands.CancelOperation(by=OPERATOR, operation_id="O"),
    commands.ReleaseScope(by=OPERATOR, scope="web"),
    commands.NoteBackup(by=OPERATOR, size=4_096),
    commands.TellTime(by=OPERATOR),
    commands.MakeToken(
        by=OPERATOR,
        token_id="abcdefghij",
        name="ci",
        role=Role.OWNER,
        scopes=("web",),
        secret_hash="0" * 64,
        valid_ms=60_000,
        later=True,
    ),
    commands.RotateToken(by=OPERATOR, token_id="abcdefghij", secret_hash="1" * 64, valid_ms=60_000),
    commands.RevokeToken(by=OPERATOR, token_id="abcdefghij"),
    commands.NoteTokenUse(by=OPERATOR, token_id="abcdefghij"),
    commands.NoteRefused(
        by=OPERATOR,
        reason="missing-right",
        count=3,
        address="192.0.2.7",
        who=OPERATOR,
        what="host-close",
        token="abcdefghij",
    ),
    commands.OrderWebhook(by=OPERATOR, webhook_id="wh-1", do=NEW_WEBHOOK),
    commands.OrderWebhook(
        by=OPERATOR, webhook_id="ops", do=NewTerms(terms=NEW_WEBHOOK.terms, turn=3, later=True)
    ),
    commands.OrderWebhook(
        by=OPERATOR, webhook_id="ops", do=NewSecret(secret="whsec_MTIz", overlap_ms=1)
    ),
    commands.OrderWebhook(by=OPERATOR, webhook_id="ops", do=Replay(number=7)),
    commands.OrderWebhook(by=OPERATOR, webhook_id="ops", do=SwitchOn()),
    commands.OrderWebhook(by=OPERATOR, webhook_id="ops", do=SwitchOff()),
    commands.OrderWebhook(by=OPERATOR, webhook_id="ops", do=Removal()),
    commands.NoteDelivery(
        by=WEBHOOKS, webhook_id="wh-1", turn=2, progress=Came(number=7, skipped=True)
    ),
    commands.NoteDelivery(
        by=WEBHOOKS,
        webhook_id="wh-1",
        turn=2,
        progress=Failing(failures=2, failing_ms=5_000, why="answered 500", ends=True),
    ),
    commands.ApplyInventory(by=OPERATOR, text="[[host]]", deaf={"127.0.0.9:80": "in use"}),
    commands.NothingToApply(by=OPERATOR),
    commands.ApplyInventoryAtOnce(
        by=OPERATOR, text="t", packed="p", scopes=("web",), applied=APPLIED
    ),
    commands.DecideInventory(by=OPERATOR, text="t", packed="p", applied=APPLIED),
    commands.TakeInventorySlice(by=OPERATOR, inventory="d", scopes=("web",)),
    commands.FinishInventory(by=OPERATOR, inventory="d", all_applied=True),
    commands.AllOf(by=OPERATOR, orders=(commands.RestartVm(**VM), commands.CloseHost(**HOST))),
    commands.Once(
        by=OPERATOR,
        order=commands.RestartVm(**VM),
        access=Access(principal=OPERATOR, role=Role.OWNER, scopes=("web",)),
        key="k",
        fingerprint="f",
    ),
    commands.FindAnswer(by=OPERATOR, key="k", fingerprint="f"),
    commands.HostIsSilent(by=TICKER, host="h1"),
    commands.HostJoined(**SAID),
    commands.HostsLeft(by=OPERATOR, hosts=("h1",), listed_by_file=("h2",), inventory="d"),
    commands.ApproveEvents(by=the_vm("web_0"), host="h1", vm="web_0", event_ids=("E",)),
    commands.EnableScope(by=the_vm("web_0"), host="h1", scope="web", vm="web_0"),
    commands.TakeTurn(
        **SAID,
        holding={"E/1": 3},
        confirms={"web": 2},
        first_reads=(commands.ReadAgo(vm="web_0", scope="web", event_id="E", age_ms=1),),
        polls={"web": 2},
        returned=("web_0",),
        ended=(
            commands.EndedAction(
                action_id="E/1", epoch=3, outcome=Outcome.DONE, detail="all of it"
            ),
        ),
    ),
    commands.ClaimActions(**SAID, boot_id="b", daemon="d"),
    commands.ClaimActions(**SAID, boot_id="b", only=("E/1",)),
    commands.HoldClaim(**SAID, action_id="E/1", epoch=3),
    commands.TakeReport(by=the_host("h1"), report=REPORT, number=1),
    commands.BeginReport(by=the_host("h1"), report=REPORT, number=1, part=PART),
    commands.GoOnReport(**SAID, number=1, part=PART),
    commands.EndReport(**SAID, number=1),
    commands.StartEvents(by=TICKER, scope="web", event_ids=("E", "F")),
    commands.StartOperation(by=TICKER, operation_id="O"),
    commands.WithdrawEvent(by=TICKER, scope="web", event_id="E"),
    commands.WithdrawOperation(by=TICKER, operation_id="O"),
    commands.TellNewcomers(by=TICKER, operation_id="O"),
    commands.SettleOperation(by=TICKER, operation_id="O"),
    commands.ExpireEvent(by=TICKER, scope="web", event_id="E"),
    commands.ExpireOperation(by=TICKER, operation_id="O"),
    commands.AssignPlace(by=TICKER, scope="web", event_id="E"),
    commands.EndRecoveries(by=TICKER, scope="web"),
    commands.DisableScope(by=TICKER, scope="web"),
    commands.NoteHeartbeat(by=TICKER),
    commands.ClockStepped(by=TICKER, stepped_ms=-5),
    commands.Stalled(by=TICKER, stalled_ms=5),
    commands.Prune(by=TICKER, retention_days=400),
    commands.WasDown(by=TICKER, since_ms=None),
]


def test_there_is_a_sample_of_each_kind_and_each_kind_has_one_who_decides_it() -> None:
    kinds = {
        kind
        for kind in vars(commands).values()
        if isinstance(kind, type) and issubclass(kind, Command) and kind is not Command
    }
    assert {type(sample) for sample in SAMPLES} == KINDS == kinds


@pytest.mark.parametrize("kind", sorted(KINDS, key=str), ids=lambda kind: kind.__name__)
def test_who_decides_a_command_answers_what_the_command_says(kind: type[Command[Any]]) -> None:
    hints = get_type_hints(DECIDERS[kind])
    assert hints["return"] == (
        type(None)
        if command_json.answer_type(kind) is type(None)
        else command_json.answer_type(kind)
    )
    assert kind in hints.values()


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: type(command).__name__)
def test_a_command_is_read_back_as_it_was_written(command: Command[Any]) -> None:
    text = command_json.written(command)
    assert command_json.read(text) == command
    said = json.loads(text)
    assert said["by"] == msgspec.to_builtins(command.by)
    assert set(said) == {"command", *command.__struct_fields__}


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: type(command).__name__)
def test_a_command_with_something_unknown_in_it_is_refused(command: Command[Any]) -> None:
    said = json.loads(command_json.written(command))
    with pytest.raises(Invalid, match="unknown field `surprise`"):
        command_json.read(json.dumps({**said, "surprise": 1}))
    with pytest.raises(Invalid, match="restart-vm"):  # among those that there are
        command_json.read(json.dumps({**said, "command": "do-something"}))
    with pytest.raises(Invalid, match="missing required field `by`"):
        command_json.read(json.dumps({k: v for k, v in said.items() if k != "by"}))


@pytest.mark.parametrize(
    "command",
    [
        commands.AllOf(by=OPERATOR, orders=(commands.RestartVm(**VM),)),
        commands.Once(
            by=OPERATOR,
            order=commands.RestartVm(**VM),
            access=ordered.full_access(OPERATOR),
            key=None,
            fingerprint="f",
        ),
    ],
    ids=lambda command: type(command).__name__,
)
def test_a_tag_that_is_unknown_inside_of_a_command_is_refused(command: Command[Any]) -> None:
    text = command_json.written(command).replace(b'"restart-vm"', b'"party"')
    with pytest.raises(Invalid, match="'party'"):
        command_json.read(text)


MAPS = {"holding", "confirms", "polls", "deaf", "usable", "unusable", "texts"}  # keys, not fields


def values_in(said: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where values with fields are, at any depth."""
    if isinstance(said, dict):
        if not (path and path[-1] in MAPS):
            yield path
        for key, inner in said.items():
            yield from values_in(inner, (*path, key))
    if isinstance(said, list):
        for number, inner in enumerate(said):
            yield from values_in(inner, (*path, number))


@pytest.mark.parametrize("command", SAMPLES, ids=lambda command: type(command).__name__)
def test_what_is_unknown_deep_inside_a_command_is_refused_too(command: Command[Any]) -> None:
    """Values of the core, the principal among them, would ignore it."""
    text = command_json.written(command)
    for path in values_in(json.loads(text)):
        said = inner = json.loads(text)
        for step in path:
            inner = inner[step]
        inner["surprise"] = 1
        with pytest.raises(Invalid, match=r"unknown field `(\$.*\.)?surprise`"):
            command_json.read(json.dumps(said))


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{}", b"\xff", b'{"command": null}'])
def test_what_is_no_command_is_refused(text: bytes) -> None:
    with pytest.raises(Invalid, match="The command was not understood"):
        command_json.read(text)


@pytest.mark.parametrize("kind", sorted(KINDS, key=str), ids=lambda kind: kind.__name__)
def test_no_command_has_room_for_code(kind: type[Command[Any]]) -> None:
    """Each of its values says its fields; nothing of it is whatever somebody puts there."""
    found = set(types_in(kind))
    assert object not in found
    assert [one for one in found if not issubclass(one, Struct | Enum)] == []
    assert object in set(types_in(ordered.Acting))  # which is how tests get in


def test_a_command_cannot_be_changed() -> None:
    command = commands.RestartVm(**VM)
    with pytest.raises(AttributeError):
        command.vm = "another"  # type: ignore[misc]


def test_what_is_answered_is_read_back_as_it_was_written() -> None:
    cloud = Cloud(scope("web", WEB), spot("spotty", "h3"))

    def run(command: Command[Any]) -> Any:
        answer = cloud.run(command)
        text = command_json.answer_written(answer)
        assert command_json.answer_read(command, text) == answer
        return answer

    event = run(ordered.order_vm("web_0", EventType.REBOOT, by="ann"))
    run(ordered.approve_event(event.event_id, by="ann"))
    run(ordered.cancel_event(event.event_id, by="ann"))
    upkeep = run(ordered.maintain_host("h2", EventType.FREEZE, by="ann"))
    later = cloud.clock.wall + 3_600_000
    run(ordered.postpone_event(upkeep.members[0][1], by=ordered.owner("bo"), until_ms=later))
    run(ordered.close_host("h2", by="ann"))
    run(ordered.fail_host("h1", by="ann", fenced=True, force=True))
    run(ordered.claim("h3", "boot-1"))
    run(commands.TellTime(by=OPERATOR))
    run(commands.FindAnswer(by=OPERATOR, key=None, fingerprint=""))
    orders = (commands.EvictVm(by=OPERATOR, vm="spotty"), commands.OpenHost(by=OPERATOR, host="h2"))
    run(commands.AllOf(by=OPERATOR, orders=orders))


@pytest.mark.parametrize(
    "refusal",
    [
        NotFound("no", "yes"),
        AlreadyStarted("gone"),
        Unavailable("full"),
        Refusal("no"),
        InventoryClash.of([Mistake(("vm", 3), "it is there already", ("vm", 1))]),
    ],
)
def test_a_refusal_is_read_back_as_it_was_written(refusal: Refusal | Unavailable) -> None:
    found = command_json.refusal_read(command_json.refusal_written(refusal))
    assert (type(found), str(found)) == (type(refusal), str(refusal))
    assert vars(found) == vars(refusal)


def test_orders_that_go_together_are_carried_out_all_or_none() -> None:
    cloud = Cloud(scope("web", WEB))
    before = cloud.everything()
    orders = (commands.CloseHost(**HOST), commands.CloseHost(by=OPERATOR, host="nowhere"))
    with pytest.raises(NotFound):
        cloud.run(commands.AllOf(by=OPERATOR, orders=orders))
    assert cloud.everything() == before
