"""Who owns what: processes, the event loop and threads of each, and the objects that live there.

Each object is a class with its module; a test looks each of them up.
"""

from __future__ import annotations

from dataclasses import dataclass

from pictures.svg import INK, SOFT, Drawing, wrapped

ROW = 19.0
HEAD = 46.0
GAP = 14.0


@dataclass(frozen=True, slots=True)
class Owner:
    """An event loop, a thread or a process, and what it alone may change.

    `owns` has places in the code: `forewarn/package/module.py: Class`.
    """

    name: str
    kind: str
    owns: tuple[str, ...]
    says: str
    color: str


LOOP, THREAD, PROCESS, DISK = "#fff4dc", "#fbe9dc", "#eeeaf7", "#f0f2f4"

CONTROL = (
    Owner(
        "event loop",
        "one thread: every await of control",
        (
            "forewarn/control/published_fleet.py: PublishedFleet",
            "forewarn/control/hosts/liveness.py: Observed",
            "forewarn/control/hosts/host_feed.py: HostFeed",
            "forewarn/control/agenda.py: Agenda",
            "forewarn/control/loops.py: TickerLoop",
            "forewarn/control/hosts/turns.py: HostTurns",
            "forewarn/control/inventory/apply_runner.py: Inventories",
            "forewarn/control/hosts/membership.py: Membership",
            "forewarn/control/metrics.py: ControlMetrics",
            "forewarn/api/link/routes.py: LinkRoutes",
        ),
        "Reads what was committed, and never waits for the writer. Publishes each commit whole.",
        LOOP,
    ),
    Owner(
        "writer thread",
        "one; takes commands, a batch is a commit",
        (
            "forewarn/control/writer.py: Writer",
            "forewarn/control/transaction.py: Transaction",
            "forewarn/control/fleet_index.py: FleetIndex",
            "forewarn/control/volatile.py: Volatile",
            "forewarn/control/hosts/liveness.py: HeardByWriter",
            "forewarn/adapters/sqlite/store.py: SqliteStore",
        ),
        "The only one that writes to the database. Its objects change inside a transaction, and "
        "are taken back with it.",
        THREAD,
    ),
    Owner(
        "threads aside",
        "asyncio.to_thread: work on values that do not change",
        (
            "forewarn/control/control.py: read",
            "forewarn/adapters/sqlite/database_mark.py: Marker",
        ),
        "Reads of ended things, long messages, keys, checks of a large inventory. The mark beside "
        "the database has a thread of its own.",
        THREAD,
    ),
    Owner(
        "child process",
        "2 GiB and 15 minutes at most",
        ("forewarn/control/inventory/reader_process.py: reply",),
        "Reads a large inventory file, answers in frames, and ends.",
        PROCESS,
    ),
    Owner(
        "on the disk",
        "the data folder",
        (),
        "forewarn.db with its WAL, forewarn.mark, link/ (who has joined, the authority), "
        "operator.token.",
        DISK,
    ),
)

HOST = (
    Owner(
        "event loop",
        "one thread: guests, the link, actions",
        (
            "forewarn/endpoint/endpoint.py: Endpoint",
            "forewarn/host/served_documents.py: Documents",
            "forewarn/host/feed_reader.py: FeedReader",
            "forewarn/host/guest_proxy.py: GuestProxy",
            "forewarn/host/daemon.py: Hosts",
            "forewarn/host/executor.py: Executor",
            "forewarn/host/channels/channel_setup.py: Channels",
        ),
        "A GET of an enabled scope is a look-up in Documents and one write.",
        LOOP,
    ),
    Owner(
        "threads aside",
        "for calls that may hang",
        (
            "forewarn/adapters/libvirt/connection.py: LibvirtConnection",
            "forewarn/wiring/host_documents.py: DocumentKeeper",
        ),
        "Calls of libvirt and its events; marks are on the disk before a newer document is shown.",
        THREAD,
    ),
    Owner(
        "thaw guard",
        "a process for each Freeze",
        ("forewarn/adapters/libvirt/thaw_guard.py: ProcessGuard",),
        "Resumes the paused VMs at the announced time, whatever happens to the daemon.",
        PROCESS,
    ),
    Owner(
        "on the disk",
        "the data folder, and the domains of libvirt",
        (),
        "host.pem, documents.json, marks. What is being done to a VM is in the VM's own domain.",
        DISK,
    ),
)

GUEST = (
    Owner(
        "agent",
        "one loop, one thread",
        (
            "forewarn_guest/agent.py: Agent",
            "forewarn_guest/journal.py: Journal",
        ),
        "Keeps a fact before it does what follows from it.",
        LOOP,
    ),
    Owner(
        "steps",
        "a process each, below a small shell",
        ("forewarn_guest/step_processes.py: Steps",),
        "Live on when the agent is killed.",
        PROCESS,
    ),
    Owner(
        "on the disk", "the agent's folder", (), "The journal of facts, a file for each run.", DISK
    ),
)

