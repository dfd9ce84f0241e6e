"""Webhooks on the pages of the console: an admin adds, tests and removes them by forms alone."""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import Iterator, Mapping
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest

from support.operator_world import CALL_TIMEOUT_S, TOKEN, OperatorWorld, running
from support.webhook_world import receiving, says

URL = "https://hooks.example.com/x?a=b"
HIDDEN = re.compile(r'<input type="hidden" name="([a-z_]+)" value="([^"]*)"')


class Person:
    """A browser without script, in which an operator has come in."""

    def __init__(self, world: OperatorWorld, token: str | None = None) -> None:
        self._port = world.port
        link = world.call("POST", "/v1/console/links", token=token or TOKEN).json
        status, headers, _ = self._ask("GET", link["path"], cookie="")
        assert status == 200
        self._cookie = headers["set-cookie"].partition(";")[0]

    def _ask(
        self, method: str, path: str, said: Mapping[str, str] | None = None, *, cookie: str
    ) -> tuple[int, Mapping[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=CALL_TIMEOUT_S)
        headers = {"Cookie": cookie, "Origin": f"http://127.0.0.1:{self._port}"}
        body = None
        if said is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            body = urlencode(said)
        if method == "GET":
            del headers["Origin"]
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode()
        finally:
            connection.close()

    def get(self, path: str) -> tuple[int, str]:
        status, _, text = self._ask("GET", path, cookie=self._cookie)
        return status, text

    def post(self, path: str, said: Mapping[str, str]) -> tuple[int, str]:
        status, _, text = self._ask("POST", path, said, cookie=self._cookie)
        return status, text

    def hidden(self, text: str) -> dict[str, str]:
        """The hidden fields of the form that confirms, with which it is sent."""
        form = text[text.rindex('<form class="ask" method="post"') :]
        return {name: unescape(value) for name, value in HIDDEN.findall(form)}


@pytest.fixture
def world() -> Iterator[OperatorWorld]:
    with running() as made:
        yield made


def added(world: OperatorWorld) -> Any:
    return world.order("/v1/webhooks", {"name": "ops", "url": URL})


def test_a_webhook_is_made_after_its_effect_was_shown_and_its_secret_is_shown_once(
    world: OperatorWorld,
) -> None:
    person = Person(world)
    asked = urlencode({"name": "ops", "url": URL, "format": "text", "kinds": "started, failed"})
    status, text = person.get(f"/console/webhooks/add?{asked}")
    assert status == 200
    assert f"{URL} is sent lines of the kinds started, failed as text" in unescape(text)
    assert world.get("/v1/webhooks")["items"] == []
    said = person.hidden(text)
    status, text = person.post("/console/webhooks/add", said)
    assert status == 200
    assert "whsec_" in text
    status, again = person.post("/console/webhooks/add", said)  # the page is loaded again
    assert "whsec_" not in again
    (one,) = world.get("/v1/webhooks")["items"]
    assert (one["name"], one["kinds"]) == ("ops", ["started", "failed"])
    assert "ops" in person.get("/console/webhooks")[1]


def test_what_is_refused_is_said_beside_the_form_as_it_was_filled(world: OperatorWorld) -> None:
    person = Person(world)
    status, text = person.get("/console/webhooks/add?" + urlencode({"name": "ops"}))
    assert status == 400
    assert "A name or the URL is missing." in text
    near = {"name": "<script>", "url": "https://169.254.169.254/"}
    said = person.hidden(person.get(f"/console/webhooks/add?{urlencode(near)}")[1])
    status, text = person.post("/console/webhooks/add", said)
    assert status == 400
    assert "link-local" in text
    assert "<script>" not in text.partition("One more")[2]
    assert world.get("/v1/webhooks")["items"] == []


@pytest.mark.parametrize(
    ("verb", "condition"), [("disable", "disabled"), ("rotate", "ok"), ("replay", "ok")]
)
def test_an_order_is_confirmed_by_what_it_would_do(
    world: OperatorWorld, verb: str, condition: str
) -> None:
    webhook_id = added(world)["webhook_id"]
    person = Person(world)
    status, text = person.get(f"/console/webhooks/{webhook_id}/{verb}")
    assert status == 200
    assert unescape(text).count(URL) >= 1
    said = person.hidden(text) | ({"after": "end"} if verb == "replay" else {})
    status, _ = person.post(f"/console/webhooks/{webhook_id}/{verb}", said)
    assert status == (200 if verb == "rotate" else 303)
    assert world.get("/v1/webhooks/ops")["condition"] in (condition, "failing")


def test_a_removal_is_refused_if_the_webhook_has_changed_since_it_was_looked_at(
    world: OperatorWorld,
) -> None:
    path = f"/console/webhooks/{added(world)['webhook_id']}/remove"
    person = Person(world)
    said = person.hidden(person.get(path)[1])
    world.order("/v1/webhooks/ops/change", {"batch": 7})
    status, text = person.post(path, said)
    assert status == 409
    assert "Nothing was done." in text
    assert person.post(path, person.hidden(text))[0] == 303
    assert world.get("/v1/webhooks")["items"] == []


def test_a_form_without_the_secret_of_the_session_does_nothing(world: OperatorWorld) -> None:
    path = f"/console/webhooks/{added(world)['webhook_id']}/remove"
    person = Person(world)
    said = person.hidden(person.get(path)[1])
    assert person.post(path, {**said, "form_secret": "forged"})[0] == 403
    assert person.post(path, {k: v for k, v in said.items() if k != "key"})[0] == 400
    assert len(world.get("/v1/webhooks")["items"]) == 1


def test_the_test_button_says_what_came_back(world: OperatorWorld) -> None:
    async def story() -> tuple[str, int]:
        async with receiving() as receiver:
            receiver.then = says(200, body="<b>thanks</b>")
            body = {"name": "ops", "url": receiver.url, "kinds": ["started"]}
            made = await asyncio.to_thread(world.order, "/v1/webhooks", body)
            person = await asyncio.to_thread(Person, world)
            _, listed = await asyncio.to_thread(person.get, "/console/webhooks")
            form_secret = dict(HIDDEN.findall(listed))["form_secret"]
            status, _ = await asyncio.to_thread(
                person.post,
                f"/console/webhooks/{made['webhook_id']}/test",
                {"form_secret": form_secret},
            )
            _, text = await asyncio.to_thread(person.get, "/console/webhooks")
            assert len(receiver.received) == 1
            return text, status

    text, status = asyncio.run(story())
    assert status == 303
    assert "has taken the test (answered 200" in text
    assert "<b>thanks</b>" not in text


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_the_pages_are_an_admins_alone(world: OperatorWorld, role: str) -> None:
    webhook_id = added(world)["webhook_id"]
    token = world.order("/v1/tokens", {"name": role, "role": role})["token"]
    person = Person(world, token)
    for path in ("/console/webhooks", f"/console/webhooks/{webhook_id}/remove"):
        status, text = person.get(path)
        assert status == 403
        assert "hooks.example.com" not in text
