"""From a configuration to a running agent, by plain calls; and how it ends.

What is wrong with the configuration or the journal is refused here, before anything is done. An
endpoint that does not answer is no reason to end: it is waited for.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable

from forewarn_guest import config_file, facts
from forewarn_guest.agent import Agent, View
from forewarn_guest.client import Client
from forewarn_guest.configuration import Configuration
from forewarn_guest.document import Document
from forewarn_guest.errors import (
    BadAnswer,
    EndpointError,
    JournalDamaged,
    NotFound,
    Refused,
)
from forewarn_guest.facts import Fact
from forewarn_guest.http1 import Bell, Stop, bell_of
from forewarn_guest.journal import Journal
from forewarn_guest.logs import Log
from forewarn_guest.pauses import Pause, detect
from forewarn_guest.status_writer import StatusWriter
from forewarn_guest.step_processes import Steps
from forewarn_guest.systemd import Notifier
from forewarn_guest.terminal import plain
from forewarn_guest.tracked_event import fold_all

ASK_NAME_EVERY_S = 2.0
LOOK_FOR_ENDPOINT_EVERY_S = 30.0  # a search asks DHCP servers too
NAME_LOOK_S = 0.2  # how often the main thread looks whether the name is there

GIVE_A_NAME = 'Write vm = "NAME" under [agent]: the name that Resources has, not the host name.'
NO_RELOAD = "SIGHUP changes nothing: the configuration is read at start; restart to use a new one"


def journal_path(configuration: Configuration) -> Path:
    """Where the journal is."""
    return configuration.folder / "journal"


class _Endpoint(Client):
    """The client of the agent: it tells the status writer of every good answer to a poll."""

    outside: StatusWriter

    def poll(self, bell: Bell, tag: str) -> Document | None:
        document = super().poll(bell, tag)
        self.outside.answered()
        return document


def another_name(client: Client, told: str) -> str:
    """A sentence, if the endpoint has another name for this VM than the configuration; else empty.

    The client must have been given the name as its `vm`, so that it raises nothing.
    """
    found = client.me()
    if found.casefold() == told.casefold():
        return ""
    return (
        f"The configuration calls this VM {told}, the endpoint calls it {plain(found)}: events that"
        f" name {plain(found)} are left alone. Without vm under [agent], the endpoint is asked."
    )


class AgentEndpoint:
    """The endpoint as the agent wants it. An unexpected error ends the agent.

    `broken` is that error. `told_name` is what the configuration calls this VM, if it does: an
    endpoint that has another name for it is trouble, because events would be taken for others'.
    """

    def __init__(self, client: Client, outside: StatusWriter, *, told_name: str = "") -> None:
        self._client = client
        self._outside = outside
        self._told_name = told_name
        self.broken: BaseException | None = None

    def documents(self, stop: Stop) -> Iterator[Document]:
        try:
            for document in self._client.documents(stop=stop, on_trouble=self._outside.trouble):
                self._outside.found(self._client.url)
                self._doubt_the_name()
                if document.left_out:
                    why = f"{document.left_out} entries of the document are not events."
                    self._outside.error("no-event", why)
                yield document
        except GeneratorExit:
            raise
        except BaseException as error:
            # An agent that no longer listens must not look as if it did.
            self.broken = error
            stop.set()
            raise

    def _doubt_the_name(self) -> None:
        """Ask once, beside the documents, which must not wait for it."""
        told, self._told_name = self._told_name, ""
        if told:
            asking = threading.Thread(target=self._compare, args=(told,), name="name", daemon=True)
            asking.start()

    def _compare(self, told: str) -> None:
        says = another_name(self._client, told)
        if says:
            self._outside.error("name", says)

    def approve(self, *event_ids: str) -> None:
        try:
            self._client.approve(*event_ids)
        except EndpointError as error:
            self._outside.error("approval", str(error))
            raise


class _Signals:
    """SIGTERM and SIGINT end the agent; SIGHUP is answered with a sentence.

    Handlers run between two instructions of the main thread: they take no locks.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.agent: Agent | None = None
        self.hung_up = False
        signal.signal(signal.SIGTERM, self._end)
        signal.signal(signal.SIGINT, self._end)
        signal.signal(signal.SIGHUP, self._hang_up)

    def _end(self, *_: object) -> None:
        self._stop.set()
        if self.agent is not None:
            self.agent.tell(None)

    def _hang_up(self, *_: object) -> None:
        self.hung_up = True
        if self.agent is not None:
            self.agent.tell(None)


