"""The console of a large fleet: what its first page costs, and what those feel who look at it.

10,000 hosts with 200,000 VMs, and twenty changes a second: hosts are closed and opened, VMs are
ordered to restart, and the orders are taken back. Fifty tabs follow the Now page meanwhile, and
guests ask by the clock. Phases with and without tabs take turns, so that both see the same machine.
"""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import browsers
from bench.beside import Arrived, guests_asking, percentile, readers_of
from bench.figures import Figure
from bench.fleets import BenchFleet, fleet
from bench.guests import Answer, Line, Operator, enable
from bench.processes import Failed, Forewarn, cpu_s, forewarn

HOSTS = 10_000
SCOPES = 20_000
VMS_PER_SCOPE = 10
ENABLED = 2_000  # scopes that are told of events

TOLD_LIMIT_S = 60.0
TOLD_LOOK_EVERY_S = 0.5

PAGES = 20
FIRST_BYTE_MS_MAX = 200.0
PAGE_BYTES_MAX = 300_000

STREAMS = 50
STREAMS_OF_SESSION = 4
CHANGES_PER_S = 20
CLOSED_LEFT = 100  # hosts
PHASES = 6  # with tabs and without, by turns
PHASE_S = 6.0
SETTLE_S = 2.0
ARRIVES_MS_MAX = 400.0
TOLD_MIN = 0.9  # of all changes: a host that is closed already is none
DRAWN_MAX = 1.05  # for each block of a message; a tab that is late has two in one
GUESTS = 100
ASKS_PER_S = 5.0
GET_MORE_MS_MAX = 5.0
TASK_MS_MAX = 200.0
BROWSER_S = 15.0

# A message of a stream: the blocks that it has, and the lines of the journal that it shows.
_MESSAGE = rb'<[a-z]+[^>]* id=\\"b-(\w+)\\"|<tr id=\\"l(\d+)\\"'
_DRAWINGS = "forewarn_console_drawings_total"


def of_a_large_fleet(folder: Path) -> Iterator[Figure]:
    """The figures of the console."""
    large = fleet(scopes=SCOPES, vms_per_scope=VMS_PER_SCOPE, hosts=HOSTS, domains=5)
    with forewarn(folder, large.inventory()) as service:
        enabled = [scope[0].address for scope in large.scopes[:ENABLED]]
        enable(service.guest_port, enabled)
        _wait_until_told(service, large.scopes[ENABLED - 1][0].name)
        changes = Changes(service, large)
        yield from _pages(service, changes)
        yield from _streams(service, changes, enabled[:GUESTS])
        yield from _browser(service, changes)


def _wait_until_told(service: Forewarn, vm: str) -> None:
    """Wait until control was told that the VM has polled, the last of those that enabled scopes.

    Thousands of VMs poll for the first time here, and each first poll is written down: that is the
    start of a fleet, and no part of what is measured.
    """
    operator, until_s = Operator(service), time.perf_counter() + TOLD_LIMIT_S
    while json.loads(operator.ask("GET", f"/v1/vms/{vm}").body)["polled"] is None:
        if time.perf_counter() > until_s:
            raise Failed(f"control was not told within {TOLD_LIMIT_S:.0f} s that {vm} polls")
        time.sleep(TOLD_LOOK_EVERY_S)


def cookie_of(operator: Operator) -> str:
    """Open a session of the console: its cookie."""
    link = json.loads(operator.ask("POST", "/v1/console/links", {}).body)
    entered = operator.ask("GET", link["path"])
    if entered.status != 200:
        raise Failed(f"the console lets no operator in: {entered.status}")
    return entered.header("set-cookie").partition(";")[0]


