"""The keys of issuers: fetched with limits, kept while the issuer is away, never for ever."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from forewarn.adapters.oidc.fetching import DOCUMENT_BYTES_MAX, Fetcher, NotFetched
from forewarn.adapters.oidc.issuers import (
    ATTEMPT_EVERY_MS,
    DISCOVERY,
    KEYS_FRESH_MS,
    KEYS_KEPT_MS,
    Issuers,
)
from forewarn.adapters.oidc.key_sets import KEYS_MAX
from forewarn.core.access import Access, Role
from forewarn.core.errors import BadToken, Unavailable
from forewarn.core.oidc_claims import IssuerRules
from support.clock import ManualClock
from support.oidc_issuer import AUDIENCE, Answer, OidcIssuer, document, ec_key, issuing, jwk
from support.waiting import until

LIMIT_S = 60.0
SHORT_S = 0.2
DRIP_S = 0.01
NEVER_S = 3_600.0


class World:
    """A service with one issuer, and a clock that a test turns."""

    def __init__(self, issuer: OidcIssuer, *, limit_s: float = NEVER_S) -> None:
        self.issuer = issuer
        self.clock = ManualClock()
        rules = IssuerRules(issuer=issuer.url, audience=(AUDIENCE,), roles={"ops": Role.OPERATOR})
        self.issuers = Issuers([rules], self.clock, Fetcher(limit_s=limit_s))

    def token(self, **claims: Any) -> str:
        return self.issuer.token(self.clock.now_ms() // 1_000, **claims)

    async def comes_in(self, token: str | None = None) -> Access:
        return await self.issuers.access_for(token or self.token())


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(LIMIT_S):
            await story()

    asyncio.run(limited())


@pytest.fixture
def issuer() -> Iterator[OidcIssuer]:
    with issuing() as issuer:
        yield issuer


@pytest.fixture
def world(issuer: OidcIssuer) -> World:
    return World(issuer)


def away() -> Answer:
    return 503, {}, b"later"


def hanging(issuer: OidcIssuer) -> Callable[[], Answer]:
    """What comes only once the issuer is told to go on."""

    def hang() -> Answer:
        issuer.hangs.wait(LIMIT_S)
        return document({"issuer": issuer.url, "jwks_uri": f"{issuer.url}/keys"})

    return hang


def test_keys_are_asked_for_once_and_used_for_every_token(world: World) -> None:
    async def story() -> None:
        await asyncio.gather(*(world.comes_in() for _ in range(20)))
        await world.comes_in()

    run(story)
    assert world.issuer.asked == [DISCOVERY, "/keys"]


def test_unknown_keys_have_an_issuer_asked_now_and_then_and_no_more_often(world: World) -> None:
    world.issuer.keys["unknown"] = ec_key()
    token = world.token(key_id="unknown")
    del world.issuer.keys["unknown"]

    async def story() -> None:
        await world.comes_in()
        for _ in range(3):
            for _ in range(10):
                with pytest.raises(BadToken, match="does not have"):
                    await world.comes_in(token)
            world.clock.pass_ms(ATTEMPT_EVERY_MS)
        await world.comes_in()

    run(story)
    assert world.issuer.asked.count("/keys") == 3


def test_keys_are_kept_while_the_issuer_is_away_and_not_for_ever(world: World) -> None:
    async def story() -> None:
        await world.comes_in()
        world.issuer.answers = {DISCOVERY: away}
        world.clock.pass_ms(KEYS_KEPT_MS - 1)
        await world.comes_in()
        world.clock.pass_ms(1)
        with pytest.raises(Unavailable, match="cannot get the keys"):
            await world.comes_in()
        world.issuer.answers = {}
        with pytest.raises(Unavailable):
            await world.comes_in()  # it was asked just now
        world.clock.pass_ms(ATTEMPT_EVERY_MS)
        await world.comes_in()

    run(story)


def test_a_key_that_an_issuer_takes_back_is_refused_after_a_few_minutes(world: World) -> None:
    async def story() -> None:
        old = world.token(exp=world.clock.now_ms() // 1_000 + 3_600)
        await world.comes_in(old)
        world.issuer.rotate("k2")
        world.clock.pass_ms(KEYS_FRESH_MS - 1)
        await world.comes_in(old)
        assert world.issuer.asked.count("/keys") == 1
        world.clock.pass_ms(1)
        await world.comes_in(old)  # the caller does not wait for the look that begins now

        async def is_refused() -> bool:
            try:
                await world.comes_in(old)
            except BadToken:
                return True
            return False

        await until(is_refused, "the old key is refused")

    run(story)


def test_the_machines_clock_may_step_without_a_key_being_lost(world: World) -> None:
    async def story() -> None:
        await world.comes_in()
        world.clock.wall += 10 * KEYS_KEPT_MS
        await world.comes_in()
        world.clock.wall -= 20 * KEYS_KEPT_MS
        await world.comes_in()

    run(story)
    assert world.issuer.asked.count("/keys") == 1


def test_an_issuer_that_was_away_at_the_start_is_asked_again_and_logged_once(world: World) -> None:
    world.issuer.answers = {DISCOVERY: away}

    async def story() -> None:
        looking = asyncio.ensure_future(world.issuers.run())
        await until(lambda: world.issuer.asked, "it is asked before any caller comes")
        for _ in range(3):
            world.clock.pass_ms(ATTEMPT_EVERY_MS)
            with pytest.raises(Unavailable):
                await world.comes_in()
        world.issuer.answers = {}
        world.clock.pass_ms(ATTEMPT_EVERY_MS)
        await world.comes_in()
        looking.cancel()

    with capture_logs() as lines:
        run(story)
    assert [line["event"] for line in lines] == ["issuer_keys_not_fetched", "issuer_keys_fetched"]
    assert "503" in lines[0]["why"]


def _redirect(issuer: OidcIssuer) -> Answer:
    return 302, {"Location": f"{issuer.url}/elsewhere"}, b""


BAD_ANSWERS: dict[str, Callable[[OidcIssuer], Answer]] = {
    "redirects": _redirect,
    "answers with an error": lambda _: away(),
    "answers HTML": lambda _: (200, {"Content-Type": "text/html"}, b"<html>log in</html>"),
    "answers 10 MB": lambda _: (200, {}, b" " * 10_000_000),
    "answers a list": lambda _: document([]),
    "answers null": lambda _: document(None),
    "answers nothing": lambda _: (200, {}, b""),
    "answers no text": lambda _: (200, {}, b"\xff\xfe\x00"),
    "nests without end": lambda _: (200, {}, b"[" * 100_000),
    "compresses": lambda _: (200, {"Content-Encoding": "gzip"}, b"\x1f\x8b\x08"),
}


@pytest.mark.parametrize("path", [DISCOVERY, "/keys"])
@pytest.mark.parametrize("what", BAD_ANSWERS)
def test_an_issuer_that_answers_something_else_lets_none_in_and_breaks_nothing(
    world: World, what: str, path: str
) -> None:
    world.issuer.answers = {path: lambda: BAD_ANSWERS[what](world.issuer)}

    async def story() -> None:
        with pytest.raises(Unavailable):
            await world.comes_in()
        world.issuer.answers = {}
        world.clock.pass_ms(ATTEMPT_EVERY_MS)
        await world.comes_in()

    run(story)
    assert "/elsewhere" not in world.issuer.asked


@pytest.mark.parametrize(
    "keys",
    [
        None,
        {},
        "x",
        [],
        [{"kty": "oct", "kid": "s", "k": "AAAA"}],
        [jwk(ec_key(), None)],
        [jwk(ec_key(), f"k{number}") for number in range(KEYS_MAX + 1)],
    ],
    ids=["none", "table", "text", "empty", "secret", "nameless", "too many"],
)
def test_a_key_set_without_a_key_that_can_be_used_is_as_good_as_none(
    world: World, keys: object
) -> None:
    world.issuer.answers = {"/keys": lambda: document({"keys": keys})}

    async def story() -> None:
        with pytest.raises(Unavailable):
            await world.comes_in()

    run(story)


@pytest.mark.parametrize(
    "url",
    [
        None,
        7,
        "",
        "keys",
        "file:///etc/passwd",
        "data:application/json,{}",
        "ftp://127.0.0.1/keys",
        "http://login.example.com/keys",
        "http://192.0.2.1/keys",
        "http://127.0.0.1.example.com/keys",
        "http://127.0.0.1@192.0.2.1/keys",
        "https://ann:secret@login.example.com/keys",
        "http://[::1/keys",
        "http://127.0.0.1:0/keys",
        "http://127.0.0.1:99999/keys",
        "http://127.0.0.1/k\r\nHost: x",
    ],
)
def test_keys_are_never_asked_for_in_the_clear_or_at_what_is_no_place(
    world: World, url: object
) -> None:
    said = {"issuer": world.issuer.url, "jwks_uri": url}
    world.issuer.answers = {DISCOVERY: lambda: document(said)}

    async def story() -> None:
        with pytest.raises(Unavailable):
            await world.comes_in()

    with capture_logs() as lines:
        run(story)
    assert "names no https URL" in lines[0]["why"]


def test_a_document_of_another_issuer_is_not_believed(world: World) -> None:
    said = {"issuer": f"{world.issuer.url}/", "jwks_uri": f"{world.issuer.url}/keys"}
    world.issuer.answers = {DISCOVERY: lambda: document(said)}

    async def story() -> None:
        with pytest.raises(Unavailable):
            await world.comes_in()

    run(story)
    assert world.issuer.asked == [DISCOVERY]


@pytest.mark.parametrize("path", [DISCOVERY, "/keys"])
def test_an_issuer_that_hangs_is_given_up(issuer: OidcIssuer, path: str) -> None:
    world = World(issuer, limit_s=SHORT_S)
    issuer.answers = {path: hanging(issuer)}

    async def story() -> None:
        with pytest.raises(Unavailable):
            await world.comes_in()

    run(story)


@pytest.mark.parametrize("path", [DISCOVERY, "/keys"])
def test_those_whose_issuer_hangs_later_do_not_wait_for_it(world: World, path: str) -> None:
    async def story() -> None:
        await world.comes_in()
        world.issuer.answers = {path: hanging(world.issuer)}
        world.clock.pass_ms(KEYS_FRESH_MS)
        await asyncio.gather(*(world.comes_in() for _ in range(20)))
        await world.issuers.close()

    run(story)


def test_the_event_loop_turns_while_an_issuer_hangs(issuer: OidcIssuer) -> None:
    world = World(issuer)

    issuer.answers = {DISCOVERY: hanging(issuer)}

    async def story() -> None:
        coming = asyncio.ensure_future(world.comes_in())
        await until(lambda: issuer.asked, "the issuer is asked")
        for _ in range(100):  # a loop that stood still would never come to the end of this
            await asyncio.sleep(0)
        assert not coming.done()
        issuer.hangs.set()
        assert isinstance(await coming, Access)

    run(story)


def test_a_caller_who_leaves_does_not_end_the_look_that_others_wait_for(issuer: OidcIssuer) -> None:
    world = World(issuer)

    issuer.answers = {DISCOVERY: hanging(issuer)}

    async def story() -> None:
        leaving, staying = (asyncio.ensure_future(world.comes_in()) for _ in range(2))
        await until(lambda: issuer.asked, "the issuer is asked")
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        issuer.hangs.set()
        assert isinstance(await staying, Access)

    run(story)
    assert issuer.asked == [DISCOVERY, "/keys"]


def test_an_answer_that_drips_or_ends_early_is_not_waited_for(issuer: OidcIssuer) -> None:
    def drops() -> Iterator[bytes]:
        while not issuer.hangs.wait(DRIP_S):
            yield b" "

    issuer.answers = {
        "/drips": lambda: (200, {}, drops()),
        "/ends": lambda: (200, {"Content-Length": "1000"}, b"{}"),
    }

    async def story() -> None:
        with pytest.raises(NotFetched, match="has not answered within"):
            await Fetcher(limit_s=SHORT_S).fetch(f"{issuer.url}/drips")
        with pytest.raises(NotFetched, match="cannot be asked"):
            await Fetcher().fetch(f"{issuer.url}/ends")

    run(story)


def test_a_document_of_the_largest_size_is_taken(issuer: OidcIssuer) -> None:
    content = json.dumps({"a": 1}).encode()
    issuer.answers = {"/x": lambda: (200, {}, content.ljust(DOCUMENT_BYTES_MAX))}
    issuer.answers["/y"] = lambda: (200, {}, content.ljust(DOCUMENT_BYTES_MAX + 1))

    async def story() -> None:
        assert await Fetcher().fetch(f"{issuer.url}/x") == {"a": 1}
        with pytest.raises(NotFetched, match="more than"):
            await Fetcher().fetch(f"{issuer.url}/y")

    run(story)


def test_no_proxy_of_the_environment_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with issuing() as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.upper(), proxy.url)

        async def story() -> None:
            await world.comes_in()

        run(story)
        assert proxy.asked == []


def test_how_old_the_keys_of_an_issuer_are_can_be_alerted_on(world: World) -> None:
    def age_s() -> float:
        (family,) = world.issuers.collect()
        (sample,) = family.samples
        assert sample.labels == {"issuer": world.issuer.url}
        return sample.value

    async def story() -> None:
        assert age_s() == -1
        await world.comes_in()
        world.clock.pass_ms(90_000)
        assert age_s() == 90

    run(story)
