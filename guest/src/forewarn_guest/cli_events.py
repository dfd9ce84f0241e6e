"""The commands that ask the endpoint: list, watch, approve, discover."""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from forewarn_guest import config_file
from forewarn_guest.atomic_files import surely_missing
from forewarn_guest.changes import Change
from forewarn_guest.client import Client
from forewarn_guest.configuration import Configuration
from forewarn_guest.discovery import Discovery, discover, probed
from forewarn_guest.document import Document
from forewarn_guest.durations import duration
from forewarn_guest.errors import EndpointError, GuestError
from forewarn_guest.http1 import bell_of
from forewarn_guest.terminal import (
    event_shown,
    instant,
    names,
    plain,
    say,
    say_json,
    table,
    warn,
)


def configuration_of(options: argparse.Namespace) -> Configuration:
    """The configuration that was named; the usual one if it is there; else nothing but defaults.

    A caller that names an endpoint and no configuration gets that endpoint and no other.
    """
    path: Path | None = options.config
    if path is None and not options.endpoint and not surely_missing(options.usual_config):
        path = options.usual_config
    return Configuration(rules=()) if path is None else config_file.read(path)


def client_of(options: argparse.Namespace, configuration: Configuration) -> Client:
    """A client for one command. What it finds is kept by the agent only."""
    return Client(
        options.endpoint or configuration.endpoint or None,
        api_version=configuration.api_version,
        vm=configuration.vm,
    )


def own_name(client: Client, configuration: Configuration) -> str:
    """The VM's name as events have it, or empty, with a warning."""
    if configuration.vm:
        return configuration.vm
    try:
        return client.me()
    except EndpointError as error:
        warn(f"What this VM is called is not known: {error.message}")
        return ""


def show_list(options: argparse.Namespace) -> int:
    """`list`: the document as it is now."""
    configuration = configuration_of(options)
    with client_of(options, configuration) as client:
        document = client.document()
        vm = own_name(client, configuration)
        url = client.url
    if options.json:
        events = [event_shown(event, document, vm) for event in document.events]
        say_json({"endpoint": url, "incarnation": document.incarnation, "vm": vm, "events": events})
        return 0
    say(f"{url}, incarnation {plain(document.incarnation)}, this VM is {plain(vm) or 'not known'}")
    if not document.events:
        say("No event is scheduled.")
        return 0
    say(*_rows(document, vm))
    if any(vm and event.names(vm) for event in document.events):
        say("* names this VM")
    return 0


def _rows(document: Document, vm: str) -> list[str]:
    rows = [["", "TYPE", "STATUS", "NOT BEFORE", "LEFT", "SOURCE", "LASTS", "EVENT", "RESOURCES"]]
    for event in document.events:
        lasts_s = event.duration_s
        known = lasts_s is not None and lasts_s >= 0
        rows.append(
            [
                "*" if vm and event.names(vm) else "",
                plain(event.event_type),
                plain(event.status),
                instant(event.not_before),
                duration(document.seconds_left(event)),
                plain(event.source) or "-",
                duration(lasts_s) if known else "-",
                plain(event.event_id),
                names(event),
            ]
        )
    return table(rows)


def watch(options: argparse.Namespace) -> int:
    """`watch`: every change from now on, a line each, until Ctrl-C."""
    configuration = configuration_of(options)
    try:
        with client_of(options, configuration) as client:
            vm = own_name(client, configuration)
            for change in client.watch():
                _show_change(change, vm, as_json=options.json)
    except KeyboardInterrupt:
        return 0
    return 0


def _show_change(change: Change, vm: str, *, as_json: bool) -> None:
    if not as_json:
        say(_line(change, vm))
        return
    shown = {
        "at": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        "what": change.what.value,
        "incarnation": change.document.incarnation,
        **event_shown(change.event, change.document, vm),
    }
    say_json(shown, indent=None)


def _line(change: Change, vm: str) -> str:
    event = change.event
    left_s = change.seconds_left
    words = [
        instant(datetime.now(timezone.utc)),
        "*" if vm and event.names(vm) else " ",
        change.what.value.ljust(8),
        plain(event.event_type),
        plain(event.status),
        plain(event.event_id),
        names(event),
        "" if left_s is None else f"({duration(left_s)} left)",
    ]
    return " ".join(words).rstrip()


def approve(options: argparse.Namespace) -> int:
    """`approve`: say go ahead for events, at once."""
    configuration = configuration_of(options)
    with client_of(options, configuration) as client:
        document = client.document()
        wanted = []
        for event_id in options.event_id:
            event = document.event(event_id)
            if event is None and not options.anyway:
                known = ", ".join(plain(event.event_id) for event in document.events) or "none"
                raise GuestError(
                    f"There is no event {plain(event_id)} in the document; there is {known}.",
                    "With --anyway it is approved all the same.",
                )
            wanted.append(event_id if event is None else event.event_id)
            if event is not None and event.started:
                say(f"{plain(event.event_id)} has started already.")
        client.approve(*wanted)
    say(*(f"{plain(event_id)}: the endpoint has taken the approval (200)." for event_id in wanted))
    return 0


def _asked(found: Discovery) -> Discovery:
    """The same, with what an address that was told says to a question; it is used in any case."""
    (told,) = found.tries
    try:
        with bell_of() as bell:
            answer = f"and {probed(told.url, bell=bell)}"
    except EndpointError as error:
        answer = f"although: {error.message}"
    return Discovery((replace(told, outcome=f"{told.outcome}, {answer}"),))


def show_discovery(options: argparse.Namespace) -> int:
    """`discover`: where the endpoint is, with -v everything that was tried."""
    configuration = configuration_of(options)
    found = discover(options.endpoint or configuration.endpoint)
    if options.verbose and found.told:
        found = _asked(found)
    if options.json:
        tries = [
            {"source": one.source, "url": one.url, "outcome": one.outcome, "good": one.good}
            for one in found.tries
        ]
        good = next((one.url for one in found.tries if one.good), None)
        say_json({"url": good, "tries": tries})
        return 0 if good else 3
    if options.verbose:
        rows = [
            ["+" if one.good else "-", plain(one.source), plain(one.url) or "-", plain(one.outcome)]
            for one in found.tries
        ]
        say(*table([["", "FROM", "ADDRESS", "WHAT CAME OF IT"], *rows]))
    say(found.url)
    return 0