NOTES = (
    ("One owner", "An object is changed by its owner alone. Others are handed frozen values."),
    ("serve and simulate", "Control and hosts are in one process, on one event loop."),
    (
        "One link",
        "There too they speak over the link, without encoding (host/in_process_hosts.py).",
    ),
    ("After a kill", "What was committed is loaded. What is volatile is heard again."),
)
COLUMN = 372.0
BETWEEN = 70.0
INNER = COLUMN - 32
TITLES = (
    ("forewarn control", "one process", CONTROL),
    ("forewarn host", "one process on every hypervisor", HOST),
    ("forewarn-guest", "inside a VM", GUEST),
)


def class_and_module(place: str) -> tuple[str, str]:
    """A place in the code as the picture says it."""
    module, _, name = place.partition(": ")
    return name, module.removeprefix("forewarn/").removeprefix("forewarn_guest/")


def height_of(owner: Owner) -> float:
    return HEAD + ROW * len(owner.owns) + 16 * len(wrapped(owner.says, INNER - 24, 12)) + 12


def gap_below(owner: Owner) -> float:
    """Between the event loop and the writer there is room for what they say to each other."""
    return 44.0 if owner is CONTROL[0] else GAP


def column_height(owners: tuple[Owner, ...]) -> float:
    return 62 + sum(height_of(owner) + gap_below(owner) for owner in owners)


def picture() -> Drawing:
    """Control to the left; a host and, below it, a guest to the right; notes below all."""
    right = 16 + COLUMN + BETWEEN
    below = 16 + column_height(HOST) + 52
    bottom = max(16 + column_height(CONTROL), below + column_height(GUEST))
    drawing = Drawing(
        right + COLUMN + 16, bottom + 104, "Who owns what: processes, threads and their objects"
    )
    column(drawing, TITLES[0], (16, 16))
    column(drawing, TITLES[1], (right, 16))
    column(drawing, TITLES[2], (right, below))
    drawing.line([(right - 2, 120), (16 + COLUMN + 2, 120)], arrow=True)
    drawing.text((right - BETWEEN / 2, 112), "link", size=12, middle=True)
    drawing.text((right - BETWEEN / 2, 136), "HTTPS", size=12, middle=True, fill=SOFT)
    drawing.line([(right + 40, below - 2), (right + 40, below - 50)], arrow=True)
    drawing.text((right + 50, below - 29), "HTTP, port 80", size=12)
    drawing.text((right + 50, below - 13), "GET the document, POST approvals", size=11, fill=SOFT)
    commands_and_commits(drawing, 74 + height_of(CONTROL[0]))
    notes(drawing, (20, bottom + 30))
    return drawing


def column(
    drawing: Drawing, what: tuple[str, str, tuple[Owner, ...]], at: tuple[float, float]
) -> None:
    """One process with its owners."""
    name, kind, owners = what
    x, y = at
    drawing.box(at, (COLUMN, column_height(owners)), "#fbfcfd")
    drawing.text((x + 16, y + 26), name, bold=True, size=16, mono=True)
    drawing.text((x + 16, y + 44), kind, size=12, fill=SOFT)
    y += 58.0
    for owner in owners:
        draw(drawing, owner, (x + 16, y))
        y += height_of(owner) + gap_below(owner)


def commands_and_commits(drawing: Drawing, y: float) -> None:
    """What goes between the event loop and the writer."""
    drawing.line([(70, y + 1), (70, y + 43)], arrow=True)
    drawing.text((78, y + 19), "commands", size=12)
    drawing.text((78, y + 34), "frozen values, a queue", size=11, fill=SOFT)
    drawing.line([(236, y + 43), (236, y + 1)], arrow=True)
    drawing.text((244, y + 19), "commits", size=12)
    drawing.text((244, y + 34), "whole, then answers", size=11, fill=SOFT)


def draw(drawing: Drawing, owner: Owner, at: tuple[float, float]) -> None:
    """One owner as a box: its name, what it owns, what can be relied on."""
    x, y = at
    drawing.box(at, (INNER, height_of(owner)), owner.color)
    drawing.text((x + 12, y + 20), owner.name, bold=True, size=14)
    drawing.text((x + 12, y + 36), owner.kind, size=11.5, fill=SOFT)
    row = y + HEAD + 10
    for place in owner.owns:
        name, module = class_and_module(place)
        drawing.text((x + 12, row), name, size=12, mono=True, fill=INK)
        drawing.text((x + 142, row), module, size=10.5, mono=True, fill=SOFT)
        row += ROW
    drawing.lines((x + 12, row + 2), wrapped(owner.says, INNER - 24, 12), step=16, size=12)


def notes(drawing: Drawing, at: tuple[float, float]) -> None:
    """What holds for more than one box, a line each."""
    x, y = at
    for heading, words in NOTES:
        drawing.text((x, y), heading, size=12.5, bold=True)
        drawing.text((x + 140, y), words, size=12.5, fill=SOFT)
        y += 19
