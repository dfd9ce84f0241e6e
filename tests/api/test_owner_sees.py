"""An owner never learns of what is not his: no answer, error, line or page names it.

The fleet has another scope on the owner's host, and one elsewhere. Whatever an owner can ask is
asked, while all that can happen does; none of the answers may hold one of the others' names.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forewarn.control.inventory import apply_at_once
from forewarn.core.facts import VmChangedDetail
from forewarn.core.model import Fact, FactKind, Outcome
from support import every_route, fleets, ordered
from support.callers import Browser, token_of
from support.feed_streams import streaming
from support.operator_world import Answer, OperatorWorld, running

HIDDEN = ("hushscope", "hushvm", "hushother", "hushalone", "hushhost", "Hush-Reason", "hushowner")
# So that a suggestion ("Did you mean ...") would name them.
NEARLY = ("hushscop", "hushv", "hushothe", "hushalon", "hushhos")
FLEET = (
    fleets.hosts("h1", "h2", "h3", "hushhost")
    + fleets.scope("web")
    + fleets.vm("web-0", address="10.0.0.1")
    + fleets.vm("web-1", update_domain=1, host="h2", address="10.0.0.2")
    + fleets.scope("hushscope")
    + fleets.vm("hushvm", scope="hushscope", address="10.0.0.3")
    + fleets.vm(
        "hushother", scope="hushscope", update_domain=1, host="hushhost", address="10.0.0.4"
    )
    + fleets.alone("hushalone", host="hushhost", address="10.0.0.5")
)


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running(fleet=FLEET) as world:
        for scope, vm in (("web", "web-0"), ("hushscope", "hushvm"), ("hushalone", "hushalone")):
            world.polls(scope, vm)
        yield world


def hidden_in(body: bytes) -> list[str]:
    return [name for name in HIDDEN if name.encode() in body]


class Owner:
    """Asks for everything there is, and keeps what was told."""

    def __init__(self, world: OperatorWorld) -> None:
        self.world = world
        self.token = token_of(world, "ann", "owner", "web")
        self.browser = Browser(world, self.token)
        self.asked = 0

    def sees_only_his_own(self) -> None:
        for path in (*self._paths(), *self._mistaken()):
            self._look(path, self.world.call("GET", path, token=self.token))
        for path in self._pages():
            self._look(path, self.browser.get(path))
        for verb in ("restart", "redeploy"):
            for name in (*NEARLY, *HIDDEN):
                path = f"/v1/vms/{name}/{verb}"
                answer = self.world.call("POST", path, token=self.token)
                assert answer.status == 403
                self._look(path, answer, name)

    def _look(self, path: str, answer: Answer, name: str = "") -> None:
        """`name` is what was asked for: it may be said again."""
        self.asked += 1
        assert answer.status != 500, path
        found = [one for one in hidden_in(answer.body) if one not in path and one != name]
        assert found == [], (path, answer.body)
        assert hidden_in(str(answer.headers).encode()) == [], path

    def _ids(self) -> tuple[list[str], list[str]]:
        """Of all events and operations, also of those that are not the owner's."""
        events = self.world.get("/v1/events?all=true&limit=1000")["items"]
        operations = self.world.get("/v1/operations?all=true&limit=1000")["items"]
        return [one["event_id"] for one in events], [one["operation_id"] for one in operations]

    def _targets(self) -> dict[str, list[str]]:
        events, operations = self._ids()
        return {
            "vms": ["web-0", "web-1", *NEARLY],
            "hosts": ["h1", "h2", *NEARLY],
            "scopes": ["web", *NEARLY],
            "events": [*events, *(one[:8] for one in events), *(one[:6] for one in events)],
            "operations": [*operations, *(one[:8] for one in operations)],
            "tokens": ["ann", "hushown"],
        }

    def _paths(self) -> Iterator[str]:
        targets = self._targets()
        for spec in every_route.of_every_service():
            if spec.method != "GET" or spec.name == "show-feed-schema":
                continue
            if "{" not in spec.path:
                yield spec.path
                continue
            for target in targets[spec.path.split("/")[2]]:
                yield spec.path.replace("{name}", target).replace("{id}", target)
        yield "/v1/events?all=true"
        yield "/v1/operations?all=true"
        for name in NEARLY:
            for listed in ("events", "operations", "journal", "feed"):
                yield f"/v1/{listed}?scope={name}"
            for key in ("vm", "host"):
                yield f"/v1/events?all=true&{key}={name}"
            yield f"/v1/vms?scope={name}"
            yield f"/v1/vms?host={name}"

    def _mistaken(self) -> Iterator[str]:
        events, _ = self._ids()
        yield "/v1/events/000000"
        yield f"/v1/journal?event={events[0] if events else 'abcdef'}"
        yield "/v1/feed?kind=hush"

    def _pages(self) -> Iterator[str]:
        events, operations = self._ids()
        for page in every_route.pages():
            if page.methods == {"POST"} or "{order}" in page.path or "emulator" in page.path:
                continue
            if "{" not in page.path:
                yield page.path
                yield f"/console/stream?on={page.path.rpartition('/')[2] or 'now'}&once"
                continue
            kind = page.path.split("/")[2]
            named = {**self._targets(), "journal": ["1", "5", "20"]}[kind]
            for target in named:
                yield (
                    page.path.replace("{name}", target)
                    .replace("{id}", target)
                    .replace("{number:int}", target)
                )
        for range_ in ("1h", "24h"):
            yield f"/console/timeline?range={range_}"
            yield f"/console/stream?on=timeline:{range_}::&once"
        for one in events:
            yield f"/console/stream?on=event:{one}&once"
            yield f"/console/orders/event-approve/{one}"
        for one in operations:
            yield f"/console/stream?on=operation:{one}&once"
        for name in ("web-0", "web-1", *NEARLY):
            yield f"/console/orders/vm-restart/{name}"
            yield f"/console/stream?on=vm:{name}&once"
            yield f"/console/stream?on=scope:{name}&once"
            yield f"/console/stream?on=host:{name}&once"
        yield "/console/stream?on=journal:&once"
        yield "/console/journal/export?format=csv"
        yield "/console/journal/export?format=ndjson"
        yield "/console/fleet?show=silent"
        yield "/console/fleet?find=hush"


