"""`vm adopt` through the operator API and the command line, with hosts that write, refuse, hang."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from msgspec.structs import replace

from forewarn.api.adopt_routes import AdoptRoutes
from forewarn.control.hosts import adoptions
from forewarn.control.hosts.report_intake import ReportIntake
from forewarn.control.volatile import Volatile
from forewarn.core.errors import NotFound, Unavailable
from forewarn.core.inventory.host_report import SeenVm, Traits, WhenHostGoesDown
from forewarn.core.model import MINUTE_MS, EventType
from forewarn.core.principal import operator_named
from forewarn.core.vm_profile import Priority
from forewarn.wire.link import Adoption
from forewarn.wire.link_values import traits_of
from support import ordered, profiles
from support.cli_runner import ask
from support.clock import ManualClock
from support.operator_world import HOSTS, OperatorWorld, running
from support.reporting_fleet import seen, web

WAIT_S = 60
ADA = operator_named("ada")


class Place:
    """A world whose host h1 has joined and shows VMs. Belongs to the world's loop."""

    def __init__(self, world: OperatorWorld, report_intake: ReportIntake) -> None:
        self.world = world
        self.report_intake = report_intake
        self.vms: dict[str, SeenVm] = {}
        self.written: list[Adoption] = []
        self._rung = asyncio.Event()
        report_intake.on_adoption(lambda host: self._rung.set() if host == "h1" else None)

    def shows(self, *vms: SeenVm) -> None:
        self.vms = {vm.name: vm for vm in vms}
        self.world.run(self._show())

    async def _show(self) -> None:
        await self.report_intake.take(self.world.control, "h1", tuple(self.vms.values()))

    def writes(
        self, problem: str = "", *, shows: bool = True, leaves: bool = False
    ) -> Future[None]:
        """The host takes the next adoption, and writes it unless it has a problem.

        The VM stays, or `leaves` once it is written.
        """

        async def work() -> None:
            async with asyncio.timeout(WAIT_S):
                await self._rung.wait()
            self._rung.clear()
            for adoption in self.report_intake.adoptions_for("h1"):
                self.written.append(adoption)
                self.report_intake.adopted("h2", adoption.adoption_id, "another host says so")
                self.report_intake.adopted("h1", adoption.adoption_id, problem)
                vm = self.vms[adoption.vm]
                if not problem:
                    self.vms[adoption.vm] = replace(vm, traits=traits_of(adoption.traits))
            if leaves:
                self.vms.clear()
                await self._show()
            if shows:
                await self._show()

        return asyncio.run_coroutine_threadsafe(work(), self.world.loop)


@pytest.fixture
def place() -> Iterator[Place]:
    volatile = Volatile(0)
    report_intake = ReportIntake(ManualClock(), volatile)
    made: list[Place] = []

    with running(
        fleet="",
        with_control=lambda control: AdoptRoutes(control, report_intake).table(),
        volatile=volatile,
        by=ADA,
    ) as world:
        for host in HOSTS:
            world.submit(ordered.host_joined(host, by=host))
        made.append(Place(world, report_intake))
        yield made[0]


def test_adopting_writes_the_traits_and_the_vm_is_in_its_scope(place: Place) -> None:
    place.shows(seen("web-0"))
    writing = place.writes()
    answer = place.world.order(
        "/v1/vms/web-0/adopt",
        {
            "scope": "web",
            "update_domain": 2,
            "terminate_notice_minutes": 10,
            "auto_approve": ["reboot"],
            "priority": "spot",
            "address": "192.0.2.7",
            "tags": {"owner": "shop"},
            "when_host_goes_down": "move",
            "freeze_by_move": True,
        },
    )
    writing.result(WAIT_S)
    assert (answer["scope"], answer["update_domain"], answer["problem"]) == ("web", 2, "")
    assert (answer["power"], answer["priority"], answer["tags"]) == (
        "running",
        "spot",
        {"owner": "shop"},
    )
    assert (answer["freeze_by_move"], answer["when_host_goes_down"]) == (True, "move")
    [adoption] = place.written
    assert traits_of(adoption.traits) == profiles.traits(
        scope="web",
        update_domain=2,
        terminate_notice_ms=10 * MINUTE_MS,
        auto_approve=frozenset({EventType.REBOOT}),
        priority=Priority.SPOT,
        address="192.0.2.7",
        tags=(("owner", "shop"),),
        freeze_by_move=True,
        when_host_goes_down=WhenHostGoesDown.MOVE,
    )
    assert place.world.get("/v1/scopes/web")["terminate_notice_seconds"] == 600