def run(options: argparse.Namespace) -> int:
    """`run`: look after this VM until a signal says to end; 0 then.

    Raises ConfigError, JournalError or NotFound with what has to be mended.
    """
    path: Path = options.config
    configuration = config_file.read(path)
    log = Log(as_json=configuration.log_format == "json")
    for warning in configuration.warnings:
        log.warning("configuration", says=warning)
    notifier = Notifier.of(os.environ)
    stop = Stop()
    signals = _Signals(stop)
    with Journal(journal_path(configuration)) as journal:
        kept = read_facts(journal)
        if journal.cut:
            log.warning("journal", says=journal.cut)
        outside = StatusWriter(configuration, path, log=log, notifier=notifier)
        notifier.ready()
        orderly = False
        try:
            _look_after(
                configuration, journal, kept, stop=stop, signals=signals, outside=outside, log=log
            )
            orderly = True
        finally:
            notifier.stopping()
            outside.end(orderly=orderly)
            notifier.close()
    return 0


def _look_after(
    configuration: Configuration,
    journal: Journal,
    kept: list[Fact],
    *,
    stop: Stop,
    signals: _Signals,
    outside: StatusWriter,
    log: Log,
) -> None:
    client = _Endpoint(
        configuration.endpoint or None,
        api_version=configuration.api_version,
        vm=configuration.vm,
        cache=configuration.folder / "endpoint.json",
    )
    client.outside = outside
    with client, bell_of(stop) as bell:
        log.info("the agent starts", folder=configuration.folder, rules=len(configuration.rules))
        open_events = tuple(tracked for tracked in fold_all(kept).values() if not tracked.closed)
        nameless = View("", open_events, running=(), document=None, counts={}, unkept=0)
        vm = configuration.vm or _name(client, stop, lambda: outside.show(nameless), outside)
        if stop.is_set():
            log.info("the agent ends")
            return
        log.info("this VM is looked after", vm=vm)
        endpoint = AgentEndpoint(client, outside, told_name=configuration.vm)

        def show(view: View) -> None:
            if signals.hung_up:
                signals.hung_up = False
                log.info(NO_RELOAD)
            outside.show(view)

        agent = Agent(
            configuration,
            endpoint=endpoint,
            journal=journal,
            kept=kept,
            steps=Steps(configuration.folder / "steps"),
            vm=vm,
            log=log,
            show=show,
            look_every_s=outside.look_every_s,
        )
        signals.agent = agent

        def paused(pause: Pause) -> None:
            if outside.paused(pause):
                agent.tell(pause)

        beating = threading.Thread(target=detect, args=(bell, paused), name="beat", daemon=True)
        beating.start()
        show(agent.view())
        agent.run(stop)
        beating.join()
        log.info("the agent ends; steps that run go on", running=len(agent.view().running))
        if endpoint.broken is not None:
            raise RuntimeError("The agent can no longer watch the endpoint.") from endpoint.broken


def read_facts(journal: Journal) -> list[Fact]:
    """What the journal holds. JournalDamaged if a line of it is from no agent that we know."""
    return [_fact(number, line, journal.path) for number, line in enumerate(journal.read(), 1)]


def _fact(number: int, line: Mapping[str, Any], path: Path) -> Fact:
    try:
        return facts.from_json(line)
    except (KeyError, ValueError, TypeError) as error:
        raise JournalDamaged(
            f"This agent does not know fact {number} of the journal {path} ({error!r}).",
            f"If a newer agent has written it, use that one. Otherwise move the file away (mv"
            f" {path} {path}.damaged): then steps of open events may be run again, and what was"
            " prepared for an event that is gone has to be undone by hand.",
        ) from error


def _name(
    client: Client, stop: Stop, look_around: Callable[[], None], outside: StatusWriter
) -> str:
    """This VM's name, however long the endpoint takes to tell it; empty if told to stop.

    Asked on a thread of its own: the main thread must come round, or systemd takes it for hung.
    """
    asking = _AskingForTheName(client, stop, outside)
    thread = threading.Thread(target=asking.ask, name="name", daemon=True)
    thread.start()
    while thread.is_alive() and not stop.is_set():
        look_around()
        thread.join(NAME_LOOK_S)
    if stop.is_set():
        return ""
    if asking.refusal is not None:
        why = f"What this VM is called is not known: {asking.refusal.message}"
        raise NotFound(why, GIVE_A_NAME) from asking.refusal
    if not asking.name:
        raise RuntimeError("The name of this VM could not be asked for; see above.")
    return asking.name


class _AskingForTheName:
    """Asks until there is an answer or a refusal, or until the agent is told to stop."""

    def __init__(self, client: Client, stop: Stop, outside: StatusWriter) -> None:
        self.name = ""
        self.refusal: EndpointError | None = None
        self._client = client
        self._stop = stop
        self._outside = outside

    def ask(self) -> None:
        with bell_of(self._stop) as bell:
            while not self._stop.is_set():
                try:
                    self.name = self._client.me()
                except (Refused, BadAnswer) as error:
                    self.refusal = error
                except EndpointError as error:
                    self._outside.trouble(error)
                    nowhere = isinstance(error, NotFound)
                    bell.wait(LOOK_FOR_ENDPOINT_EVERY_S if nowhere else ASK_NAME_EVERY_S)
                    continue
                return
