"""Callers of the operator API with tokens of their own, and people at the console. No test here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import urlencode

from support.operator_world import Answer, OperatorWorld


def token_of(
    world: OperatorWorld, name: str, role: str, *scopes: str, valid_s: int = 86_400
) -> str:
    """A new token, as its owner gets it."""
    said = {"name": name, "role": role, "scopes": list(scopes), "valid_seconds": valid_s}
    token: str = world.order("/v1/tokens", {**said, "later": True})["token"]
    return token


def id_of(token: str) -> str:
    return token.split("_")[1]


class Browser:
    """A person at the console, let in by a link that was asked for with a token."""

    def __init__(self, world: OperatorWorld, token: str) -> None:
        self.world = world
        path = world.call("POST", "/v1/console/links", token=token).json["path"]
        entered = world.call("GET", path, token=None, headers=self._host)
        self._cookie = entered.headers["set-cookie"].partition(";")[0]

    @property
    def _host(self) -> dict[str, str]:
        return {"Host": f"127.0.0.1:{self.world.port}"}

    def get(self, path: str) -> Answer:
        headers = {**self._host, "Cookie": self._cookie}
        return self.world.call("GET", path, token=None, headers=headers)

    def post(self, path: str, fields: Mapping[str, str]) -> Answer:
        """Send a form, with the secret that each form of the session has."""
        secret = re.search(
            r'name="form_secret" value="([^"]+)"', self.get("/console/").body.decode()
        )
        assert secret is not None
        said = urlencode({"form_secret": secret[1], **fields})
        headers = {
            **self._host,
            "Cookie": self._cookie,
            "Origin": self.world.url,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        return self.world.call("POST", path, said, token=None, headers=headers)
