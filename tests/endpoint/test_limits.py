"""The rate limit: a bucket per VM, and that one VM's excess is its own."""

from __future__ import annotations

import pytest

from forewarn.endpoint.limits import Bucket
from support.endpoint_world import POLL, URL, get, running


def test_a_quiet_guest_may_send_one_second_s_worth_at_once_and_then_the_rate() -> None:
    bucket = Bucket(5)
    assert [bucket.take(100.0) for _ in range(5)] == [0.0] * 5
    assert bucket.take(100.0) == pytest.approx(0.2, abs=1e-3)
    assert bucket.take(100.1) == pytest.approx(0.1, abs=1e-3)
    assert bucket.take(100.21) == 0.0
    assert bucket.take(100.21) > 0


def test_a_refused_request_costs_nothing() -> None:
    bucket = Bucket(1)
    for _ in range(5):
        bucket.take(0.0)
    for _ in range(100):
        assert bucket.take(0.5) == pytest.approx(0.5, abs=1e-3)
    assert bucket.take(1.1) == 0.0


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    bucket = Bucket(5)
    bucket.take(0.0)
    allowed = sum(bucket.take(1_000_000.0) == 0.0 for _ in range(100))
    assert allowed == 5


def test_a_guest_that_polls_every_second_is_never_refused() -> None:
    bucket = Bucket(5)
    assert all(bucket.take(float(second)) == 0.0 for second in range(1_000))


def test_a_rate_of_zero_refuses_nothing() -> None:
    bucket = Bucket(0)
    assert all(bucket.take(0.0) == 0.0 for _ in range(100_000))


def test_one_guest_over_its_rate_is_refused_and_others_are_not() -> None:
    with running(requests_per_s=0.1) as world:
        greedy = world.client()
        answers = [greedy.ask(POLL) for _ in range(10)]
        assert [answer.status for answer in answers] == [200] * 5 + [429] * 5
        assert 1 <= int(answers[-1].headers["retry-after"]) <= 10
        assert "connection" not in answers[-1].headers
        assert world.client().ask(POLL).status == 429, "another connection of the same VM"
        assert world.client("127.0.0.2").ask(POLL).status == 200
        assert world.client("127.0.0.3").ask(POLL).status == 200
        assert world.endpoint.counters.refused()["rate-limit"] == 6


def test_every_kind_of_request_counts() -> None:
    with running(requests_per_s=0.1) as world:
        client = world.client()
        for url in ("/", "/metadata/versions", "/x", "/y", "/z"):
            assert client.ask(get(url)).status != 429
        assert client.ask(get("/metadata/versions", "Metadata: true")).status == 429


def test_a_refused_poll_is_no_poll() -> None:
    with running(requests_per_s=0.1) as world:
        client = world.client()
        for _ in range(5):
            client.ask(get("/"))
        assert client.ask(get(URL, "Metadata: true")).status == 429
        assert world.call(world.documents.polled) == {}
