"""A person at the console without a browser: requests as one sends them, forms as a page has them.

No test lives here.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urlencode, urlsplit

from support.console_world import ConsoleWorld

WAIT_S = 60.0


@dataclass(frozen=True)
class Shown:
    """What the console answered."""

    status: int
    headers: Mapping[str, str]  # by their small names
    text: str

    @property
    def location(self) -> str:
        return self.headers.get("location", "")


class Plain:
    """One session, or none yet; `cookie` is what a browser would send along."""

    def __init__(self, world: ConsoleWorld) -> None:
        parts = urlsplit(world.url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        self.origin = world.url
        self.cookie = ""

    def ask(
        self,
        method: str,
        path: str,
        fields: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Shown:
        """One request. A POST says that it comes from a page of the console, unless told else."""
        sent = {"Cookie": self.cookie} if self.cookie else {}
        body = None
        if fields is not None:
            body = urlencode(fields)
            sent |= {"Origin": self.origin, "Sec-Fetch-Site": "same-origin"}
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        sent |= headers or {}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=WAIT_S)
        try:
            connection.request(method, path, body, {k: v for k, v in sent.items() if v})
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Shown(answer.status, named, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Shown:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, fields: Mapping[str, str]) -> Shown:
        return self.ask("POST", path, fields)

    def take_cookie(self, shown: Shown) -> None:
        self.cookie = shown.headers["set-cookie"].partition(";")[0]

    def form(self, path: str, action: str = "") -> dict[str, str]:
        """The hidden fields of the last POST form of a page, or of the one with that action."""
        return fields_of(self.get(path).text, action)


def entered(world: ConsoleWorld, token: str = "") -> Plain:
    """Somebody with a session; without a token, the operator."""
    plain = Plain(world)
    said = {"token": token or world.token, "to": ""}
    plain.take_cookie(plain.post("/console/login", said))
    return plain


class _Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.forms: list[tuple[str, dict[str, str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        if tag == "form" and said.get("method") == "post":
            self.forms.append((said.get("action", ""), {}))
        elif tag == "input" and said.get("type") == "hidden" and self.forms:
            self.forms[-1][1][said["name"]] = said["value"]


def fields_of(text: str, action: str = "") -> dict[str, str]:
    """The hidden fields of a POST form in a page."""
    reader = _Forms()
    reader.feed(text)
    return dict([found for at, found in reader.forms if action in at][-1])


def forms_of(text: str) -> list[tuple[str, dict[str, str]]]:
    """Every POST form of a page: where it leads, and its hidden fields."""
    reader = _Forms()
    reader.feed(text)
    return reader.forms
