"""Faults that need a whole cloud: answers, documents, listeners and actions that go wrong."""

from __future__ import annotations

import http.client
import json
import threading
import time
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from emulator.faulty_world import FaultyWorld, faulty
from forewarn.core.errors import Invalid
from forewarn.testing import Cloud, CloudVm, Event, Phase
from support.cli_runner import forewarn
from support.cloud_guest import PATH, approve, ask, read
from support.endpoint_world import APPROVAL, EVENT_ID, POLL, post
from support.waiting import wait_until

CAPTURED = {
    "DocumentIncarnation": 213,
    "Events": [
        {
            "EventId": "f020ba2e-3bc0-4c40-a10b-86575a9eabd5",
            "EventStatus": "Scheduled",
            "EventType": "Freeze",
            "ResourceType": "VirtualMachine",
            "Resources": ["FrontEnd_IN_0"],
            "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
        }
    ],
}


def shown(vm: CloudVm) -> list[tuple[str, str]]:
    return [(e["EventType"], e["EventStatus"]) for e in read(vm)["Events"]]


def answer(vm: CloudVm) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(urlsplit(vm.url).netloc, timeout=60)
    connection.request("GET", PATH, headers={"Metadata": "true"})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response


def sent_approval(vm: CloudVm, event: Event) -> int:
    body = json.dumps({"StartRequests": [{"EventId": event.event_id}]})
    return ask(vm, "POST", body)[0]


# Answers.


def test_latency_is_met_by_every_answer() -> None:
    with faulty() as world:
        world.fault("latency", seconds="0.2s")
        client = world.client()
        for request in (POLL, POLL, post(APPROVAL)):
            began_s = time.monotonic()
            assert client.ask(request).status == 200
            assert time.monotonic() - began_s >= 0.2


def test_a_late_answer_is_whole_and_its_approval_was_applied_at_once() -> None:
    with faulty() as world:
        world.fault("late", seconds="0.3s", count=1)
        client = world.client()
        began_s = time.monotonic()
        client.send(post(APPROVAL))
        world.until(lambda: world.service.approved == [("web_0", (EVENT_ID,))])
        assert client.is_silent(0.05)
        assert client.answer().status == 200
        assert time.monotonic() - began_s >= 0.3
        assert client.ask(POLL).status == 200


