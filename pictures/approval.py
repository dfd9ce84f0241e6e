"""One approval, from the guest's POST to the event that is gone, as a sequence.

Modules and functions are named as they are in the code; a test looks each of them up.
"""

from __future__ import annotations

from dataclasses import dataclass

from pictures.svg import INK, SOFT, Drawing, text_width

HYPERVISOR, GUEST, HOST, LOOP, WRITER, STORE = range(6)
LANES = (
    ("hypervisor", "libvirt, simulated", "#f0f2f4"),
    ("the VM", "agent, SDK, curl", "#e8f1fb"),
    ("host", "event loop", "#e6f6ec"),
    ("control", "event loop", "#fff4dc"),
    ("control", "writer thread", "#fbe9dc"),
    ("store", "SQLite", "#eeeaf7"),
)
LANE = 146.0
LEFT = 76.0
TOP = 96.0
CODE_STEP = 17.0
CODE_SIZE = 12.5
CODE_WIDTH = 340.0


@dataclass(frozen=True, slots=True)
class Step:
    """One arrow, or with `to` equal to `of` one thing that a lane does by itself.

    `code` are places in the code: `forewarn/package/module.py`, `: function` where one matters.
    """

    of: int
    to: int
    words: str
    code: tuple[str, ...] = ()
    answer: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Steps that belong together, under a heading."""

    heading: str
    steps: tuple[Step, ...]


COMMITTED = Step(
    WRITER,
    LOOP,
    "what was committed",
    ("forewarn/control/published_fleet.py: publish",),
    answer=True,
)
PARTS = (
    Part(
        "1  The VM says go ahead, and is answered once that is durable",
        (
            Step(
                GUEST,
                HOST,
                "POST StartRequests",
                (
                    "forewarn/endpoint/protocol.py",
                    "forewarn/wire/approvals.py: parse",
                ),
            ),
            Step(
                HOST,
                LOOP,
                "link: approve(vm, ids)",
                (
                    "forewarn/host/guest_proxy.py: approve",
                    "forewarn/adapters/control_link.py",
                    "forewarn/api/link/routes.py: approve",
                ),
            ),
            Step(
                LOOP,
                WRITER,
                "ApproveEvents, a value",
                (
                    "forewarn/control/commands.py",
                    "forewarn/control/control.py: submit",
                ),
            ),
            Step(
                WRITER,
                WRITER,
                "decide: the event is due",
                (
                    "forewarn/control/guest_commands.py: approve_events",
                    "forewarn/control/hosts/own_vms.py: need_own_vm",
                    "forewarn/core/polls_and_approvals.py: approve",
                ),
            ),
            Step(
                WRITER,
                STORE,
                "one commit for the batch",
                (
                    "forewarn/control/writer.py: run",
                    "forewarn/adapters/sqlite/store.py: commit",
                ),
            ),
            COMMITTED,
            Step(LOOP, GUEST, "200, by the way it came", (), answer=True),
        ),
    ),
    Part(
        "2  The commit rings; the ticker looks and starts the event",
        (
            Step(
                LOOP,
                LOOP,
                "tick: what is due?",
                (
                    "forewarn/control/agenda.py: due",
                    "forewarn/control/ticker.py: survey",
                ),
            ),
            Step(LOOP, WRITER, "StartEvents", ("forewarn/control/loops.py: tick",)),
            Step(
                WRITER,
                WRITER,
                "no holds: started, with actions",
                (
                    "forewarn/control/ticker.py: start_events",
                    "forewarn/core/starting.py: event_holds",
                    "forewarn/core/lifecycle.py",
                ),
            ),
            Step(WRITER, STORE, "event, actions, journal", ("forewarn/control/transaction.py",)),
            COMMITTED,
            Step(
                LOOP,
                HOST,
                "Started, and there is work",
                (
                    "forewarn/control/hosts/host_feed.py: published",
                    "forewarn/host/feed_reader.py: take",
                    "forewarn/host/served_documents.py: show",
                ),
                answer=True,
            ),
        ),
    ),
    Part(
        "3  The host claims the action, looks, acts, and says how it ended",
        (
            Step(
                HOST,
                LOOP,
                "claim, with lease and epoch",
                (
                    "forewarn/host/executor.py: step",
                    "forewarn/control/hosts/action_claims.py: claim_actions",
                ),
            ),
            Step(
                HOST,
                HYPERVISOR,
                "look, begin, look again",
                (
                    "forewarn/ports.py: begin",
                    "forewarn/adapters/libvirt/hypervisor.py",
                ),
            ),
            Step(
                HOST,
                LOOP,
                "its next turn: ended, done",
                (
                    "forewarn/host/turns.py: once",
                    "forewarn/control/hosts/turns.py",
                    "forewarn/control/hosts/action_claims.py: end_action",
                ),
            ),
            Step(LOOP, WRITER, "TakeTurn", ("forewarn/control/commands.py",)),
            Step(
                WRITER,
                WRITER,
                "all actions ended: completed",
                ("forewarn/core/ending.py",),
            ),
            Step(
                HOST,
                GUEST,
                "the next GET: the event is gone",
                ("forewarn/endpoint/registry.py",),
                answer=True,
            ),
        ),
    ),
)


def shown(place: str) -> str:
    """A place in the code as the picture says it: without the package that all are in."""
    return place.removeprefix("forewarn/").replace(".py: ", ".py ")


def center(lane: int) -> float:
    return LEFT + lane * LANE


def height_of(step: Step) -> float:
    return 24 + CODE_STEP * max(1, len(step.code))


def picture() -> Drawing:
    """The whole sequence: lanes to the left, the code of each step to the right of them."""
    steps = sum(height_of(step) for part in PARTS for step in part.steps)
    height = TOP + steps + 50 * len(PARTS) + 8
    width = center(len(LANES) - 1) + 118 + CODE_WIDTH
    drawing = Drawing(width, height, "One approval, from the POST of a VM to the end of its event")
    for lane, (name, kind, color) in enumerate(LANES):
        x = center(lane)
        drawing.box((x - 62, 20), (124, 48), color)
        drawing.text((x, 41), name, bold=True, middle=True, size=15)
        drawing.text((x, 59), kind, middle=True, size=12, fill=SOFT)
        drawing.line([(x, 68), (x, height - 16)], dashed=True, color="#c3cbd3")
    drawing.text((width - CODE_WIDTH, 48), "where in the code", bold=True, size=15)
    y = TOP
    for part in PARTS:
        drawing.band((8, y), (width - 16, 27))
        drawing.text((18, y + 19), part.heading, bold=True, size=15)
        y += 50
        for step in part.steps:
            draw(drawing, step, y)
            code(drawing, step, (width - CODE_WIDTH, y))
            y += height_of(step)
    return drawing


def draw(drawing: Drawing, step: Step, y: float) -> None:
    """One step: an arrow with what is said above it, or a loop with the words beside it."""
    if step.of == step.to:
        x = center(step.of)
        drawing.line([(x, y - 8), (x + 20, y - 8), (x + 20, y + 6), (x + 3, y + 6)], arrow=True)
        _label(drawing, (x + 28, y + 3), step.words)
        return
    start, end = center(step.of), center(step.to)
    drawing.line([(start, y), (end, y)], arrow=True, dashed=step.answer)
    _label(drawing, (min(start, end) + 10, y - 6), step.words)


def code(drawing: Drawing, step: Step, at: tuple[float, float]) -> None:
    """Where a step is in the code, beside it."""
    x, y = at
    for place in step.code:
        drawing.text((x, y), shown(place), size=CODE_SIZE, mono=True, fill=SOFT)
        y += CODE_STEP


def _label(drawing: Drawing, at: tuple[float, float], words: str) -> None:
    drawing.paper((at[0] - 3, at[1] - 12), (text_width(words, 13) + 2, 15))
    drawing.text(at, words, size=13.5, fill=INK)
