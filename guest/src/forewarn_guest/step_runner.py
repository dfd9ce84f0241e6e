"""The steps that run: beginning them, ending those that are late, finding those of a dead agent.

Nothing is decided here and no fact is kept; the agent does both.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Callable, Protocol, Union

from forewarn_guest.configuration import Part
from forewarn_guest.facts import Outcome
from forewarn_guest.logs import Log
from forewarn_guest.run_files import NotBegun
from forewarn_guest.tracked_event import Run, Stage

STOP_GRACE_S = 5.0  # between asking a step to end and ending it


class RunningStep(Protocol):
    """A step that was begun, by this agent or by one that died."""

    pid: int
    start_ticks: int
    boot_id: str

    @property
    def age_s(self) -> float: ...

    def poll(self) -> int | None: ...

    def stop(self, grace_s: float) -> None: ...

    def said(self) -> str: ...


class StepProcesses(Protocol):
    """What is asked of processes (`processes.Steps`)."""

    boot_id: str

    def reserve(self, name: str) -> None: ...

    def begin(
        self, name: str, argv: tuple[str, ...], *, environment: Mapping[str, str], given: bytes
    ) -> RunningStep: ...

    def find(self, name: str, run: Run) -> RunningStep | int | NotBegun | None: ...


@dataclass(frozen=True)
class End:
    """How a run ended."""

    tracked: str
    run: Run
    outcome: Outcome
    detail: str


@dataclass
class _Under:
    """A step that runs, and when its time is over."""

    run: Run
    step: RunningStep
    until_s: float
    stopped: bool = False


# What has become of a run: it ended, it was never begun, or (None) it still runs and is minded now.
Found = Union[End, NotBegun, None]


class StepRunner:
    """The steps under way, one for each tracked event at most."""

    def __init__(self, steps: StepProcesses, *, log: Log, now_s: Callable[[], float]) -> None:
        self._steps = steps
        self._log = log
        self._now_s = now_s
        self._under: dict[str, _Under] = {}

    def __bool__(self) -> bool:
        return bool(self._under)

    def running(self) -> Iterator[tuple[str, Run]]:
        """What runs now, and for which tracked event."""
        for tracked, under in self._under.items():
            yield tracked, under.run

    def reserve(self, name: str) -> None:
        """Make it possible to tell, after a crash, that the step was never begun."""
        try:
            self._steps.reserve(name)
        except OSError as why:
            self._log.once("reserve", "a crash now could leave a step unknown", why=why)
        else:
            self._log.over("reserve", "steps are known after a crash again")

    def begin(
        self,
        tracked: str,
        run: Run,
        argv: tuple[str, ...],
        *,
        environment: Mapping[str, str],
        given: bytes,
        limit_s: float,
    ) -> RunningStep:
        """Begin a run. Raises OSError if there is no such program or no process to be had."""
        name = run_name(tracked, run.part, run.step, run.attempt)
        step = self._steps.begin(name, argv, environment=environment, given=given)
        self._under[tracked] = _Under(run, step, self._now_s() + limit_s)
        return step

    def ends(self) -> Iterator[End]:
        """Those that have ended since this was last asked; those that are late are told to end."""
        for tracked, under in list(self._under.items()):
            code = under.step.poll()
            if code is None:
                self._stop_if_late(tracked, under)
                continue
            del self._under[tracked]
            said = under.step.said()
            if said:
                self._log.info("step said", tracked_event=tracked, step=under.run.step, said=said)
            yield _end(tracked, under.run, code, stopped=under.stopped)

    def _stop_if_late(self, tracked: str, under: _Under) -> None:
        if under.stopped or self._now_s() < under.until_s:
            return
        under.stopped = True
        self._log.warning("the time of a step is over", tracked_event=tracked, step=under.run.step)
        under.step.stop(STOP_GRACE_S)

    def find(self, tracked: str, run: Run, limit_s: float) -> Found:
        """What has become of a run that an agent before this one had intended or begun.

        One that still runs keeps what is left of its time.
        """
        found = self._steps.find(run_name(tracked, run.part, run.step, run.attempt), run)
        if isinstance(found, NotBegun):
            return found
        if found is None:
            intended = run.stage is Stage.INTENDED
            what = "whether it was begun" if intended else "its end"
            return End(tracked, run, Outcome.UNKNOWN, f"{what} was not recorded")
        if isinstance(found, int):
            end = _end(tracked, run, found, stopped=False)
            return replace(end, detail=f"{end.detail}, without the agent")
        self._log.info("a step still runs", tracked_event=tracked, step=run.step)
        self._under[tracked] = _Under(run, found, self._now_s() + limit_s - found.age_s)
        return None


def _end(tracked: str, run: Run, code: int, *, stopped: bool) -> End:
    if stopped:
        return End(tracked, run, Outcome.TIMED_OUT, f"ended when its time was over, status {code}")
    if code < 0:
        return End(tracked, run, Outcome.UNKNOWN, "its end was not recorded")
    outcome = Outcome.DONE if code == 0 else Outcome.FAILED
    return End(tracked, run, outcome, f"exit status {code}")


def run_name(tracked_id: str, part: Part, step: str, attempt: int) -> str:
    """What a run is called among files: letters, digits and dashes only."""
    plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in step)
    event = "".join(c if c.isalnum() and c.isascii() else "-" for c in tracked_id)
    digest = zlib.crc32(f"{tracked_id}/{part.value}/{step}".encode("utf-8", "replace"))
    return f"{event[:60]}-{part.value}-{plain[:40]}-{digest:08x}-{attempt}"