def page_request(path: str, cookie: str) -> bytes:
    """A request as a browser sends it."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: {cookie}\r\n\r\n".encode()


# Changes.


@dataclass(frozen=True, slots=True)
class Change:
    """One change: when it was sent, and what it is about, as the journal names it."""

    sent_s: float
    kind: str
    about: str


@dataclass(slots=True)
class Changes:
    """Orders that follow each other by the clock: of four, two are about hosts, two about VMs."""

    service: Forewarn
    large: BenchFleet
    made: list[Change] = field(default_factory=list)
    number: int = 0
    closed: deque[str] = field(default_factory=deque)

    def make_for(self, seconds: float) -> None:
        """Make changes for so long."""
        operator = Operator(self.service)
        line = operator.line()
        try:
            began_s = time.perf_counter()
            for turn in range(round(seconds * CHANGES_PER_S)):
                due_s = began_s + turn / CHANGES_PER_S
                time.sleep(max(0.0, due_s - time.perf_counter()))
                self.make(line, operator)
        finally:
            line.close()

    def make(self, line: Line, operator: Operator) -> None:
        """The next change: a host is closed or opened, or a VM is to restart or is not.

        What is opened was closed long before: what is undone before it was drawn is no change that
        a tab could show.
        """
        turn, self.number = divmod(self.number, 4), self.number + 1
        vm = self.large.scopes[turn[0] % ENABLED][0].name
        if turn[1] == 1:
            answer = self._order(line, operator, f"/v1/vms/{vm}/restart", "scheduled", "")
            event_id = json.loads(answer.body)["event_id"]
            self.made[-1] = Change(self.made[-1].sent_s, "scheduled", event_id)
        elif turn[1] == 2 and len(self.closed) > CLOSED_LEFT:
            host = self.closed.popleft()
            self._order(line, operator, f"/v1/hosts/{host}/open", "host-opened", host)
        elif turn[1] in (0, 2):
            host = f"host-{self.number * 7 % HOSTS:03d}"
            self.closed.append(host)
            self._order(line, operator, f"/v1/hosts/{host}/close", "host-closed", host)
        else:
            event_id = next(one.about for one in self.made[::-1] if one.kind == "scheduled")
            self._order(line, operator, f"/v1/events/{event_id}/cancel", "canceled", event_id)

    def _order(self, line: Line, operator: Operator, path: str, kind: str, about: str) -> Answer:
        self.made.append(Change(time.perf_counter(), kind, about))
        answer = line.ask(operator.request("POST", path, {}))
        if answer.status >= 300:
            raise Failed(f"{path} was refused: {answer.body!r}")
        return answer

    def newest(self) -> int:
        """The number of the newest line of the journal."""
        answer = Operator(self.service).ask("GET", "/v1/feed?after=end")
        return int(json.loads(answer.body)["next"].rpartition("-")[2])

    def numbers(self, after: int) -> dict[tuple[str, str], list[int]]:
        """The lines of the journal that tell of changes, by kind and what they are about."""
        operator, found = Operator(self.service), dict[tuple[str, str], list[int]]()
        while True:
            page = json.loads(operator.ask("GET", f"/v1/journal?after={after}&limit=1000").body)
            for line in page["items"]:
                about = line.get("event_id") or line.get("host") or ""
                found.setdefault((line["kind"], about), []).append(line["number"])
                after = line["number"]
            if len(page["items"]) < 1_000:
                return found


# Pages.


def _pages(service: Forewarn, changes: Changes) -> Iterator[Figure]:
    """The Now page: the first of a life, then each after a change, then each without one."""
    operator = Operator(service)
    cookie = cookie_of(operator)
    first = _loaded(service, cookie)
    line = operator.line()
    changed, same = [], []
    try:
        for _ in range(PAGES):
            changes.make(line, operator)
            changed.append(_loaded(service, cookie))
            same.append(_loaded(service, cookie))
    finally:
        line.close()
    what = f"Now page, {HOSTS:,} hosts, {SCOPES * VMS_PER_SCOPE:,} VMs"
    for name, loads in (("the first ever", [first]), ("after a change", changed)):
        yield Figure(
            name=f"{what}: first byte, {name}",
            measured=max(one.first_ms for one in loads),
            unit="ms",
            at_most=FIRST_BYTE_MS_MAX,
            note=f"the longest of {len(loads)}, median {median(o.first_ms for o in loads):.0f} ms; "
            f"CPU {median(one.cpu_ms for one in loads):.0f} ms",
            raw={"first_ms": [o.first_ms for o in loads], "cpu_ms": [o.cpu_ms for o in loads]},
        )
    yield Figure(
        name=f"{what}: size",
        measured=max(one.bytes for one in (first, *changed, *same)) / 1_000,
        unit="kB",
        at_most=PAGE_BYTES_MAX / 1_000,
        note="not compressed",
    )
    yield Figure(
        name=f"{what}: CPU",
        measured=median(one.cpu_ms for one in same),
        unit="ms",
        note=f"nothing changed; after a change {median(o.cpu_ms for o in changed):.0f} ms",
        raw={"cpu_ms": [one.cpu_ms for one in same]},
    )


@dataclass(frozen=True, slots=True)
class Loaded:
    """A page that was loaded once. The CPU time has all that the service did meanwhile."""

    first_ms: float
    cpu_ms: float
    bytes: int


def _loaded(service: Forewarn, cookie: str) -> Loaded:
    line = Line(service.operator_port)
    try:
        before_s, began_s = cpu_s(service.pid), time.perf_counter()
        line.send(page_request("/console/", cookie))
        line.take()
        first_s = time.perf_counter() - began_s
        answer = line.receive()
        used_s = cpu_s(service.pid) - before_s
    finally:
        line.close()
    if answer.status != 200:
        raise Failed(f"the Now page was answered {answer.status}")
    return Loaded(first_s * 1_000, used_s * 1_000, len(answer.body))


# Streams.


@dataclass(slots=True)
class Followed:
    """What tabs were sent while they followed, over all phases."""

    arrives_ms: list[float] = field(default_factory=list)
    drawn: int = 0  # by the service
    sent: int = 0  # blocks in the messages to one tab, the one that was sent most
    bytes: int = 0


def _streams(service: Forewarn, changes: Changes, guests: Sequence[str]) -> Iterator[Figure]:
    """Fifty tabs and none, by turns."""
    operator = Operator(service)
    sessions = [cookie_of(operator) for _ in range(-(-STREAMS // STREAMS_OF_SESSION))]
    path = "/console/stream?on=now"
    asked_for = [page_request(path, sessions[n // STREAMS_OF_SESSION]) for n in range(STREAMS)]
    with_tabs, without, used = [], [], {True: 0.0, False: 0.0}
    followed = Followed()
    with guests_asking(service.guest_port, guests, ASKS_PER_S) as asking:
        _phase(service, changes, {False: 0.0}, tabs=False)  # not counted: what was begun ends
        for _ in range(PHASES):
            without.append(_phase(service, changes, used, tabs=False))
            with readers_of(service.operator_port, asked_for, _MESSAGE) as readers:
                time.sleep(SETTLE_S)
                begin, made = changes.newest(), len(changes.made)
                drawn, from_s = operator.metric(_DRAWINGS), time.perf_counter()
                with_tabs.append(_phase(service, changes, used, tabs=True))
                time.sleep(SETTLE_S)
                followed.drawn += round(operator.metric(_DRAWINGS) - drawn)
                arrived = readers.arrived()
            _follow(followed, arrived, changes.made[made:], changes.numbers(begin))
            followed.sent += max(_blocks(tab, from_s) for tab in arrived)
        asked = asking.asked()
    yield from _stream_figures(followed, used)
    p99_ms = [percentile(asked.waits_ms(periods), 0.99) for periods in (with_tabs, without)]
    p50_ms = [percentile(asked.waits_ms(periods), 0.5) for periods in (with_tabs, without)]
    yield Figure(
        name=f"GETs of guests beside {STREAMS} tabs, p99 more than without",
        measured=p99_ms[0] - p99_ms[1],
        unit="ms",
        at_most=GET_MORE_MS_MAX,
        note=f"{p99_ms[0]:.2f} against {p99_ms[1]:.2f} ms, medians {p50_ms[0]:.2f} and "
        f"{p50_ms[1]:.2f} ms; {GUESTS} guests, {ASKS_PER_S * GUESTS:.0f}/s, "
        f"{PHASES} phases each of {PHASE_S:.0f} s",
        raw={"p99_ms": p99_ms, "p50_ms": p50_ms},
    )


def _phase(
    service: Forewarn, changes: Changes, used: dict[bool, float], *, tabs: bool
) -> tuple[float, float]:
    """Make changes: from when to when. Notes the CPU time that the service used."""
    began_s, before_s = time.perf_counter(), cpu_s(service.pid)
    changes.make_for(PHASE_S)
    used[tabs] += cpu_s(service.pid) - before_s
    return began_s, time.perf_counter()


def _follow(
    followed: Followed,
    arrived: Sequence[Arrived],
    made: Sequence[Change],
    numbers: dict[tuple[str, str], list[int]],
) -> None:
    """Take over what a phase has brought: when each change was on show in each tab."""
    told = [(numbers.get((one.kind, one.about)), one.sent_s) for one in made]
    sent = {found.pop(0): sent_s for found, sent_s in told if found}
    if len(sent) < len(made) * TOLD_MIN:
        raise Failed(f"of {len(made)} changes the journal tells of {len(sent)}")
    for tab in arrived:
        left = sorted(sent)
        followed.bytes += tab.bytes
        for at_s, found in zip(tab.at_s, tab.found, strict=True):
            newest = max((int(line) for _, line in found if line), default=0)
            while left and left[0] <= newest:
                followed.arrives_ms.append((at_s - sent[left.pop(0)]) * 1_000)
        if left:
            raise Failed(f"{len(left)} changes were never shown in a tab")


def _blocks(tab: Arrived, from_s: float) -> int:
    """How many blocks came to a tab since then."""
    messages = (f for at_s, f in zip(tab.at_s, tab.found, strict=True) if at_s >= from_s)
    return sum(bool(name) for found in messages for name, _ in found)


def _stream_figures(followed: Followed, used: dict[bool, float]) -> Iterator[Figure]:
    seconds = PHASES * PHASE_S
    cost = (used[True] - used[False]) / seconds * 100
    yield Figure(
        name=f"{STREAMS} tabs of the Now page, a change arrives, p99",
        measured=percentile(followed.arrives_ms, 0.99),
        unit="ms",
        at_most=ARRIVES_MS_MAX,
        note=f"{CHANGES_PER_S} changes/s; from the order being sent to its line in the tab, median "
        f"{median(followed.arrives_ms):.0f} ms, longest {max(followed.arrives_ms):.0f} ms; "
        f"{followed.bytes / seconds / STREAMS / 1_000:.0f} kB/s a tab",
    )
    yield Figure(
        name=f"{STREAMS} tabs of the Now page, drawings of a block that changed",
        measured=followed.drawn / followed.sent,
        unit="each",
        at_most=DRAWN_MAX,
        note=f"{followed.drawn} drawings, {followed.sent} blocks sent to each tab; the tabs cost "
        f"{cost:.0f} % of a core",
    )


# One browser.


def _browser(service: Forewarn, changes: Changes) -> Iterator[Figure]:
    """The longest task of a real browser while the page changes."""
    name = f"A browser with {HOSTS:,} cells, {CHANGES_PER_S} changes/s: the longest task"
    missing = browsers.missing()
    if missing:
        yield Figure(name=name, measured=None, unit="ms", at_most=TASK_MS_MAX, note=missing)
        return
    found = browsers.follow_now(service, lambda: changes.make_for(BROWSER_S))
    yield Figure(
        name=name,
        measured=max(found.tasks_ms, default=0.0),
        unit="ms",
        at_most=TASK_MS_MAX,
        note=f"{len(found.tasks_ms)} tasks over 50 ms while it followed for {BROWSER_S:.0f} s, "
        f"{found.patches} patches; of loading it {max(found.load_ms, default=0):.0f} ms",
        raw={"tasks_ms": found.tasks_ms, "load_ms": found.load_ms},
    )