def test_the_journal_says_who_adopted_a_vm_and_what_they_said_of_it(place: Place) -> None:
    place.shows(web(0, zone="1"))
    writing = place.writes()
    place.world.order("/v1/vms/web-0/adopt", {"update_domain": 5})
    writing.result(WAIT_S)
    lines = place.world.get("/v1/journal")["items"]
    [line] = [one for one in lines if one["kind"] == "adoption-ordered"]
    assert (line["by"], line["host"], line["vm"], line["scope"]) == (ADA.name, "h1", "web-0", "web")
    assert line["detail"] == {"traits": {"scope": "web", "update_domain": 5, "zone": "1"}}


def test_a_vm_is_adopted_with_its_os_and_guests_read_it(place: Place) -> None:
    place.shows(web(0, os_type="Windows"), web(1))
    shown = {one["name"]: one["os_type"] for one in place.world.get("/v1/vms")["items"]}
    assert shown == {"web-0": "Windows", "web-1": "Linux"}
    writing = place.writes()
    answer = place.world.order("/v1/vms/web-1/adopt", {"os_type": "Windows"})
    writing.result(WAIT_S)
    assert answer["os_type"] == "Windows"
    [adoption] = place.written
    assert adoption.traits.os_type == "Windows"
    refused = place.world.call("POST", "/v1/vms/web-1/adopt", {"os_type": "windows"})
    assert refused.status == 400
    assert b'"Linux" or "Windows"' in refused.body.replace(b'\\"', b'"')


def test_an_adoption_that_may_have_been_written_is_in_the_journal_too(
    place: Place,
) -> None:
    """The VM has left its host since; whoever finds it elsewhere reads who said that of it."""
    place.shows(web(0))
    writing = place.writes(leaves=True)
    answer = place.world.call("POST", "/v1/vms/web-0/adopt", {"zone": "2"})
    writing.result(WAIT_S)
    assert answer.status == 404, answer.body
    lines = place.world.get("/v1/journal")["items"]
    assert [one["by"] for one in lines if one["kind"] == "adoption-ordered"] == [ADA.name]


@pytest.mark.parametrize(
    ("vm", "body"),
    [("web-9", {"scope": "a"}), ("web-0", {"scope": "a b"}), ("web-0", {"zone": "2"})],
)
def test_an_adoption_that_is_refused_is_not_in_the_journal(
    place: Place, vm: str, body: dict[str, str]
) -> None:
    place.shows(web(0))
    writing = place.writes("libvirt says: the domain is gone.")
    assert place.world.call("POST", f"/v1/vms/{vm}/adopt", body).status in (400, 404, 409)
    writing.cancel()
    kinds = {one["kind"] for one in place.world.get("/v1/journal")["items"]}
    assert "adoption-ordered" not in kinds