def owned(world: OperatorWorld, name: str = "hushowner") -> str:
    return token_of(world, name, "owner", "hushscope", "hushalone")


def test_an_owner_learns_nothing_of_others_while_a_host_that_he_shares_is_maintained(
    world: OperatorWorld,
) -> None:
    owner, other = Owner(world), owned(world)
    ordered_ = world.order("/v1/hosts/h1/maintain", {"event_type": "Reboot"})
    events = {one["scope"]: one["event_id"] for one in ordered_["events"]}
    world.hosts_beat()
    owner.sees_only_his_own()

    said = {"until": "+2h", "reason": "Hush-Reason"}
    path = f"/v1/events/{events['hushscope']}/postpone"
    assert world.call("POST", path, said, token=other).status == 200
    world.hosts_beat()
    owner.sees_only_his_own()

    new = world.call("GET", "/v1/events", token=owner.token).json["items"][0]["event_id"]
    assert world.call("POST", f"/v1/events/{new}/approve", token=owner.token).status == 200
    world.pass_minutes(1)
    owner.sees_only_his_own()  # his is approved, and waits for another's

    world.pass_minutes(130)
    world.tick()
    owner.sees_only_his_own()
    world.hosts_work()
    world.tick()
    owner.sees_only_his_own()
    ended = world.call("GET", f"/v1/events/{new}", token=owner.token).json
    assert ended["phase"] in ("completed", "started")
    assert owner.asked > 500


def test_an_owner_learns_nothing_of_what_holds_others(world: OperatorWorld) -> None:
    owner = Owner(world)
    world.order("/v1/vms/hushvm/restart")
    world.order("/v1/hosts/h1/maintain", {"event_type": "Freeze"})
    world.pass_minutes(1)
    owner.sees_only_his_own()
    world.pass_minutes(20)
    world.hosts_work(Outcome.FAILED)
    world.tick()
    owner.sees_only_his_own()  # the other scope is held now
    world.order("/v1/hosts/h1/fail", {"fenced": True, "force": True, "reason": "Hush-Reason"})
    world.tick()
    owner.sees_only_his_own()


def test_an_owner_learns_nothing_of_a_scope_that_a_vm_has_come_from(world: OperatorWorld) -> None:
    owner = Owner(world)
    detail = VmChangedDetail(changed=("scope",), from_scope="hushscope")
    came = Fact(
        kind=FactKind.VM_CHANGED, at_ms=world.clock.wall, scope="web", vm="web-0", detail=detail
    )
    world.submit(lambda tx: tx.note(came))
    owner.sees_only_his_own()
    assert b"hushscope" in world.call("GET", "/v1/journal?kind=vm-changed").body
    with streaming(world, "/v1/feed?kind=vm-changed", token=owner.token) as stream:
        assert hidden_in(stream.take(1)[0].data.encode()) == []


def test_an_owner_learns_nothing_of_a_scope_that_a_vm_has_gone_to(world: OperatorWorld) -> None:
    owner = Owner(world)
    there = FLEET.replace('name = "web-1"\nscope = "web"', 'name = "web-1"\nscope = "hushscope"')
    assert there != FLEET
    world.submit(apply_at_once.apply(there, by=ordered.operator("test")))
    owner.sees_only_his_own()


def test_a_stream_tells_an_owner_of_his_own_alone(world: OperatorWorld) -> None:
    token = token_of(world, "ann", "owner", "web")
    with streaming(world, "/v1/feed", token=token) as stream:
        world.order("/v1/vms/hushvm/restart")
        world.order("/v1/vms/web-1/restart")
        found = stream.take(2)
    assert [hidden_in(frame.data.encode()) for frame in found] == [[], []]


def test_the_same_key_does_not_show_an_owner_what_another_was_answered(
    world: OperatorWorld,
) -> None:
    token = token_of(world, "ann", "owner", "web")
    world.order("/v1/vms/hushvm/restart", key="one")
    for path in ("/v1/vms/hushvm/restart", "/v1/vms/web-0/restart"):
        headers = {"Idempotency-Key": "one"}
        answer = world.call("POST", path, token=token, headers=headers)
        assert answer.status in (403, 422)
        assert b"hushscope" not in answer.body
