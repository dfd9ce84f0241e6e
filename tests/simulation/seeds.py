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

# Worlds that broke once, each for a reason that has its own test by now. Until hosts followed
# control over the deployed link, worlds were drawn otherwise: the numbers that broke before then
# mean other worlds now, and are not kept. What was found in them has its own tests, and planted
# bugs.
BROKE = (
    17,  # a host that was silent since it confirmed was never told to confirm again
    110,  # a host that had booted claimed before it reported, and its VMs stayed down
    10_000_132,  # a VM was switched off where reports had said nothing new for long
    10_000_192,
    20_000_160,  # a daemon that control never heard died, and what was shown before did not count
    30_100_144,  # a VM that was off was switched on where it was being moved to
    30_500_042,  # a VM came back to its scope, whose number went on above what it had read
    500_162,  # a host claimed at the deadline, and froze VMs whose event had failed
    921_854_240,  # a slow delete took a VM away that had moved to another host meanwhile
    981_687_694,  # a host booted in the moment in which an owner switched a VM off: it may be down
    1_021_207_328,  # a VM that no host could start is down, and its Reboot asks no VM
    1_330_956_753,  # what a host showed of another's VM settled that VM's scope
    1_367_922_339,  # a clock was set back behind the window of an event that was approved
)
# Worlds in which daemons are down for a moment while guests have notice.
RESTARTING_FROM, RESTARTING_TO = 8_000_000, 9_000_000
RESTARTING = tuple(range(RESTARTING_FROM, RESTARTING_FROM + 10))
# Worlds whose hosts fail in the middle of moves, and whose owners switch VMs on and off.
UNLUCKY_FROM = 9_000_000
UNLUCKY = tuple(range(UNLUCKY_FROM, UNLUCKY_FROM + 20, 2))
# Worlds in which hosts lose their power while VMs are on their way to them.
POWERLESS = tuple(range(UNLUCKY_FROM + 1, UNLUCKY_FROM + 21, 4))
# Far from the seeds that are always played, and from those that planted bugs are looked for in.
DRAWN_FROM, DRAWN_TO = 10_000_000, 2_000_000_000


def draw() -> str:
    """The number that the new worlds of this run come from. Drawn if nobody has said it."""
    return os.environ.setdefault(DRAW, str(random.SystemRandom().randrange(1_000_000)))


def fixed(count: int) -> tuple[int, ...]:
    """Half of `count`, always the same, all that ever broke, and some of the unlucky kinds."""
    return (*range(count - count // 2), *BROKE, *RESTARTING, *UNLUCKY, *POWERLESS)


def unlucky(seed: int) -> bool:
    """Every second world from UNLUCKY_FROM on, also of those that are drawn."""
    return seed >= UNLUCKY_FROM and seed % 2 == 0


def powerless(seed: int) -> bool:
    """Every fourth of them, none of which is unlucky: what shows in those stays as likely."""
    return seed >= UNLUCKY_FROM and seed % 4 == 1


def windowed(seed: int) -> bool:
    """Every fifth world: operators and owners order with windows there, now and then."""
    return seed % 5 == 4


def postponing(seed: int) -> bool:
    """Every seventh world: owners, and now and then operators, have maintenance postponed there.

    Those that planted bugs of other rules are looked for in are mostly none of these.
    """
    return seed % 7 == 6


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