def test_what_is_left_out_stays_and_null_says_nothing_any_more(place: Place) -> None:
    place.shows(web(0, zone="1", tags=(("a", "b"),)))
    writing = place.writes()
    answer = place.world.order("/v1/vms/web-0/adopt", {"tags": None, "update_domain": 5})
    writing.result(WAIT_S)
    assert (answer["scope"], answer["update_domain"]) == ("web", 5)
    assert (answer["zone"], answer["tags"]) == ("1", {})


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b'{"scop": "web"}',
        b'{"scope": 7}',
        b'{"scope": "we b"}',
        b'{"update_domain": -1}',
        b'{"terminate_notice_minutes": 4}',
        b'{"auto_approve": ["freeze"]}',
        b'{"priority": "low"}',
        b'{"address": "nowhere"}',
        b'{"tags": {"a;b": "c"}}',
        b'{"tags": {"a": "b", "a": "c"}}',
        b'{"when_host_goes_down": "explode"}',
        b"\xff",
    ],
)
def test_words_that_make_no_sense_are_refused_and_reach_no_host(place: Place, body: bytes) -> None:
    place.shows(web(0))
    answer = place.world.call("POST", "/v1/vms/web-0/adopt", body)
    assert answer.status == 400, answer.body
    assert place.report_intake.adoptions_for("h1") == ()


def test_a_vm_that_no_host_shows_is_not_found_with_what_was_meant(place: Place) -> None:
    place.shows(web(0))
    answer = place.world.call("POST", "/v1/vms/web-o/adopt", {"scope": "web"})
    assert answer.status == 404
    assert "web-0" in answer.json["remedy"]


def test_what_the_host_says_against_it_is_the_refusal(place: Place) -> None:
    place.shows(web(0))
    writing = place.writes("libvirt says: the domain is gone.")
    answer = place.world.call("POST", "/v1/vms/web-0/adopt", {"zone": "2"})
    writing.result(WAIT_S)
    assert answer.status == 409
    assert "libvirt says: the domain is gone." in answer.json["detail"]


def test_what_waits_for_an_event_is_said_in_the_answer(place: Place) -> None:
    place.shows(web(0))
    place.world.polls("web", "web-0")
    event_id = place.world.order("/v1/vms/web-0/restart")["event_id"]
    writing = place.writes()
    answer = place.world.order("/v1/vms/web-0/adopt", {"scope": "api"})
    writing.result(WAIT_S)
    assert event_id in answer["problem"]
    assert answer["scope"] == "web"


def test_a_silent_host_is_said_and_nothing_stays_queued(place: Place) -> None:
    place.shows(web(0))
    waiting = adoptions.Adoptions("1", lambda _: None)

    async def nobody_answers() -> None:
        with pytest.raises(Unavailable, match="has not answered"):
            await waiting.adopt("h1", "web-0", Traits(), within_s=0.01)
        assert waiting.queued("h1") == ()
        waiting.answered("h1", "1-1", "")

    place.world.run(nobody_answers())


def test_a_host_that_wrote_and_shows_nothing_is_said_so(place: Place) -> None:
    waiting = adoptions.Adoptions("1", lambda host: waiting.answered(host, "1-1", ""))

    async def silence() -> None:
        with pytest.raises(Unavailable, match="has not shown it"):
            await waiting.adopt("h1", "web-0", Traits(), within_s=0.01)

    place.world.run(silence())


def test_more_adoptions_than_fit_are_told_to_wait(place: Place) -> None:
    waiting = adoptions.Adoptions("1", lambda _: None)

    async def crowd() -> None:
        async with asyncio.TaskGroup() as tasks:
            many = [
                tasks.create_task(waiting.adopt("h1", f"vm-{number}", Traits()))
                for number in range(adoptions.ADOPTIONS_MAX)
            ]
            await asyncio.sleep(0)
            with pytest.raises(Unavailable, match="try again"):
                await waiting.adopt("h1", "one-more", Traits())
            for adoption in waiting.queued("h1"):
                waiting.answered("h1", adoption.adoption_id, "")
            names = [seen(f"vm-{number}") for number in range(adoptions.ADOPTIONS_MAX)]
            waiting.shown("h1", names, {"vm-0": "a problem."})
        assert [task.result() for task in many][:2] == ["a problem.", ""]

    place.world.run(crowd())


