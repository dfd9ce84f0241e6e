"""What to do next to a domain, from what is seen of it. Values in, values out; nothing is done.

The work looks first, does the one step that is named here, and looks again. So an action that was
interrupted anywhere, by the death of the daemon, of libvirt or of the other host, goes on from what
is really there.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from forewarn.adapters.libvirt.blocking_calls import DomainView
from forewarn.adapters.libvirt.domain_xml import DomainMark, read_mark
from forewarn.core.inventory.host_report import Power
from forewarn.ports import SWITCHED_ON


class DomainStep(StrEnum):
    """One thing to do. Those with `there` in the name are done at the target of a move."""

    WAIT = "wait"
    PRESS = "press"
    DESTROY = "destroy"
    START = "start"
    RESUME = "resume"
    DEFINE = "define"
    UNDEFINE = "undefine"
    MOVE_LIVE = "move-live"
    GO_COLD = "go-cold"
    GO_BACK = "go-back"
    DEFINE_THERE = "define-there"
    START_THERE = "start-there"
    UNDEFINE_THERE = "undefine-there"
    DONE = "done"
    FAILED = "failed"
    UNSURE = "unsure"
    SPARED = "spared"


class MoveStage(StrEnum):
    """How far a move has come, as the mark of the domain says."""

    LIVE = "live"  # it runs, and is to go on running
    COLD = "cold"  # it cannot be moved while it runs: it is shut down first
    THERE = "there"  # it is off, and is defined and started at the target
    BACK = "back"  # it cannot run at the target: it is started here again


class Next(Struct, frozen=True):
    """The step, and words that the report shall hold."""

    step: DomainStep
    detail: str = ""


class DomainOnHost(Struct, frozen=True, kw_only=True):
    """A domain on one host, as far as one action is concerned.

    `before` is True while it runs as it did before the action began, False once it was started
    since (`domain_xml.DomainMark`).
    """

    power: Power
    active: bool
    before: bool = False


class Patience(Struct, frozen=True, kw_only=True):
    """How long a guest has been asked to shut down, how often, and how long it may take."""

    elapsed_ms: int
    limit_ms: int
    presses: int


def mark_of(view: DomainView | None, action_id: str) -> DomainMark | None:
    """The mark of this action on a domain; that of the configuration if both have one."""
    if view is None:
        return None
    for xml in (view.config_xml, view.live_xml):
        mark = read_mark(xml)
        if mark is not None and mark.action_id == action_id:
            return mark
    return None


def place_of(view: DomainView | None, action_id: str) -> DomainOnHost | None:
    """Where a domain stands with an action. None if there is no such domain.

    A running domain without the action's mark has not been started since the action began: then
    it would have the mark of its configuration.
    """
    if view is None:
        return None
    live = read_mark(view.live_xml) if view.active else None
    started_since = live is not None and live.action_id == action_id and not live.before
    return DomainOnHost(
        power=view.power, active=view.active, before=view.active and not started_since
    )


def shutting_down(here: DomainOnHost, patience: Patience) -> Next:
    """Ask the guest, ask it once more, then pull the plug. For a domain that is active."""
    if here.power is not Power.RUNNING:
        return Next(DomainStep.DESTROY, f"it was {here.power.value} and could not shut down")
    if patience.elapsed_ms >= patience.limit_ms:
        seconds = patience.limit_ms // 1_000
        return Next(DomainStep.DESTROY, f"it did not react to the power button within {seconds} s")
    if patience.presses == 0 or (
        patience.presses == 1 and 2 * patience.elapsed_ms >= patience.limit_ms
    ):
        return Next(DomainStep.PRESS)
    return Next(DomainStep.WAIT)


def rebooting(here: DomainOnHost | None, mark: DomainMark, patience: Patience) -> Next:
    """A restart: off, then started. What its owner had switched off stays off."""
    if here is None:
        return Next(DomainStep.FAILED, "it is no longer on this host")
    if not here.active:
        if mark.found is Power.OFF:
            return Next(DomainStep.DONE, "it was off, and stays off")
        return Next(DomainStep.START)
    if not here.before:
        return Next(DomainStep.DONE, mark.detail)
    return shutting_down(here, patience)


def deleting(here: DomainOnHost | None, patience: Patience) -> Next:
    """Shut down, then forgotten by libvirt."""
    if here is None:
        return Next(DomainStep.DONE)
    return shutting_down(here, patience) if here.active else Next(DomainStep.UNDEFINE)


def defining(here: DomainOnHost | None) -> Next:
    """There, and left as it is: one that was switched off stays off."""
    return Next(DomainStep.DEFINE) if here is None else Next(DomainStep.DONE)


def starting(here: DomainOnHost | None, found: Power | None) -> Next:
    """Running here, from the definition that is here or that is known of it.

    What a move left paused, because only its target knew how it went, goes on where it stands.
    """
    if here is None:
        return Next(DomainStep.DEFINE)
    if here.power is Power.PAUSED and found is Power.RUNNING:
        return Next(DomainStep.RESUME)
    return Next(DomainStep.DONE) if here.active else Next(DomainStep.START)


class MoveInputs(Struct, frozen=True, kw_only=True):
    """Everything a move is decided by.

    `there` is only known if the target answers. `migrating`: libvirt is at work on the domain.
    `cannot_live` and `failed_live` are what libvirt said of an attempt to move it while it runs:
    that it never can, or that it did not succeed. `overdue`: nothing has changed for too long.
    `only_off`: nothing is done to it while it runs.
    """

    here: DomainOnHost | None
    there: DomainOnHost | None
    there_answers: bool
    mark: DomainMark
    migrating: bool = False
    cannot_live: str = ""
    failed_live: str = ""
    overdue: bool = False
    only_off: bool = False
    patience: Patience

    @property
    def stage(self) -> MoveStage:
        return MoveStage(self.mark.step) if self.mark.step else MoveStage.LIVE


def moving(move: MoveInputs) -> Next:
    """The next step of a move, by where the domain is now."""
    here, there = move.here, move.there
    if here is None:
        return _moving_gone_here(move)
    if there is not None and there.active:
        return _moving_at_both(move, here, there)
    if move.only_off and here.active:
        return _moving_switched_on(move)
    if move.stage is MoveStage.BACK:
        return _moving_back(move, here)
    return _moving_running(move, here) if here.active else _moving_off(move)


def _moving_gone_here(move: MoveInputs) -> Next:
    there, target = move.there, move.mark.target_host
    if not move.there_answers:
        words = f"it is no longer on this host, and {target} does not answer"
        return Next(DomainStep.UNSURE, words) if move.overdue else Next(DomainStep.WAIT)
    if there is None:
        return Next(DomainStep.FAILED, f"it is neither on this host nor on {target}")
    if there.active or move.mark.found is Power.OFF:
        return Next(DomainStep.DONE, move.mark.detail)
    return Next(DomainStep.START_THERE)


def _moving_at_both(move: MoveInputs, here: DomainOnHost, there: DomainOnHost) -> Next:
    target = move.mark.target_host
    if not here.active:
        return Next(DomainStep.UNDEFINE)
    if move.migrating:
        return Next(DomainStep.WAIT)
    if there.power is Power.RUNNING and here.power is Power.RUNNING:
        return Next(
            DomainStep.FAILED,
            f"it runs on this host and on {target}: stop one of them at once (virsh destroy)",
        )
    if there.power is Power.RUNNING and move.mark.found is Power.RUNNING:
        return Next(
            DomainStep.DESTROY
        )  # the last word of a migration was lost: it has gone on there
    if move.overdue:
        return Next(
            DomainStep.FAILED,
            f"it is {here.power.value} on this host and {there.power.value} on {target}; "
            "whatever migrated it left it so",
        )
    return Next(DomainStep.WAIT)


def _moving_switched_on(move: MoveInputs) -> Next:
    """It was off when this began, and was switched on here: it stays, and what it left there goes.

    What was there before the move had begun is not ours.
    """
    if move.there is not None and move.stage is not MoveStage.LIVE:
        return Next(DomainStep.UNDEFINE_THERE)
    return Next(DomainStep.SPARED, SWITCHED_ON)


def _moving_back(move: MoveInputs, here: DomainOnHost) -> Next:
    """It is not active there, and it is known never to have been."""
    if not here.active and move.mark.found is not Power.OFF:
        return Next(DomainStep.START)
    if move.there_answers and move.there is not None:
        return Next(DomainStep.UNDEFINE_THERE)
    return Next(DomainStep.FAILED, move.mark.detail or "it could not be moved")


def _moving_running(move: MoveInputs, here: DomainOnHost) -> Next:
    """It is active here and not there."""
    if move.migrating:
        return Next(DomainStep.WAIT)
    if move.stage is MoveStage.LIVE:
        return _moving_live(move, here)
    if not here.before:
        return Next(DomainStep.FAILED, "it was started here from outside while it was moved")
    if not move.there_answers:
        words = f"{move.mark.target_host} does not answer; it was left running here"
        return Next(DomainStep.FAILED, words)
    return shutting_down(here, move.patience)


def _moving_live(move: MoveInputs, here: DomainOnHost) -> Next:
    if move.cannot_live:
        return Next(DomainStep.GO_COLD, f"it could not be moved while it ran: {move.cannot_live}")
    if not move.failed_live:
        return Next(DomainStep.MOVE_LIVE)
    if here.power is Power.PAUSED and move.mark.found is Power.RUNNING:
        if not move.there_answers:
            # Libvirt resumes it where it is sure that it does not run there.
            words = f"{move.mark.target_host} does not answer; it may run there, so it stays paused"
            return Next(DomainStep.UNSURE, words) if move.overdue else Next(DomainStep.WAIT)
        return Next(DomainStep.RESUME)
    return Next(DomainStep.FAILED, move.failed_live)


def _moving_off(move: MoveInputs) -> Next:
    """It is off here, and as far as is known not active there."""
    target = move.mark.target_host
    if move.stage is MoveStage.LIVE:
        return Next(DomainStep.GO_COLD)  # no press of its button: its guest went off by itself
    if move.stage is MoveStage.COLD:
        if not move.there_answers:
            return Next(DomainStep.GO_BACK, f"{target} does not answer")
        return Next(DomainStep.DEFINE_THERE)
    if not move.there_answers:
        # It was about to be started there, so it may run there: two at once would be worse.
        words = f"{target} does not answer; it may run there, so it was not started here"
        return Next(DomainStep.UNSURE, words) if move.overdue else Next(DomainStep.WAIT)
    if move.there is None:
        return Next(DomainStep.DEFINE_THERE)
    return (
        Next(DomainStep.UNDEFINE) if move.mark.found is Power.OFF else Next(DomainStep.START_THERE)
    )
