"""Where the endpoint is (contract 5): what was told, what was found before, what can be found.

In this order: the argument, FOREWARN_ENDPOINT, SCHEDULEDEVENTSIP (D6), what a cache holds,
169.254.169.254, option 245 in lease files, option 245 from a DHCP server. The argument and
FOREWARN_ENDPOINT are final: a client that was told an address asks no other, because an approval
that goes to another endpoint than the one that was meant does harm. All others are probed first.
"""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from forewarn_guest import dhcp, http1, leases
from forewarn_guest.document_reader import newest_versions, read_document
from forewarn_guest.errors import BadAnswer, EndpointError, NotFound

TOLD = "FOREWARN_ENDPOINT"
STORED = "SCHEDULEDEVENTSIP"
LINK_LOCAL = "http://169.254.169.254"
# Outside a cloud nothing takes the connection, and every start would cost this (section 8, 31).
PROBE_CONNECT_S = 1.0
# An endpoint that takes the connection may need two minutes for its first answer ever (L2).
PROBE_READ_S = 120.0
PROBE_VERSION = "2020-07-01"
CACHE_BYTES_MAX = 4096
# Where samples look for the service at an address of option 245 (D7, D8).
OPTION_PORTS = (80, 8080)

# Statuses of an endpoint that is there and cannot answer now (E10, E13 to E15).
_BUSY = (408, 410, 429)


@dataclass(frozen=True)
class Try:
    """One candidate: where it came from, its address (or empty), and what came of it."""

    source: str
    url: str
    outcome: str
    good: bool = False


@dataclass(frozen=True)
class Discovery:
    """Every try in order. The last one is good, if any is."""

    tries: tuple[Try, ...]

    @property
    def url(self) -> str:
        """The address of the endpoint. Raises NotFound, with all tries, if none is good."""
        for one in self.tries:
            if one.good:
                return one.url
        tried = "; ".join(
            f"{one.source} {one.url}".strip() + f": {one.outcome}" for one in self.tries
        )
        raise NotFound(
            f"No endpoint was found ({tried}).",
            f"Say where it is, as an argument or by {TOLD}=http://ADDRESS.",
        )

    @property
    def told(self) -> bool:
        """True if the user gave the address, so that the client never asks another one."""
        return any(one.good and one.source in ("argument", TOLD) for one in self.tries)


def discover(
    argument: str = "",
    *,
    environment: Mapping[str, str] | None = None,
    cache: Path | None = None,
    bell: http1.Bell | None = None,
    probe: Callable[[str], str] | None = None,
    options: Callable[[], Iterator[tuple[str, str]]] | None = None,
) -> Discovery:
    """Looks for the endpoint; stops at the first that answers. Returns every try.

    The answer goes into the file `cache`, if one is given, and is probed again before it is used.
    Ends within PROBE_CONNECT_S for a candidate where nothing is; within PROBE_READ_S where
    something takes the connection and is slow; by Stopped as soon as the bell rings. `probe` and
    `options` (pairs of where from and address) take the place of the network and of the files of
    this machine.
    """
    told = os.environ if environment is None else environment
    for source, url in (("argument", argument), (TOLD, told.get(TOLD, ""))):
        if url:
            return Discovery((_told(source, url),))
    with http1.bell_of() as quiet:
        rung = bell or quiet
        return _searched(
            _candidates(told, cache, options or (lambda: machine_options(rung))),
            probe or (lambda url: probed(url, bell=rung)),
            cache,
        )


def _searched(
    candidates: Iterable[Try], probe: Callable[[str], str], cache: Path | None
) -> Discovery:
    tries: list[Try] = []
    seen: set[str] = set()
    for candidate in candidates:
        if candidate.url in seen:
            continue
        if not candidate.url:
            tries.append(candidate)
            continue
        seen.add(candidate.url)
        tries.append(_probed(candidate, probe))
        if tries[-1].good:
            if cache is not None and candidate.source != "cache":
                tries[-1:-1] = _cached(cache, candidate.url)
            break
    return Discovery(tuple(tries))


