"""What a run of the kit is allowed to do, and how it reaches the operator of the endpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

Profile = Literal["forewarn", "azure"]
PROFILES: tuple[Profile, ...] = ("forewarn", "azure")

# R1 allows five requests per second; others on the VM ask too.
PACE_PER_S = 4.0
TIMEOUT_S = 10.0
HTTP_PORT = 80


class BadOptions(Exception):  # noqa: N818 - says what is the case
    """The run was asked for in a way that cannot be done; the text says what would be."""


class OperatorFailed(Exception):  # noqa: N818 - says what is the case
    """What schedules, cancels or turns the clock did not work; the text says how."""


def _ignore(_: str) -> None:
    """For callers that want no announcements."""


def _agree(_: str) -> bool:
    """For callers without a terminal: naming an event says yes."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """See `forewarn verify --help`; the defaults only read.

    `operator` schedules an event of a type for a VM, `cancel` cancels one by its EventId,
    `advance` turns the endpoint's clock by seconds; each raises OperatorFailed if it could not.
    An operator implies `approve`: events that were scheduled for the run are approved by it.
    Without one, `approve` approves a Scheduled event whose Resources are this VM alone, or the one
    that `approve_event` names, if the operator agrees (`agree`). `announce` is told what is done
    to events that are not the run's own, and what is left of it; `progress` what is waited for.
    `wait` lets real time pass, where no clock can be turned. `only` and `skip` hold ids or topics.
    """

    approve: bool = False
    approve_event: str | None = None
    burst: bool = False
    operator: Callable[[str, str], None] | None = None
    cancel: Callable[[str], None] | None = None
    advance: Callable[[int], None] | None = None
    types: tuple[str, ...] = ("Reboot",)
    vm: str | None = None
    profile: Profile = "forewarn"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    pace_per_s: float = PACE_PER_S
    timeout_s: float = TIMEOUT_S
    announce: Callable[[str], None] = _ignore
    progress: Callable[[str], None] = _ignore
    agree: Callable[[str], bool] = _agree
    wait: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class EndpointAddress:
    """Where the endpoint is: the address to connect to, and what every path begins with."""

    url: str
    host: str
    port: int
    authority: str
    prefix: str


def target_of(url: str) -> EndpointAddress:
    """The endpoint that a URL means. The path may be left out or lead to the document itself."""
    accepted = "http://ADDRESS[:PORT], for instance http://169.254.169.254, would be accepted"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or HTTP_PORT
    except ValueError as error:
        raise BadOptions(f"{url} is no URL: {error}; {accepted}.") from None
    if parts.scheme != "http":
        # P1: plain HTTP only.
        raise BadOptions(f"{url} is not plain HTTP, which is all the service speaks; {accepted}.")
    if not parts.hostname:
        raise BadOptions(f"{url} names no address; {accepted}.")
    if any(ord(c) <= 32 or ord(c) > 126 for c in parts.netloc + parts.path):
        raise BadOptions(f"{url} holds characters that no request line can carry; {accepted}.")
    prefix = parts.path.partition("/metadata")[0].rstrip("/")
    authority = parts.netloc.rpartition("@")[2]
    return EndpointAddress(f"http://{authority}{prefix}", parts.hostname, port, authority, prefix)
