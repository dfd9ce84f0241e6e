"""Which worlds a run of the tests plays: the same as ever, those that ever broke, and new ones.

The new ones are drawn from one number, FOREWARN_TEST_DRAW. Whoever starts the tests sets it, or
else it is drawn once and handed to every process of the run (`tests/conftest.py`); it is printed
with the seeds that it gives, so that a run can be repeated.
"""

from __future__ import annotations

import os
import random

COUNT = "FOREWARN_TEST_SEEDS"
DRAW = "FOREWARN_TEST_DRAW"

# Worlds that broke once, each for a reason that has its own test by now.
BROKE = (
    700_579,  # a move that nobody had looked at landed alive on a host that was off
    701_303,
    1_002_426,
    2_000_147,  # a VM on the move started on its target while it ran on its source
    2_001_974,
    4_100_077,  # a daemon that was down for ten seconds cost its guests as much of their notice
    5_002_893,  # an order that broke domains was kept, and its answer was lost
    9_000_036,  # a host was frozen under a VM that might have come there
    9_000_050,  # a VM that went down again where it had started elsewhere was not declared anew
    9_000_130,  # a VM arrived, its new host failed and was repaired, and only then it was reported
    9_000_620,  # a VM of a second update domain was switched on where a host was to be frozen
    9_000_708,  # the same, where another scope's domains might be broken
    6_002_784,  # a VM might be on either of two hosts, and no host said where it was
    9_002_410,  # what was approved was not looked at once the clock had been set back
    9_003_208,  # a VM was started by hand on a host that was back, and was to start elsewhere too
    9_000_314,  # a VM was off, on the host that its unreported move had brought it to
)
# Worlds in which daemons are down for a moment while guests have notice.
RESTARTING_FROM, RESTARTING_TO = 8_000_000, 9_000_000
RESTARTING = tuple(range(RESTARTING_FROM, RESTARTING_FROM + 10))
# Far from the seeds that are always played, and from those that planted bugs are looked for in.
DRAWN_FROM, DRAWN_TO = 10_000_000, 2_000_000_000


def draw() -> str:
    """The number that the new worlds of this run come from. Drawn if nobody has said it."""
    return os.environ.setdefault(DRAW, str(random.SystemRandom().randrange(1_000_000)))


def fixed(count: int) -> tuple[int, ...]:
    """Half of `count`, always the same, all that ever broke, and some where daemons restart."""
    return (*range(count - count // 2), *BROKE, *RESTARTING)


def drawn(count: int, number: str) -> tuple[int, ...]:
    """The other half, from the number that was drawn."""
    # Not for secrets.
    return tuple(random.Random(number).sample(range(DRAWN_FROM, DRAWN_TO), count // 2))


def count() -> int:
    """How many worlds are wanted, without those that ever broke."""
    return int(os.environ.get(COUNT, "200"))


def told() -> str:
    """What a person needs to know of the new worlds of this run."""
    seeds = " ".join(map(str, drawn(count(), draw())))
    return f"seeds drawn by {DRAW}={draw()}: {seeds or 'none'}"