def test_a_vm_that_leaves_while_it_is_adopted_is_not_found(place: Place) -> None:
    waiting = adoptions.Adoptions("1", lambda host: waiting.answered(host, "1-1", ""))

    async def leaves() -> None:
        async with asyncio.TaskGroup() as tasks:
            adopting = tasks.create_task(_raises(waiting.adopt("h1", "web-0", Traits()), NotFound))
            await asyncio.sleep(0)
            waiting.shown("h1", [], {})
            waiting.shown("h1", [], {})
            await adopting

    place.world.run(leaves())


async def _raises(work: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await work


# The command line.


def test_vm_adopt_says_what_became_of_it(place: Place) -> None:
    place.shows(seen("web-0"))
    writing = place.writes()
    ran = ask(
        place.world,
        "vm",
        "adopt",
        "web-0",
        "--scope",
        "web",
        "--update-domain",
        "0",
        "--tag",
        "a=b",
    )
    writing.result(WAIT_S)
    assert ran.code == 0, ran.err
    assert "web, update domain 0" in ran.out
    assert "a=b" in ran.out
    assert "running" in ran.out


@pytest.mark.parametrize(
    "arguments", [(), ("--tag", "nothing"), ("--priority", "low"), ("--update-domain", "x")]
)
def test_vm_adopt_without_sense_is_misuse(place: Place, arguments: tuple[str, ...]) -> None:
    place.shows(web(0))
    assert ask(place.world, "vm", "adopt", "web-0", *arguments).code == 2


def test_vm_adopt_of_a_service_without_domains_says_what_to_do() -> None:
    with running() as world:
        ran = ask(world, "vm", "adopt", "web-0", "--scope", "web")
    assert ran.code == 1
    assert "forewarn inventory apply FILE" in ran.err


def test_lists_show_power_and_problems(place: Place) -> None:
    place.shows(web(0, problem="it has no network interface."), seen("a b"))
    assert "running, problem" in " ".join(ask(place.world, "vm", "list").out.split())
    assert "it has no network interface." in ask(place.world, "vm", "show", "web-0").out
    shown = ask(place.world, "host", "show", "h1").out
    assert "it has no network interface." in " ".join(shown.split())
    assert "a b" in shown
    found = place.world.get("/v1/hosts/h1")
    assert [one["vm"] for one in found["problems"]] == ["a b", "web-0"]
    assert found["joined"]


def test_the_route_is_in_the_document_of_a_control(place: Place) -> None:
    document = place.world.get("/v1/openapi.json")
    assert "/v1/vms/{name}/adopt" in document["paths"]
    schemas: dict[str, Any] = document["components"]["schemas"]
    assert schemas["AdoptRequest"]["additionalProperties"] is False
    named = set(re.findall(r'"\$ref": "([^"]*)"', json.dumps(document)))
    assert named == {ref for ref in named if ref.removeprefix("#/components/schemas/") in schemas}


def test_adopting_a_vm_beside_another_update_domain_of_its_scope_says_so(place: Place) -> None:
    place.shows(web(0, update_domain=0), seen("web-9"))
    writing = place.writes()
    body = {"scope": "web", "update_domain": 1}
    answer = place.world.order("/v1/vms/web-9/adopt", body)
    writing.result(WAIT_S)
    (note,) = answer["notes"]
    assert note.startswith(
        "Host h1 carries update domains 0, 1 of scope web: one impact on the host"
    )
    writing = place.writes()
    ran = ask(place.world, "vm", "adopt", "web-9", "--scope", "web", "--update-domain", "1")
    writing.result(WAIT_S)
    assert "Host h1 carries update domains 0, 1 of scope web" in " ".join(ran.out.split())


def test_adopting_a_vm_into_the_domain_of_its_neighbour_needs_no_note(place: Place) -> None:
    place.shows(web(0, update_domain=0), seen("web-9"))
    writing = place.writes()
    answer = place.world.order("/v1/vms/web-9/adopt", {"scope": "web", "update_domain": 0})
    writing.result(WAIT_S)
    assert answer["notes"] == []
