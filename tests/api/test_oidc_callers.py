"""Callers with the token of an issuer, over HTTP: what they may do, and what they are told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from support import fleets
from support.link_world import ControlWorld, control_running, run
from support.oidc_issuer import OidcIssuer, issuing

FLEET = (
    fleets.HOSTS
    + fleets.scope("web")
    + fleets.vm("web-0", address="10.0.0.1")
    + fleets.alone("lonely", address="10.0.0.3")
)
SETTINGS = """
[[oidc]]
issuer = "{issuer}"
audience = "forewarn"
role_claim = "groups"
scopes_claim = "groups"
scopes_prefix = "scope/"

[oidc.roles]
"cloud ops" = "operator"
"readers" = "viewer"
"teams" = "owner"
"""


def now_s() -> int:
    return int(datetime.now(UTC).timestamp())


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    with issuing() as issuer:
        yield issuer


@asynccontextmanager
async def serving(folder: Path, issuer: OidcIssuer) -> AsyncIterator[ControlWorld]:
    written = SETTINGS.format(issuer=issuer.url)
    async with control_running(folder, fleet=FLEET, written=written) as world:
        yield world


class Caller:
    """A program with a token of the issuer."""

    def __init__(self, world: ControlWorld, issuer: OidcIssuer) -> None:
        self._world = world
        self._issuer = issuer

    async def ask(self, method: str, path: str, **claims: Any) -> httpx.Response:
        token = self._issuer.token(now_s(), **{"groups": ["cloud ops"], **claims})
        return await self._world.operator(method, path, token=token)


def test_an_operator_of_the_issuer_orders_under_their_own_name(
    tmp_path: Path, issuer: OidcIssuer
) -> None:
    async def story() -> None:
        async with serving(tmp_path, issuer) as world:
            caller = Caller(world, issuer)
            ordered = await caller.ask(
                "POST", "/v1/hosts/h3/close", preferred_username="Ann Müller", sub="a-17"
            )
            assert ordered.status_code == 200, ordered.text
            lines = (await caller.ask("GET", "/v1/journal?kind=host-closed")).json()["items"]
            assert [line["by"] for line in lines] == ["Ann Müller"]
            assert lines[0]["by_id"] == f"oidc:{issuer.url}#a-17"

    run(story)


def test_a_role_holds_for_callers_of_an_issuer_as_for_all_others(
    tmp_path: Path, issuer: OidcIssuer
) -> None:
    async def story() -> None:
        async with serving(tmp_path, issuer) as world:
            caller = Caller(world, issuer)
            assert (await caller.ask("GET", "/v1/vms", groups="readers")).status_code == 200
            refused = await caller.ask("POST", "/v1/hosts/h3/close", groups=["readers"])
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            none = await caller.ask("GET", "/v1/vms", groups=["strangers"])
            assert (none.status_code, none.json()["code"]) == (403, "no-role")
            nowhere = await caller.ask("GET", "/v1/vms", groups=["teams"])
            assert "names no scope" in nowhere.json()["detail"]

    run(story)


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": 1, "iat": 0}, "The token has expired."),
        ({"aud": "another"}, "The token is for another audience."),
        ({"iss": "https://login.example.com"}, "The settings do not name the issuer of this token"),
    ],
    ids=["expired", "audience", "issuer"],
)
def test_a_token_that_lets_no_caller_in_says_why_in_one_sentence(
    tmp_path: Path, issuer: OidcIssuer, claims: dict[str, Any], why: str
) -> None:
    async def story() -> None:
        async with serving(tmp_path, issuer) as world:
            answer = await Caller(world, issuer).ask("GET", "/v1/vms", **claims)
            assert answer.status_code == 401
            assert answer.json()["code"] == "bad-token"
            assert answer.json()["detail"].startswith(why)
            told = answer.headers["www-authenticate"]
            assert told == 'Bearer realm="forewarn", error="invalid_token"'
            sent = answer.request.headers["authorization"]
            assert not any(part in answer.text for part in sent.removeprefix("Bearer ").split("."))

    run(story)


def test_while_the_issuer_is_away_its_callers_are_told_to_come_again_and_others_come_in(
    tmp_path: Path, issuer: OidcIssuer
) -> None:
    issuer.answers = {"/.well-known/openid-configuration": lambda: (500, {}, b"")}

    async def story() -> None:
        async with serving(tmp_path, issuer) as world:
            answer = await Caller(world, issuer).ask("GET", "/v1/vms")
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert int(answer.headers["retry-after"]) > 0
            assert (await world.operator("GET", "/v1/vms")).status_code == 200

    run(story)


def test_without_an_issuer_in_the_settings_such_a_token_is_as_good_as_none(
    tmp_path: Path, issuer: OidcIssuer
) -> None:
    async def story() -> None:
        async with control_running(tmp_path, fleet=FLEET) as world:
            answer = await Caller(world, issuer).ask("GET", "/v1/vms")
            assert (answer.status_code, answer.json()["code"]) == (401, "no-token")

    run(story)
    assert issuer.asked == []


def test_a_token_in_the_url_is_refused(tmp_path: Path, issuer: OidcIssuer) -> None:
    async def story() -> None:
        async with serving(tmp_path, issuer) as world:
            token = issuer.token(now_s(), groups=["cloud ops"])
            for name in ("access_token", "token"):
                path = f"/v1/vms?{name}={token}"
                answer = await world.operator("GET", path, token="x" * 30)
                assert answer.status_code == 400

    run(story)


def test_metrics_say_how_old_the_keys_of_an_issuer_are(tmp_path: Path, issuer: OidcIssuer) -> None:
    async def story() -> None:
        async with serving(tmp_path, issuer) as world:
            await Caller(world, issuer).ask("GET", "/v1/vms")
            text = (await world.operator("GET", "/metrics")).text
            assert f'forewarn_oidc_keys_age_seconds{{issuer="{issuer.url}"}} ' in text

    run(story)