def test_an_error_after_the_approval_was_applied(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    fault = cloud.faults.add("error-after", method="POST", count=1)
    assert sent_approval(cloud.vm("vm0"), event) == 500
    cloud.expect_approved(event, by="vm0", within=0)
    cloud.expect_met(fault, within=0)
    assert sent_approval(cloud.vm("vm0"), event) == 200


@pytest.fixture
def world() -> Any:
    with faulty() as world:
        yield world


def test_a_page_of_html_is_200_and_was_not_carried_out(world: FaultyWorld) -> None:
    world.fault("html", count=1)
    got = world.get()
    assert (got.status, got.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert got.body.startswith(b"<!DOCTYPE html>")
    assert world.service.read == []
    assert world.get().headers["content-type"].startswith("application/json")


def test_malformed_json_is_whole_http(world: FaultyWorld) -> None:
    world.fault("malformed", count=1)
    got = world.get()
    assert (got.status, int(got.headers["content-length"])) == (200, len(got.body))
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(got.body)
    assert json.loads(world.get().body)["Events"]


# A document from elsewhere.


@pytest.mark.parametrize("given", [CAPTURED, json.dumps(CAPTURED)])
def test_a_captured_document_is_replayed_to_polls_alone(cloud: Cloud, given: Any) -> None:
    vm = cloud.vm("vm0")
    fault = cloud.faults.add("replay", document=given)
    assert read(vm) == CAPTURED
    assert answer(vm).getheader("ETag") == '"213"'
    connection = http.client.HTTPConnection(urlsplit(vm.url).netloc, timeout=60)
    connection.request(
        "GET", "/metadata/instance?api-version=2021-02-01", headers={"Metadata": "true"}
    )
    assert json.loads(connection.getresponse().read())["compute"]["name"] == "vm0"
    connection.close()
    cloud.faults.clear(fault)
    assert read(vm)["Events"] == []


def test_what_is_no_document_cannot_be_replayed(cloud: Cloud) -> None:
    with pytest.raises(Invalid, match="document is missing"):
        cloud.faults.add("replay")
    with pytest.raises(Invalid, match="DocumentIncarnation and Events"):
        cloud.faults.add("replay", document="{}")
    with pytest.raises(Invalid, match="document"):
        cloud.faults.add("gone", document=CAPTURED)


def test_the_command_line_replays_a_file(cloud: Cloud, tmp_path: Any) -> None:
    file = tmp_path / "captured.json"
    file.write_text(json.dumps(CAPTURED), encoding="utf-8")
    command = ("fault", "add", "replay", "--document")
    ran = forewarn(*command, str(file), environment=cloud.environment)
    assert ran.code == 0, ran.err
    assert "a document of" in ran.out
    assert read(cloud.vm("vm0")) == CAPTURED
    missing = forewarn(*command, str(tmp_path / "none"), environment=cloud.environment)
    assert (missing.code, "cannot be read" in missing.err) == (2, True)


# Documents of a scope.


def test_started_is_never_shown(cloud: Cloud) -> None:
    vm, event = cloud.vm("vm0"), cloud.restart("vm0")
    fault = cloud.faults.add("never-started", count=1)
    assert shown(vm) == [("Reboot", "Scheduled")]
    before = read(vm)["DocumentIncarnation"]
    cloud.clock.advance_to(event)
    assert shown(vm) == []
    assert read(vm)["DocumentIncarnation"] > before
    assert cloud.event(event).phase is Phase.STARTED
    cloud.expect_met(fault, within=0)
    cloud.clock.next()
    again = cloud.restart("vm0")
    cloud.clock.advance_to(again)
    assert shown(vm) == [("Reboot", "Started")]


def test_an_incarnation_starts_over_and_goes_on_from_there(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    event = cloud.restart("vm0")
    cloud.clock.advance_to(event)
    assert read(vm)["DocumentIncarnation"] == 3
    cloud.faults.add("start-over", count=1)
    cloud.clock.next()
    assert read(vm) == {"DocumentIncarnation": 1, "Events": []}
    cloud.restart("vm0")
    assert read(vm)["DocumentIncarnation"] == 2


@pytest.mark.cloud(scopes=["web:2"])
def test_a_document_is_a_minute_late_and_what_it_tells_is_not(cloud: Cloud) -> None:
    vms = cloud.vms
    cloud.faults.add("late-document")
    event = cloud.redeploy("web_0")
    for _ in range(2):
        assert [shown(vm) for vm in vms] == [[], []]
        assert {read(vm)["DocumentIncarnation"] for vm in vms} == {1}
        cloud.clock.advance(seconds=29.5)
    passed = cloud.clock.advance(seconds=1)
    assert [due.what for due in passed] == ["a late document of web is shown"]
    assert [shown(vm) for vm in vms] == [[("Redeploy", "Scheduled")]] * 2
    cloud.clock.advance_to(event)
    assert cloud.clock.now == event.not_before
    assert shown(vms[0]) == [("Redeploy", "Scheduled")]
    cloud.clock.advance(minutes=2)
    assert shown(vms[0]) == []
    assert read(vms[0])["DocumentIncarnation"] == 4


def test_a_poll_that_waits_is_answered_when_the_late_document_comes(cloud: Cloud) -> None:
    vm, answers = cloud.vm("vm0"), []
    cloud.faults.add("late-document", seconds="90s")
    tag = answer(vm).getheader("ETag") or ""
    before = cloud.polls(vm)

    def wait() -> None:
        answers.append(ask(vm, **{"If-None-Match": tag, "Prefer": "wait=60"}))

    thread = threading.Thread(target=wait)
    thread.start()
    cloud.expect_polled(vm, more_than=before)
    cloud.restart("vm0")
    assert answers == []
    cloud.clock.advance(seconds=90)
    thread.join(60)
    ((status, body),) = answers
    assert (status, len(json.loads(body)["Events"])) == (200, 1)


# Listeners.


def test_without_a_listener_connections_are_refused_until_it_is_back(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    kept = http.client.HTTPConnection(urlsplit(vm.url).netloc, timeout=60)
    kept.request("GET", PATH, headers={"Metadata": "true"})
    kept.getresponse().read()
    fault = cloud.faults.add("no-listener", vm="vm0", for_s="70s")
    assert fault.hits == 1
    wait_until(lambda: kept.sock.recv(1) == b"", "the connection is closed")
    kept.close()
    with pytest.raises(ConnectionRefusedError):
        ask(vm)
    assert cloud.vm("vm0") == vm
    event = cloud.restart("vm0")
    cloud.clock.advance(seconds=70)
    assert [e["EventId"] for e in read(vm)["Events"]] == [event.event_id]


@pytest.mark.cloud(vms=2)
def test_only_the_vm_that_is_meant_has_no_listener(cloud: Cloud) -> None:
    cloud.faults.add("no-listener", vm="vm1")
    assert ask(cloud.vm("vm0"))[0] == 200
    with pytest.raises(ConnectionRefusedError):
        ask(cloud.vm("vm1"))
    cloud.faults.clear()
    assert ask(cloud.vm("vm1"))[0] == 200


# Actions.


def test_an_action_that_fails_fails_its_event(cloud: Cloud) -> None:
    fault = cloud.faults.add("action-fails", vm="vm0", count=1)
    event = cloud.restart("vm0")
    cloud.approve(event)
    cloud.clock.next()
    assert (cloud.event(event).phase, cloud.event(event).outcome) == (
        Phase.FAILED,
        f"vm0: fault {fault.fault_id} has it fail",
    )


def test_an_action_that_is_slow_takes_so_much_longer(cloud: Cloud) -> None:
    cloud.faults.add("action-slow", seconds="2m", count=1)
    event = cloud.restart("vm0")
    cloud.approve(event)
    began = cloud.clock.now
    cloud.clock.next()
    assert cloud.event(event).phase is Phase.COMPLETED
    assert cloud.clock.now - began == timedelta(minutes=2, seconds=5)


def test_an_action_that_hangs_is_given_up(cloud: Cloud) -> None:
    cloud.faults.add("action-hangs", count=1)
    event = cloud.restart("vm0")
    cloud.approve(event)
    (due,) = cloud.clock.next()
    assert due.what == "Reboot of vm0 is given up"
    assert cloud.event(event).phase is Phase.FAILED
    assert all("ends" not in due.what for due in cloud.clock.upcoming())


def test_a_host_whose_vm_is_named_has_its_action_spoilt(cloud: Cloud) -> None:
    cloud.faults.add("action-fails", vm="vm0")
    freeze = cloud.maintain("vm0", "Freeze").event
    approve(cloud.vm("vm0"), freeze.event_id)
    cloud.clock.next()
    assert cloud.event(freeze).phase is Phase.FAILED


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no-listener", {"count": 1}),
        ("late-document", {"count": 1}),
        ("late-document", {"seconds": "2h"}),
        ("action-slow", {"method": "GET"}),
        ("never-started", {"share": 0.5}),
        ("html", {"method": "POST"}),
    ],
)
def test_a_word_that_a_kind_does_not_take_is_refused(
    cloud: Cloud, kind: Any, words: dict[str, Any]
) -> None:
    with pytest.raises(Invalid, match=f"The fault {kind}"):
        cloud.faults.add(kind, **words)
    assert cloud.faults.list() == ()
