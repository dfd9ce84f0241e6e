"""The transition table: what is in it happens, what is absent is refused and changes nothing."""

from __future__ import annotations

import itertools

import pytest

from forewarn.control.transaction import Transaction
from forewarn.core import scope_edits
from forewarn.core.lifecycle import TRANSITIONS, IllegalMove, Move, move
from forewarn.core.model import EventType, Phase
from support.core_fleet import WEB, Cloud, minutes, scope

EVERYTHING = list(itertools.product([None, *Phase], Move))
LEGAL = {
    (None, Move.SCHEDULE): Phase.SCHEDULED,
    (None, Move.DECLARE): Phase.STARTED,
    (Phase.SCHEDULED, Move.APPROVE): Phase.SCHEDULED,
    (Phase.SCHEDULED, Move.START): Phase.STARTED,
    (Phase.SCHEDULED, Move.CANCEL): Phase.CANCELED,
    (Phase.STARTED, Move.COMPLETE): Phase.COMPLETED,
    (Phase.STARTED, Move.FAIL): Phase.FAILED,
}


def test_the_table_holds_the_moves_of_the_design_and_no_other() -> None:
    assert TRANSITIONS == LEGAL


@pytest.mark.parametrize(("phase", "wanted"), LEGAL)
def test_a_legal_move_leads_where_the_table_says(phase: Phase | None, wanted: Move) -> None:
    assert move(phase, wanted) is LEGAL[phase, wanted]


@pytest.mark.parametrize(("phase", "wanted"), [pair for pair in EVERYTHING if pair not in LEGAL])
def test_every_other_move_is_refused(phase: Phase | None, wanted: Move) -> None:
    with pytest.raises(IllegalMove, match=wanted.value):
        move(phase, wanted)


@pytest.mark.parametrize("wanted", [Move.CANCEL, Move.COMPLETE, Move.FAIL, Move.START])
def test_an_illegal_move_leaves_the_event_and_its_scope_as_they_were(wanted: Move) -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT)
    cloud.cancel(event)
    ended = cloud.event(event)
    before = cloud.everything()

    def command(tx: Transaction) -> None:
        scope_edits.end_event(ended, wanted, cloud.clock.wall, "again")

    with pytest.raises(IllegalMove):
        cloud.run(command)
    assert cloud.everything() == before
    assert cloud.event(event) == ended


def test_phases_only_move_forward_through_a_whole_life() -> None:
    cloud = Cloud(scope("web", WEB))
    event = cloud.order("web_0", EventType.REBOOT)
    seen = [cloud.event(event).phase]
    cloud.start(event)
    seen.append(cloud.event(event).phase)
    cloud.work()
    seen.append(cloud.event(event).phase)
    cloud.pass_time(minutes(60))
    seen.append(cloud.event(event).phase)
    assert seen == [Phase.SCHEDULED, Phase.STARTED, Phase.COMPLETED, Phase.COMPLETED]
