"""An emulator with a console, for tests: a small fleet with names that are an attack.

No test lives here.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from forewarn.testing import Cloud

START = "2026-03-03T10:00:00Z"
# What would run if any page showed it as anything but text.
SCRIPT = "<script>document.title='owned'</script><img src=x onerror=document.title='owned'>"
BREAKS_OUT = "\"'><svg onload=document.title='owned'>"

FLEET = f"""
[[host]]
name = "h1"
capacity = 9
[[host]]
name = "h2"
capacity = 9
[[host]]
name = "h3"
capacity = 9
[[scope]]
name = "web"
kind = "availability-set"
[[scope]]
name = "db"
kind = "availability-set"
[[vm]]
name = "web-0"
host = "h1"
scope = "web"
update_domain = 0
listen = "127.0.0.1:0"
tags = {{ owner = "{SCRIPT}", note = "<b>bold</b>" }}
[[vm]]
name = "web-1"
host = "h2"
scope = "web"
update_domain = 1
listen = "127.0.0.1:0"
[[vm]]
name = "db-0"
host = "h1"
scope = "db"
update_domain = 0
listen = "127.0.0.1:0"
[[vm]]
name = "lonely"
host = "h3"
listen = "127.0.0.1:0"
"""


def call(url: str, token: str, method: str, path: str, content: object = None) -> Any:
    """What a program orders or asks by the operator API."""
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"{url}{path}", data=body, method=method)
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@dataclass
class ConsoleWorld:
    """A fleet whose clock stands, and what programs order of it."""

    cloud: Cloud

    @property
    def url(self) -> str:
        return self.cloud.operator_url

    @property
    def token(self) -> str:
        return self.cloud.operator_token

    def order(self, path: str, **said: object) -> Any:
        return call(self.url, self.token, "POST", f"/v1/{path}", said)

    def ask(self, path: str) -> Any:
        return call(self.url, self.token, "GET", f"/v1/{path}")

    def token_for(self, role: str, *scopes: str, name: str = "") -> str:
        """A token of somebody with that role."""
        said = {"name": name or f"the {role}", "role": role, "scopes": list(scopes)}
        return str(self.order("tokens", **said)["token"])

    def maintain(self, host: str, event_type: str = "Reboot", **said: object) -> list[str]:
        """Maintenance of a host: the ids of its events."""
        answer = self.order(f"hosts/{host}/maintain", event_type=event_type, **said)
        found = self.ask("events")["items"]
        mine = answer["operation_id"]
        return [one["event_id"] for one in found if one["operation_id"] == mine]


@contextmanager
def console_world(**words: Any) -> Iterator[ConsoleWorld]:
    with Cloud(inventory=FLEET, start=START, operator_name="ops", seed=7, **words) as cloud:
        yield ConsoleWorld(cloud)
