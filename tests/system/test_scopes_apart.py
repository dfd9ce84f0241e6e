"""VMs of different scopes on one service: neither reads, approves or slows the other (P7, I8)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.system_world import HOSTS, QUICK, Guest, Service, running

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 without being told"
)

ADDRESSES = {"red": "127.0.0.11", "blue": "127.0.0.12"}
NOBODY = "127.0.0.13"
FLEET = HOSTS + "".join(
    f'[[vm]]\nname = "{name}"\nhost = "h1"\naddress = "{address}"\n'
    for name, address in ADDRESSES.items()
)
LIMITED = {**QUICK, "FOREWARN_GUEST_REQUESTS_PER_SECOND": "5"}
REFUSED_WITHIN_REQUESTS = 200


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with running(tmp_path, fleet=FLEET) as service:
        yield service


def guest_of(service: Service, source: str) -> Guest:
    return Guest(service.guest_where(), ADDRESSES.get(source, source))


def test_a_vm_reads_only_the_events_of_its_own_scope(service: Service) -> None:
    red, blue = guest_of(service, "red"), guest_of(service, "blue")
    assert red.document() == blue.document() == {"DocumentIncarnation": 1, "Events": []}

    event_id = service.order("vms/red/restart")["event_id"]

    assert list(red.events()) == [event_id]
    assert blue.document() == {"DocumentIncarnation": 1, "Events": []}
    path = "/metadata/instance/compute/name?api-version=2021-12-13&format=text"
    assert (red.get(path).body, blue.get(path).body) == (b"red", b"blue")


def test_a_vm_cannot_approve_for_another_scope(service: Service) -> None:
    red, blue = guest_of(service, "red"), guest_of(service, "blue")
    blue.document()
    red.document()
    reds = service.order("vms/red/restart")["event_id"]
    blues = service.order("vms/blue/restart")["event_id"]

    refused = blue.approve(blues, reds)  # its own is not applied either

    assert refused.status == 400
    assert reds.encode() in refused.body  # it named it, so it learns nothing
    for event_id in (reds, blues):
        event = service.look(f"events/{event_id}")
        assert (event["approved"], event["phase"]) == (None, "scheduled")
    assert red.approve(reds).status == 200
    assert service.wait_for_phase(reds, "completed")["approved_by"] == "red"


def test_a_caller_that_is_nobody_gets_403_and_learns_nothing(service: Service) -> None:
    guest_of(service, "red").document()
    event_id = service.order("vms/red/restart")["event_id"]
    nobody = guest_of(service, NOBODY)

    answers = [
        nobody.get(),
        nobody.get("/metadata/instance?api-version=2021-02-01"),
        nobody.get("/metadata/versions"),
        nobody.approve(event_id),
    ]

    assert [answer.status for answer in answers] == [403] * 4
    for answer in answers:
        assert not any(name in answer.body for name in (b"red", b"blue", event_id.encode()))
    assert service.look(f"events/{event_id}")["approved"] is None


def test_x_forwarded_for_is_refused_and_makes_nobody_somebody(service: Service) -> None:
    for header in ("X-Forwarded-For", "X-Real-IP", "Forwarded", "Via"):
        said = {header: ADDRESSES["red"]}
        assert guest_of(service, "blue").get(**said).status == 400
        assert guest_of(service, NOBODY).get(**said).status in (400, 403)
    assert service.look("scopes/red")["enabled"] is False


def test_a_web_page_is_refused_and_names_are_those_of_the_setting(tmp_path: Path) -> None:
    names = {**QUICK, "FOREWARN_GUEST_NAMES": "metadata.example"}
    with running(tmp_path, fleet=FLEET, settings=names) as service:
        red = guest_of(service, "red")
        assert red.get(Origin="http://metadata.example").status == 400
        assert red.get(Sec_Fetch_Site="cross-site").status == 400
        assert red.get(Host="evil.example").status == 400
        assert service.look("scopes/red")["enabled"] is False
        assert red.get(Host="Metadata.Example:80").status == 200
        assert service.look("scopes/red")["enabled"] is True


def test_one_vm_that_asks_too_much_is_refused_and_the_other_does_not_feel_it(
    tmp_path: Path,
) -> None:
    with running(tmp_path, fleet=FLEET, settings=LIMITED) as service:
        red, blue = guest_of(service, "red"), guest_of(service, "blue")
        answers = [red.get() for _ in range(REFUSED_WITHIN_REQUESTS)]
        refused = [answer for answer in answers if answer.status == 429]

        assert answers[0].status == 200
        assert {answer.status for answer in answers} == {200, 429}
        assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
        assert [blue.get().status for _ in range(5)] == [200] * 5


def test_the_operator_api_knows_nobody_without_its_token_or_its_socket(service: Service) -> None:
    token = service.token()
    (service.data / "operator.token").write_text("wrong\n")

    assert service.ask("GET", "vms").status == 401
    assert service.ask("POST", "vms/red/restart").status == 401
    assert service.cli("vm", "list").returncode == 0  # by the socket, which needs none

    (service.data / "operator.token").write_text(f"{token}\n")
    assert service.look("events")["items"] == []
