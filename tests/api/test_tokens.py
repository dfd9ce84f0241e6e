"""Tokens over HTTP: made, shown once, rotated, revoked, and every way in which one is refused."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from forewarn.core.model import DAY_MS, MINUTE_MS
from support.callers import Browser, id_of, token_of
from support.feed_streams import streaming
from support.operator_world import TOKEN, OperatorWorld, running
from support.waiting import wait_until


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as world:
        yield world


def status(world: OperatorWorld, token: str, path: str = "/v1/vms") -> int:
    return world.call("GET", path, token=token).status


def code(world: OperatorWorld, token: str, path: str = "/v1/vms") -> tuple[int, str]:
    answer = world.call("GET", path, token=token)
    return answer.status, str(answer.json["code"])


def refused_lines(world: OperatorWorld, count: int) -> list[dict[str, Any]]:
    """What the journal has of callers that were refused, once it has so many lines."""

    def lines() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = world.get("/v1/journal?kind=access-refused")["items"]
        return found

    wait_until(lambda: len(lines()) >= count, "what was refused is written down")
    return lines()


def test_a_token_is_shown_once_and_its_secret_is_in_no_list(world: OperatorWorld) -> None:
    token = token_of(world, "ci", "operator")
    secret = token.rpartition("_")[2]
    for path in (
        "/v1/tokens",
        f"/v1/tokens/{id_of(token)}",
        "/v1/tokens/ci",
        "/v1/journal",
        "/v1/feed",
    ):
        body = world.call("GET", path).body.decode()
        assert id_of(token) in body
        assert secret not in body
    assert status(world, token) == 200


def test_a_token_that_is_ordered_twice_with_one_key_is_one_and_its_secret_is_not_kept(
    world: OperatorWorld,
) -> None:
    said = {"name": "ci", "role": "viewer"}
    first = world.order("/v1/tokens", said, key="one")
    again = world.order("/v1/tokens", said, key="one")
    assert (again["token_id"], again["token"]) == (first["token_id"], None)
    assert "rotate" in again["note"]
    assert len(world.get("/v1/tokens")["items"]) == 1


def test_the_journal_names_who_came_by_a_token_with_kind_id_and_name(world: OperatorWorld) -> None:
    token = token_of(world, "olga", "operator")
    assert world.call("POST", "/v1/hosts/h3/close", token=token).status == 200
    (line,) = world.get("/v1/journal?kind=host-closed")["items"]
    assert (line["by"], line["by_kind"], line["by_id"]) == (
        "olga",
        "operator",
        f"token:{id_of(token)}",
    )


def test_a_token_that_was_rotated_lets_in_by_its_new_secret_alone(world: OperatorWorld) -> None:
    old = token_of(world, "ci", "viewer")
    new = world.order("/v1/tokens/ci/rotate")["token"]
    assert id_of(new) == id_of(old)
    assert (status(world, new), code(world, old)) == (200, (401, "no-token"))


def test_a_revoked_and_an_expired_token_are_refused_and_say_so(world: OperatorWorld) -> None:
    gone, brief = token_of(world, "gone", "viewer"), token_of(world, "brief", "viewer", valid_s=60)
    world.order("/v1/tokens/gone/revoke")
    world.order("/v1/tokens/gone/revoke")  # again: without effect
    assert code(world, gone) == (401, "token-ended")
    assert "revoked" in world.call("GET", "/v1/vms", token=gone).json["detail"]
    assert status(world, brief) == 200
    world.clock.pass_ms(MINUTE_MS)
    assert code(world, brief) == (401, "token-ended")
    assert "expired" in world.call("GET", "/v1/vms", token=brief).json["detail"]
    assert len(world.get("/v1/journal?kind=token-revoked")["items"]) == 1


def test_a_wrong_secret_of_an_ended_token_is_told_no_more_than_a_stranger(
    world: OperatorWorld,
) -> None:
    gone = token_of(world, "gone", "viewer")
    world.order("/v1/tokens/gone/revoke")
    assert code(world, gone[:-1] + ("a" if gone[-1] != "a" else "b")) == (401, "no-token")


def test_the_last_use_is_shown_and_coarse(world: OperatorWorld) -> None:
    token = token_of(world, "ci", "viewer", valid_s=DAY_MS // 1_000)
    assert world.get("/v1/tokens/ci")["used"] is None
    assert status(world, token) == 200
    wait_until(lambda: world.get("/v1/tokens/ci")["used"] is not None, "the use is kept")
    used = world.get("/v1/tokens/ci")["used"]
    assert status(world, token) == 200
    assert world.get("/v1/tokens/ci")["used"] == used


@pytest.mark.parametrize(
    "sent",
    [
        "fwt_",
        "fwt_aaaaaaaaaa_" + "a" * 40,  # of another installation
        "fwt_aaaaaaaaaa_" + "a" * 39,
        "fwt_" + "a" * 1_000,
        "\xfc",
        "..",
        "...." * 100,
        "null",
        "fwt_aaaaaaaaaa_" + "a" * 40 + " x",
    ],
)
def test_a_malformed_or_foreign_token_is_refused_and_none_of_it_is_said_again(
    world: OperatorWorld, sent: str
) -> None:
    answer = world.call("GET", "/v1/vms", token=sent)
    assert (answer.status, answer.json["code"]) == (401, "no-token")
    assert len(sent) < 5 or sent not in answer.body.decode("latin-1")


def test_a_token_of_another_installation_lets_in_nowhere_else(world: OperatorWorld) -> None:
    with running() as other:
        token = token_of(other, "ci", "admin")
    assert code(world, token) == (401, "no-token")


def test_a_right_secret_with_the_id_of_another_token_is_wrong(world: OperatorWorld) -> None:
    one, two = token_of(world, "one", "admin"), token_of(world, "two", "viewer")
    mixed = f"fwt_{id_of(two)}_{one.rpartition('_')[2]}"
    assert code(world, mixed) == (401, "no-token")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/vms?token={}",
        "/v1/vms?access_token={}",
        "/v1/vms?ACCESS_TOKEN={}",
        "/v1/vms?x={}",
        "/v1/{}",
        "/v1/vms/%66wt_{}",
    ],
)
def test_a_token_in_a_url_is_refused_with_a_right_header_too_and_says_what_to_do(
    world: OperatorWorld, path: str
) -> None:
    token = token_of(world, "ci", "admin")
    url = path.format(token.removeprefix("fwt_") if "%66" in path else token)
    answer = world.call("GET", url)
    assert (answer.status, answer.json["code"]) == (400, "token-in-url")
    assert id_of(token) in answer.json["detail"]
    assert "revoke" in answer.json["remedy"]
    assert token.encode() not in answer.body
    (line,) = refused_lines(world, 1)
    assert line["detail"]["token"] == id_of(token)
    assert token.rpartition("_")[2] not in str(line)


def test_a_header_of_a_mebibyte_is_refused_and_the_service_goes_on(world: OperatorWorld) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
    try:
        connection.request("GET", "/v1/vms", headers={"Authorization": "Bearer " + "a" * 2**20})
        assert connection.getresponse().status in (400, 401, 431)
    except (BrokenPipeError, ConnectionResetError):
        pass  # it was cut before all of it was sent
    finally:
        connection.close()
    assert world.call("GET", "/v1/vms").status == 200


@pytest.mark.parametrize("scheme", ["bearer", "BEARER", "Basic", "Token", ""])
def test_the_scheme_is_bearer_in_any_case(world: OperatorWorld, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {TOKEN}".strip()}
    answer = world.call("GET", "/v1/vms", token=None, headers=headers)
    assert answer.status == (200 if scheme.lower() == "bearer" else 401)


# What a token has opened ends with it.


def test_who_waits_for_the_feed_or_the_journal_is_refused_once_the_token_is_revoked(
    world: OperatorWorld,
) -> None:
    token = token_of(world, "ci", "viewer")
    end = world.get("/v1/journal?limit=1000")["end"]
    found: list[tuple[int, str]] = []
    paths = (f"/v1/feed?after={end}&wait=30", f"/v1/journal?after={end}&wait=30")
    waiting = [
        threading.Thread(target=lambda path=path: found.append(code(world, token, path)))
        for path in paths
    ]
    for one in waiting:
        one.start()
    wait_until(lambda: world.feed.readers == 1, "the feed has a reader that waits")
    world.order("/v1/tokens/ci/revoke")
    for one in waiting:
        one.join(60)
    # Who had not begun to wait yet is refused at the gate, in the same words.
    assert found == [(401, "token-ended")] * 2


def test_a_stream_ends_once_its_token_is_revoked_and_nothing_more_is_told() -> None:
    with running(heartbeat_s=0.05) as world:
        token = token_of(world, "ci", "viewer")
        end = world.get("/v1/journal?limit=1000")["end"]
        with streaming(world, f"/v1/feed?after={end}", token=token) as stream:
            stream.frame()
            world.order("/v1/tokens/ci/revoke")
            frames = list(stream.frames())
    assert all(frame.data == "" for frame in frames)
    assert frames[-1].comment == "your token has ended"


def test_a_stream_ends_once_its_token_has_expired() -> None:
    with running(heartbeat_s=0.05) as world:
        token = token_of(world, "ci", "viewer", valid_s=60)
        end = world.get("/v1/journal?limit=1000")["end"]
        with streaming(world, f"/v1/feed?after={end}", token=token) as stream:
            stream.frame()
            world.clock.pass_ms(MINUTE_MS)
            assert list(stream.frames())[-1].comment == "your token has ended"


@pytest.mark.parametrize("ends", ["revoked", "expired"])
def test_a_session_of_the_console_ends_with_the_token_that_opened_it(
    world: OperatorWorld, ends: str
) -> None:
    browser = Browser(world, token_of(world, "olga", "operator", valid_s=60))
    assert browser.get("/console/").status == 200
    if ends == "revoked":
        world.order("/v1/tokens/olga/revoke")
    else:
        world.clock.pass_ms(MINUTE_MS)
    assert browser.get("/console/").status == 303  # to the page that asks who it is
    assert browser.get("/console/stream?on=now").status == 401


def test_the_last_admin_token_may_be_revoked_because_two_other_ways_remain(
    world: OperatorWorld,
) -> None:
    token = token_of(world, "root", "admin")
    assert world.call("POST", "/v1/tokens/root/revoke", token=token).status == 200
    assert code(world, token) == (401, "token-ended")
    assert status(world, TOKEN) == 200


def test_a_clock_that_is_set_back_brings_no_revoked_token_back(world: OperatorWorld) -> None:
    token = token_of(world, "ci", "viewer")
    world.clock.pass_ms(MINUTE_MS)
    world.order("/v1/tokens/ci/revoke")
    world.clock.wall -= 10 * MINUTE_MS
    assert code(world, token) == (401, "token-ended")


def test_what_was_made_and_revoked_is_so_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as world:
        kept, gone = token_of(world, "kept", "viewer"), token_of(world, "gone", "viewer")
        world.order("/v1/tokens/gone/revoke")
    with running(tmp_path, fleet="") as world:
        assert status(world, kept) == 200
        assert code(world, gone) == (401, "token-ended")


def test_two_admins_who_make_the_same_name_at_once_make_one_token(world: OperatorWorld) -> None:
    answers: list[int] = []
    said = {"name": "ci", "role": "viewer"}
    both = [
        threading.Thread(
            target=lambda: answers.append(world.call("POST", "/v1/tokens", said).status)
        )
        for _ in range(2)
    ]
    for one in both:
        one.start()
    for one in both:
        one.join(60)
    assert sorted(answers) == [200, 409]


# Attempts that were refused.


def test_refused_attempts_are_counted_and_written_down_once_a_minute(world: OperatorWorld) -> None:
    for _ in range(5):
        assert status(world, "wrong") == 401
    viewer = token_of(world, "vic", "viewer")
    assert world.call("POST", "/v1/hosts/h3/close", token=viewer).status == 403
    lines = {one["detail"]["reason"]: one for one in refused_lines(world, 2)}
    assert lines["wrong-token"]["detail"]["count"] == 1
    assert lines["wrong-token"]["detail"]["address"] == "127.0.0.1"
    assert lines["missing-right"]["detail"]["what"] == "host-close"
    assert lines["missing-right"]["by_id"] == f"token:{id_of(viewer)}"
    numbers = world.call("GET", "/metrics").body.decode()
    assert 'forewarn_access_refused_total{reason="wrong-token"} 5.0' in numbers
    assert 'forewarn_access_refused_total{reason="missing-right"} 1.0' in numbers


def test_wrong_tokens_beyond_the_limit_are_told_when_to_come_again_and_right_ones_get_in(
    world: OperatorWorld,
) -> None:
    right = token_of(world, "ci", "viewer")
    found = [code(world, "wrong") for _ in range(21)]
    assert found == [(401, "no-token")] * 20 + [(429, "too-many-wrong-tokens")]
    assert int(world.call("GET", "/v1/vms", token="wrong").headers["retry-after"]) > 0
    assert status(world, right) == 200
    assert status(world, TOKEN) == 200


def test_a_wrong_token_at_the_console_is_counted_and_written_down_too(world: OperatorWorld) -> None:
    headers = {
        "Host": f"127.0.0.1:{world.port}",
        "Origin": world.url,
        "Content-Type": "application/x-www-form-urlencoded",
    }
    answer = world.call("POST", "/console/login", "token=wrong", token=None, headers=headers)
    assert answer.status == 403
    (line,) = refused_lines(world, 1)
    assert line["detail"]["reason"] == "wrong-token"


def test_while_wrong_tokens_pour_in_right_ones_get_in_and_the_journal_stays_short(
    world: OperatorWorld,
) -> None:
    right, pours = token_of(world, "ci", "viewer"), threading.Event()
    statuses: list[set[int]] = []

    def pour() -> None:
        found: set[int] = set()
        connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
        for number in range(150):
            wrong = f"fwt_aaaaaaaaaa_{number:040}"
            connection.request("GET", "/v1/vms", headers={"Authorization": f"Bearer {wrong}"})
            answer = connection.getresponse()
            answer.read()
            found.add(answer.status)
            pours.set()
        connection.close()
        statuses.append(found)

    strangers = [threading.Thread(target=pour) for _ in range(4)]
    for one in strangers:
        one.start()
    assert pours.wait(60)
    for _ in range(10):
        assert status(world, right) == 200
    assert world.call("POST", "/v1/hosts/h3/close").status == 200
    for one in strangers:
        one.join(60)
    assert set.union(*statuses) <= {401, 429}
    lines = world.get("/v1/journal?kind=access-refused")["items"]
    assert len(lines) <= 2 * len({one["detail"]["reason"] for one in lines})
    numbers = world.call("GET", "/metrics").body.decode()
    counted = re.findall(
        r"^forewarn_access_refused_total\{[^}]*wrong[^}]*\} (\S+)", numbers, re.MULTILINE
    )
    assert sum(map(float, counted)) == 600