def probed(url: str, *, bell: http1.Bell, read_s: float = PROBE_READ_S) -> str:
    """A sentence about the endpoint at that address. Raises EndpointError if it finds none there.

    There is one if a GET returns JSON with Events (D1), or says that it cannot answer now in the
    way of this service: 410, 429, 5xx, an empty 200 (G8), or a refusal of the version.
    """
    address = http1.Address.of(url)
    connection = http1.Connection(address, connect_s=PROBE_CONNECT_S)
    target = f"/metadata/scheduledevents?api-version={PROBE_VERSION}"
    try:
        answer = connection.ask(http1.Request(target), read_s=read_s, bell=bell)
    finally:
        connection.close()
    if answer.status == 200:
        document = read_document(
            answer.body,
            api_version=PROBE_VERSION,
            received_s=answer.received_s,
            headers=answer.headers,
        )
        return "answers" if document else "answers, with nothing yet"
    if answer.status in _BUSY or answer.status >= 500:
        return f"is there and busy ({answer.status})"
    if answer.status in (400, 404) and newest_versions(answer.body):
        return f"answers, and knows other versions than {PROBE_VERSION}"
    raise BadAnswer(f"It answered {answer.status}, which no Scheduled Events endpoint would.")


def machine_options(bell: http1.Bell) -> Iterator[tuple[str, str]]:
    """Option 245 of this machine: from lease files, and then from DHCP servers.

    Pairs of where from, and an address or a sentence that says why it is missing.
    """
    files = 0
    for lease in leases.leases():
        files += 1
        if lease.address:
            yield f"lease {lease.path}", lease.address
    if not files:
        yield "leases", "no lease file of a DHCP client can be read"
    asked = dhcp.interfaces()
    if not asked:
        yield "dhcp", "no Ethernet interface is up"
    for heard in dhcp.ask(asked, secrets.token_bytes(4), bell):
        yield f"dhcp {heard.interface}", heard.address or heard.why


def read_cache(path: Path) -> str:
    """The address in a cache file, or empty: what cannot be read is looked for again."""
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(CACHE_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return ""
    url = content.get("url") if isinstance(content, dict) else None
    return url if isinstance(url, str) and url.startswith("http://") else ""


def _told(source: str, url: str) -> Try:
    try:
        return Try(source, http1.Address.of(url).url, "is used as told", good=True)
    except NotFound as error:
        return Try(source, "", str(error))


def _candidates(
    told: Mapping[str, str],
    cache: Path | None,
    options: Callable[[], Iterable[tuple[str, str]]],
) -> Iterator[Try]:
    """The tries that follow. One without a URL says why it has no URL."""
    if told.get(STORED):
        stored = _told(STORED, told[STORED])
        yield stored if not stored.good else Try(STORED, stored.url, "")
    if cache is not None:
        yield Try("cache", read_cache(cache), "holds no address")
    yield Try("link-local", LINK_LOCAL, "")
    for source, found in options():
        address = leases.read_address(found)
        if not address:
            yield Try(source, "", found)
            continue
        for port in OPTION_PORTS:
            yield Try(source, http1.Address(address, port).url, "")


def _probed(candidate: Try, probe: Callable[[str], str]) -> Try:
    try:
        outcome = probe(candidate.url)
    except EndpointError as error:
        return Try(candidate.source, candidate.url, error.message)
    return Try(candidate.source, candidate.url, outcome, good=True)


def _cached(path: Path, url: str) -> list[Try]:
    """Writes the cache whole or not at all; a try that says why, if that cannot be done."""
    try:
        number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=str(path.parent))
        try:
            with os.fdopen(number, "w", encoding="ascii") as file:
                json.dump({"url": url}, file)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink()
            raise
    except OSError as error:
        return [Try("cache", "", f"could not be written: {(error.strerror or str(error)).lower()}")]
    return []
