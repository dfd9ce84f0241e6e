"""The client of forewarn-guest against the service itself, emulated, and against its bad days."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from forewarn.testing import Cloud
from forewarn_guest import Change, Client, EndpointError, Refused, Unreachable
from forewarn_guest.client import API_VERSIONS

PATIENCE_S = 50.0


class Watching:
    """A client that follows in a thread; what it is told can be asked for one by one."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.troubles: list[EndpointError] = []
        self._changes: queue.Queue[Change] = queue.Queue()
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        for change in self.client.watch(on_trouble=self.troubles.append):
            self._changes.put(change)

    def next(self, within_s: float = PATIENCE_S) -> tuple[str, Change]:
        change = self._changes.get(timeout=within_s)
        return change.what.value, change

    def end(self) -> None:
        self.client.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


@contextmanager
def watching(cloud: Cloud, vm: str = "vm0", *, wait_s: int = 60) -> Iterator[Watching]:
    """Follows, and has read the document once."""
    made = Watching(Client(cloud.vm(vm).url, wait_s=wait_s))
    try:
        cloud.expect_polled(vm, more_than=1, within=PATIENCE_S)  # who asks again has read
        yield made
    finally:
        made.end()


def test_an_event_is_followed_from_its_announcement_to_its_end(cloud: Cloud) -> None:
    with watching(cloud) as guest:
        reboot = cloud.restart("vm0")
        what, change = guest.next()
        assert (what, change.event.event_id) == ("appeared", reboot.event_id)
        assert (change.event.event_type, change.event.source) == ("Reboot", "User")
        assert change.event.names(guest.client.me())
        assert change.seconds_left == pytest.approx(900, abs=60)
        guest.client.approve(change.event.event_id)
        cloud.expect_approved(reboot, by="vm0", within=60)
        assert guest.next()[0] == "started"
        cloud.clock.advance(minutes=20)
        what, change = guest.next()
        assert (what, change.event.started) == ("gone", True)
        assert guest.troubles == []


def test_news_comes_at_once_where_the_endpoint_holds_requests(cloud: Cloud) -> None:
    with watching(cloud) as guest:
        polls = cloud.polls("vm0")
        threading.Event().wait(2.5)  # in which who is not held would ask again
        assert cloud.polls("vm0") == polls
        cloud.restart("vm0")
        assert guest.next()[0] == "appeared"
        assert cloud.polls("vm0") - polls < 5


def test_news_comes_within_a_poll_where_nobody_asks_to_wait(cloud: Cloud) -> None:
    with watching(cloud, wait_s=0) as guest:
        reboot = cloud.restart("vm0")
        what, change = guest.next()
        assert (what, change.event.event_id) == ("appeared", reboot.event_id)


def test_an_event_that_is_canceled_is_gone_without_having_started(cloud: Cloud) -> None:
    with watching(cloud) as guest:
        freeze = cloud.maintain(cloud.vm("vm0").host, "Freeze")
        assert guest.next()[0] == "appeared"
        cloud.cancel(freeze.events[0])
        what, change = guest.next()
        assert (what, change.event.started) == ("gone", False)


@pytest.mark.cloud(scopes=["web:2"])
def test_a_failed_host_is_first_seen_as_started(cloud: Cloud) -> None:
    with watching(cloud, "web_0") as guest:
        cloud.fail(cloud.vm("web_1").host)
        what, change = guest.next()
        assert (what, change.event.not_before) == ("appeared", None)
        assert not change.event.names(guest.client.me())
        assert guest.next()[0] == "started"


@pytest.mark.parametrize("version", API_VERSIONS)
@pytest.mark.cloud(scopes=["web:2"])
def test_every_version_is_read_with_the_same_names_and_times(cloud: Cloud, version: str) -> None:
    with Client(cloud.vm("web_0").url, api_version=version) as client:
        client.document()
        reboot = cloud.restart("web_0")
        (event,) = client.document().events
        assert (event.event_id, event.resources) == (reboot.event_id, ("web_0",))
        assert event.not_before == reboot.not_before.replace(microsecond=0)
        assert client.api_version == version
        client.approve(event.event_id)
    cloud.expect_approved(reboot, by="web_0", within=60)


