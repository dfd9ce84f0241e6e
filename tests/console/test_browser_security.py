"""The gate of the console: links, cookies, headers, forms. No browser: it runs everywhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from forewarn.api.console import browser_security
from forewarn.api.console.sessions import CODE_S, CodeRefused, CodeUsed, Sessions
from forewarn.core.access import Access, Role
from forewarn.core.principal import OPERATOR
from support.console_forms import Plain, entered, fields_of, forms_of
from support.console_world import ConsoleWorld, console_world

ADMIN = Access(principal=OPERATOR, role=Role.ADMIN)
PAGES = (
    "/console/",
    "/console/fleet",
    "/console/hosts",
    "/console/hosts/h1",
    "/console/timeline",
    "/console/inbox",
    "/console/journal",
    "/console/access",
    "/console/emulator",
    "/console/orders/host-close/h1",
)


@pytest.fixture(scope="module")
def world() -> Iterator[ConsoleWorld]:
    with console_world() as found:
        yield found


@pytest.fixture
def operator(world: ConsoleWorld) -> Plain:
    return entered(world)


# Links.


def test_a_link_opens_the_console_once_and_is_no_token(world: ConsoleWorld) -> None:
    answer = world.order("console/links")
    plain = Plain(world)
    first = plain.get(answer["path"])
    assert first.status == 200
    assert answer["valid_seconds"] == CODE_S
    again = Plain(world).get(answer["path"])
    assert again.status == 403
    assert "was used before" in again.text
    code = answer["path"].rpartition("=")[2]
    refused = plain.ask("GET", "/v1/health", headers={"Authorization": f"Bearer {code}"})
    assert refused.status == 401
    assert "Set-Cookie".lower() not in again.headers


def test_a_code_is_good_for_a_minute_and_not_longer() -> None:
    now_s = 0.0
    sessions = Sessions(now_s=lambda: now_s)
    kept, late = sessions.make_code(ADMIN, "a test"), sessions.make_code(ADMIN, "a test")
    now_s = CODE_S
    assert sessions.find(sessions.enter(kept)) is not None
    with pytest.raises(CodeUsed):
        sessions.enter(kept)
    now_s = CODE_S + 0.1
    with pytest.raises(CodeRefused):
        sessions.enter(late)


def test_a_link_that_a_browser_only_prefetches_stays_good(world: ConsoleWorld) -> None:
    path = world.order("console/links")["path"]
    assert Plain(world).get(path, **{"Sec-Purpose": "prefetch;prerender"}).status == 503
    assert Plain(world).get(path).status == 200


# Sessions.


def test_the_cookie_is_strict_and_out_of_reach_of_scripts(world: ConsoleWorld) -> None:
    plain = Plain(world)
    shown = plain.post("/console/login", {"token": world.token, "to": ""})
    cookie = shown.headers["set-cookie"]
    for word in ("HttpOnly", "SameSite=Strict", "Path=/console", "Max-Age="):
        assert word in cookie
    assert cookie.startswith(f"forewarn_{plain.port}="), "ports of one machine share cookies"
    assert world.token not in shown.text + cookie


def test_without_a_session_each_page_asks_who_it_is_and_shows_nothing(world: ConsoleWorld) -> None:
    for path in PAGES:
        shown = Plain(world).get(path)
        assert (shown.status, "h1" in shown.text) == (303, False), path
        assert shown.location.startswith("/console/login?to=%2Fconsole")


def test_after_logging_out_the_cookie_opens_nothing(world: ConsoleWorld, operator: Plain) -> None:
    fields = operator.form("/console/", "logout")
    assert operator.post("/console/logout", fields).status == 303
    assert operator.get("/console/").status == 303


def test_a_session_ends_with_the_token_that_opened_it(world: ConsoleWorld) -> None:
    token = world.token_for("viewer", name="leaver")
    leaver = entered(world, token)
    assert leaver.get("/console/").status == 200
    world.order("tokens/leaver/revoke")
    assert leaver.get("/console/").status == 303
    assert leaver.get("/console/stream?on=now").status == 401


def test_a_wrong_token_opens_nothing_and_ten_of_them_wait(world: ConsoleWorld) -> None:
    with console_world() as own:
        plain = Plain(own)
        for _ in range(10):
            assert plain.post("/console/login", {"token": "no", "to": ""}).status == 403
        shown = plain.post("/console/login", {"token": own.token, "to": ""})
        assert (shown.status, "set-cookie" in shown.headers) == (403, False)
        assert "Try again in a minute" in shown.text


def test_after_login_only_pages_of_the_console_are_gone_on_to(world: ConsoleWorld) -> None:
    for to in ("https://evil.example/", "//evil.example", "/v1/health", "/console/..\\x"):
        shown = Plain(world).post("/console/login", {"token": world.token, "to": to})
        assert 'url=/console/"' in shown.text, to
        assert "evil" not in shown.text


# Headers.


@pytest.mark.parametrize("path", [*PAGES, "/console/login", "/console/nosuch"])
def test_every_answer_says_that_nothing_but_our_own_script_runs(operator: Plain, path: str) -> None:
    shown = operator.get(path)
    policy = shown.headers["content-security-policy"]
    assert policy == browser_security.CSP
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert shown.headers["x-content-type-options"] == "nosniff"
    assert shown.headers["cache-control"] == "no-store"
    assert re.search(r"<script(?! src=)|<style|\son\w+=|\sstyle=", shown.text) is None
    assert re.search(r"(src|href|action)=\"(https?:)?//", shown.text) is None


def test_a_name_that_another_site_may_have_is_refused(world: ConsoleWorld) -> None:
    shown = entered(world).get("/console/", Host="console.example.com")
    assert (shown.status, "console_names" in shown.text) == (403, True)


# Forms.


def test_only_a_post_changes_anything(world: ConsoleWorld, operator: Plain) -> None:
    before = world.ask("health")
    for path in ("/console/logout", "/console/emulator/advance?by=1d", "/console/sessions/1/end"):
        assert operator.get(path).status in (404, 405)
    asked = operator.get("/console/orders/host-close/h1?key=x&seen=y&form_secret=z")
    assert asked.status == 200
    assert world.ask("hosts/h1")["closed"] is False
    assert world.ask("health")["open_events"] == before["open_events"]
    for method in ("PUT", "DELETE", "PATCH"):
        assert operator.ask(method, "/console/orders/host-close/h1").status == 405


def test_each_form_has_the_secret_of_its_session_and_orders_their_key(
    operator: Plain, world: ConsoleWorld
) -> None:
    other = entered(world)
    for path in PAGES:
        mine, theirs = forms_of(operator.get(path).text), forms_of(other.get(path).text)
        assert mine
        for (action, fields), (_, foreign) in zip(mine, theirs, strict=True):
            if "sessions/" not in action:
                assert fields["form_secret"] != foreign["form_secret"]
            if action.startswith("/console/orders/"):
                assert re.fullmatch(r"[0-9a-f-]{36}", fields["key"])
                assert fields["seen"]


@pytest.mark.parametrize("changed", ["form_secret", "key", "seen"])
def test_a_form_that_is_not_ours_or_not_whole_orders_nothing(
    operator: Plain, world: ConsoleWorld, changed: str
) -> None:
    path = "/console/orders/host-close/h2"
    fields = operator.form(path, path)
    del fields[changed]
    assert operator.post(path, fields).status in (400, 403)
    assert world.ask("hosts/h2")["closed"] is False


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1:1", "Sec-Fetch-Site": "same-site"},
        {"Origin": "null"},
        {"Origin": "", "Sec-Fetch-Site": ""},
        {"Content-Type": "text/plain"},
    ],
)
def test_a_form_that_another_page_sends_orders_nothing_even_with_the_cookie(
    operator: Plain, world: ConsoleWorld, headers: dict[str, str]
) -> None:
    path = "/console/orders/host-close/h2"
    fields = operator.form(path, path)
    assert operator.ask("POST", path, fields, headers).status in (400, 403)
    assert world.ask("hosts/h2")["closed"] is False


def test_the_same_form_sent_twice_is_one_order(world: ConsoleWorld, operator: Plain) -> None:
    path = "/console/orders/vm-restart/lonely"
    fields = fields_of(operator.get(f"{path}?look=yes").text, path)
    first, second = operator.post(path, fields), operator.post(path, fields)
    assert (first.status, second.status) == (303, 303)
    assert first.location == second.location
    events = world.ask("events?vm=lonely")["items"]
    assert len(events) == 1
    world.order(f"events/{events[0]['event_id']}/cancel")


def test_a_secret_is_shown_once_also_if_its_form_is_sent_again(
    world: ConsoleWorld, operator: Plain
) -> None:
    path = "/console/orders/token-make/new"
    asked = {"name": "shown once", "role": "viewer"}
    fields = fields_of(operator.get(f"{path}?name=shown+once&role=viewer&look=yes").text, path)
    first, second = operator.post(path, fields | asked), operator.post(path, fields | asked)
    [secret] = re.findall(r"fwt_[a-z2-7]{10}_[a-z2-7]{40}", first.text)
    assert "fwt_" not in re.sub(r"fwt_[a-z2-7]{10}\b(?!_)", "", second.text)
    assert entered(world, secret).get("/console/").status == 200
    assert secret not in operator.get("/console/access").text


# What is written down.


def test_neither_codes_nor_cookies_nor_tokens_are_written_down(
    world: ConsoleWorld, capfd: pytest.CaptureFixture[str]
) -> None:
    path = world.order("console/links")["path"]
    plain = Plain(world)
    plain.take_cookie(plain.get(path))
    code, cookie = path.rpartition("=")[2], plain.cookie.partition("=")[2]
    plain.get("/console/")
    plain.get(f"/console/enter?code={code}")
    plain.post("/console/login", {"token": world.token, "to": ""})
    written = "".join(capfd.readouterr())
    lines = str(world.ask("journal?limit=500"))
    for secret in (code, cookie, world.token):
        assert secret not in written + lines


def test_every_page_that_the_guide_names_is_in_the_menu(operator: Plain) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "console.md").read_text(encoding="utf-8")
    named = set(re.findall(r"\*\*([A-Z][a-z]+)\*\*", guide))
    text = operator.get("/console/").text
    tabs = text[text.index("<nav") : text.index("</nav>")]
    menu = dict(re.findall(r'<a href="(/console/\w*)"[^>]*>(\w+)', tabs))
    assert {"Now", "Fleet", "Timeline", "Inbox", "Journal", "Access", "Emulator"} == named
    assert named == set(menu.values())
    assert [operator.get(path).status for path in menu] == [200] * len(menu)