def test_a_version_that_the_service_does_not_have_gives_way(cloud: Cloud) -> None:
    with Client(cloud.vm("vm0").url, api_version="2024-07-09") as client:
        assert client.document().events == ()
        assert client.api_version == "2020-07-01"


def test_an_id_that_nobody_has_is_refused(cloud: Cloud) -> None:
    with Client(cloud.vm("vm0").url) as client, pytest.raises(Refused) as caught:
        client.approve("11111111-2222-3333-4444-555555555555")
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gone", {}),
        ("throttled", {}),
        ("throttled", {"retry_after": 1}),
        ("error", {}),
        ("unavailable", {}),
        ("empty", {}),
        ("cut", {}),
        ("reset", {}),
    ],
)
def test_a_bad_day_delays_news_and_loses_none(
    cloud: Cloud, kind: str, words: dict[str, int]
) -> None:
    # A poll each second, because a fault does not hit a request that is held already.
    with watching(cloud, wait_s=0) as guest:
        fault = cloud.faults.add(kind, count=2, **words)  # type: ignore[arg-type]
        reboot = cloud.restart("vm0")
        what, change = guest.next()
        assert (what, change.event.event_id) == ("appeared", reboot.event_id)
        cloud.expect_met(fault, within=60)
        guest.client.approve(reboot.event_id)
        cloud.expect_approved(reboot, by="vm0", within=60)


def test_an_answer_that_stalls_is_given_up_in_seconds(cloud: Cloud) -> None:
    with watching(cloud, wait_s=0) as guest:
        cloud.faults.add("stall", count=1, seconds=60)
        cloud.restart("vm0")
        assert guest.next()[0] == "appeared"
        assert [type(one) for one in guest.troubles] == [Unreachable]


def test_an_approval_whose_answer_is_lost_has_arrived_and_can_be_repeated(cloud: Cloud) -> None:
    with Client(cloud.vm("vm0").url) as client:
        client.document()
        reboot = cloud.restart("vm0")
        fault = cloud.faults.add("reset", method="POST", count=1)
        client.approve(reboot.event_id)  # over the kept connection, and once more over a new one
        cloud.expect_met(fault, within=60)
        client.approve(reboot.event_id)
    assert {one.by for one in cloud.approvals(reboot)} == {"vm0"}


def test_tags_without_quotes_and_incarnations_that_jump_are_fine(cloud: Cloud) -> None:
    cloud.faults.add("unquoted-etag")
    cloud.faults.add("skip", by=5)
    with watching(cloud) as guest:
        cloud.restart("vm0")
        assert guest.next()[0] == "appeared"
        polls = cloud.polls("vm0")
        cloud.clock.advance(minutes=15)
        assert guest.next()[0] == "started"
        assert cloud.polls("vm0") - polls < 4


def test_a_slow_first_answer_is_waited_for(cloud: Cloud) -> None:
    cloud.faults.add("slow-first", seconds=3)
    with Client(cloud.vm("vm0").url, timeout_s=1.0) as client:
        assert client.document().events == ()


def test_a_cloud_that_goes_away_is_trouble_and_ends_nothing(cloud: Cloud) -> None:
    told: queue.Queue[EndpointError] = queue.Queue()
    with Client(cloud.vm("vm0").url) as client:
        documents = client.documents(on_trouble=told.put)
        assert next(documents).events == ()
        thread = threading.Thread(target=lambda: list(documents))
        thread.start()
        cloud.close()
        assert isinstance(told.get(timeout=PATIENCE_S), Unreachable)
        assert thread.is_alive()
        client.close()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
