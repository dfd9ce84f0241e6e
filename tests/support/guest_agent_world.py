"""The real agent as a process, its steps, and what is left of both to judge by.

A test says which steps there are and what becomes of the VM; the steps keep one file of their own,
`ran`, and the agent keeps its journal. Nothing else is believed. An agent that dies on order
(`dying_agent`) is started again by whoever waits for something.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from forewarn.testing import Cloud, Event
from forewarn_guest import facts as guest_facts
from forewarn_guest.facts import Fact, FactKind
from forewarn_guest.journal import facts_in
from forewarn_guest.run_files import start_ticks
from support.waiting import wait_until

AGENT = Path(sys.executable).with_name("forewarn-guest")
DYING_AGENT = Path(__file__).parent.parent / "guest" / "dying_agent.py"
PATIENCE_S = 60.0

# What a step does is said by files beside it: hold-NAME keeps it from ending, fail-NAME has it
# fail. It ends by itself when its folder is gone.
STEP = """#!/bin/sh
here=${0%/*}
me=$FOREWARN_PART-$FOREWARN_STEP
say() {
  printf '%s\\n' "$1 $FOREWARN_PART $FOREWARN_STEP $$ $FOREWARN_EVENT_ID" >>"$here/ran"
  sync "$here/ran"
}
say began
while [ -e "$here/hold-$me" ]; do sleep 0.02; done
if [ -e "$here/fail-$me" ]; then say failed; echo "$me cannot"; exit 1; fi
say ended
"""

T = TypeVar("T")


@dataclass(frozen=True)
class Ran:
    """One line of what the steps themselves have kept. `what` is began, ended or failed."""

    what: str
    part: str
    step: str
    pid: int
    event_id: str


def rule_text(
    program: Path,
    *,
    head: str = 'name = "all"\ntypes = ["Reboot", "Redeploy", "Freeze", "Terminate"]',
    each: str = 'limit = "120s"',
    special: Mapping[str, str] | None = None,
    **parts: Sequence[str],
) -> str:
    """A rule whose steps are all the program. `special` has further lines for PART-STEP."""
    lines = ["[[rule]]", head]
    for part, steps in parts.items():
        for step in steps:
            lines += ["", f"[[rule.{part}]]", f'name = "{step}"', f'run = ["{program}"]']
            lines.append((special or {}).get(f"{part}-{step}", each))
    return "\n".join(lines) + "\n\n"


LIFE = {
    "prepare": ("drain", "stop"),
    "started": ("note",),
    "recover": ("start", "fill"),
}
WHOLE_LIFE = [f"{part}-{step}" for part, steps in LIFE.items() for step in steps]


class Guest:
    """One VM: a folder with a configuration, a step, a journal, and the agent, if it runs."""

    def __init__(self, folder: Path, url: str, *, vm: str = "vm0") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.data = folder / "data"
        self.config = folder / "agent.toml"
        self.program = folder / "step"
        self.program.write_text(STEP, encoding="ascii")
        self.program.chmod(0o755)
        self.url = url
        self.vm = vm
        self.deaths = 0
        kept = ("PATH", "PYTHONPATH", "LANG")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        self.under: Sequence[str] = ()  # a command that runs the agent in another place
        self.while_dead: Callable[[], None] = lambda: None
        self.further_deaths: list[str] = []  # of the agents that are started by `revive`
        self._starts = 0
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, *rules: str, more: str = "") -> None:
        """Write the configuration."""
        head = f'[agent]\nfolder = "{self.data}"\nendpoint = "{self.url}"\nvm = "{self.vm}"\n'
        self.config.write_text(f"{head}{more}\n{''.join(rules)}", encoding="utf-8")

    def rule(self, **words: Any) -> str:
        """A rule of steps of this VM; without words, the whole of a life."""
        parts = set(words) & {*LIFE, "canceled"}
        return rule_text(self.program, **(words if parts else {**words, **LIFE}))

    def live(self) -> None:
        """Write the configuration of a whole life and start the agent."""
        self.configure(self.rule())
        self.start()

    # Its agent.

    def start(self, *, dies: str = "") -> None:
        """Start the agent. `dies` is WHEN:N, for an agent that kills itself at its N-th append."""
        assert self._process is None, "it runs already"
        self._starts += 1
        program = [sys.executable, str(DYING_AGENT)] if dies else [str(AGENT)]
        with self._said().open("wb") as said:
            self._process = subprocess.Popen(
                [*self.under, *program, "run", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                env={**self.environment, **({"DIES": dies} if dies else {})},
                start_new_session=True,
                cwd="/",
            )

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def exit_code(self) -> int:
        """How the agent ended, once it has."""
        assert self._process is not None, "it does not run"
        code = self._process.wait(PATIENCE_S)
        self._process = None
        return code

    def kill(self) -> None:
        """SIGKILL to the agent alone; its steps go on."""
        assert self._process is not None, "it does not run"
        self._process.kill()
        assert self.exit_code() == -signal.SIGKILL
        self.deaths += 1

    def stop(self) -> None:
        """Have the agent end as systemd would."""
        assert self._process is not None, "it does not run"
        self._process.terminate()
        assert self.exit_code() == 0, self.said()

    def kill_steps(self) -> None:
        """SIGKILL to whatever still runs of the steps that the journal knows."""
        for fact in self.facts(FactKind.BEGUN):
            pid = fact.detail["pid"]
            if start_ticks(pid) == fact.detail["start_ticks"]:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)

    def end(self) -> None:
        """Nothing of this VM runs after this."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE_S)
            self._process = None
        for path in self.folder.glob("hold-*"):
            path.unlink()
        (self.folder / "gate").touch()
        with suppress(OSError):
            self.kill_steps()

    # What there is to see.

    def _said(self) -> Path:
        return self.folder / f"said-{self._starts}"

    def said(self) -> str:
        """What all agents of this VM have written to their logs."""
        files = (self.folder / f"said-{number}" for number in range(1, self._starts + 1))
        return "".join(path.read_text(encoding="utf-8", errors="replace") for path in files)

    def facts(self, *kinds: FactKind, **detail: Any) -> list[Fact]:
        """The facts of the journal of these kinds, or all, that have this detail."""
        return [
            fact
            for fact in map(guest_facts.from_json, facts_in(self.data / "journal"))
            if (not kinds or fact.kind in kinds)
            and all(fact.detail.get(name) == value for name, value in detail.items())
        ]

    def ran(self, part: str = "", step: str = "", *, what: str = "began") -> list[Ran]:
        """What the steps have kept."""
        try:
            lines = (self.folder / "ran").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        rows = [line.split() for line in lines]
        found = [Ran(row[0], row[1], row[2], int(row[3]), row[4]) for row in rows]
        return [
            one
            for one in found
            if one.what == what and part in ("", one.part) and step in ("", one.step)
        ]

    def order(self, what: str = "began") -> list[str]:
        """The steps that were run, in their order."""
        return [f"{one.part}-{one.step}" for one in self.ran(what=what)]

    def status(self) -> dict[str, Any]:
        """The status file."""
        found: dict[str, Any] = json.loads((self.data / "status.json").read_text(encoding="utf-8"))
        return found

    # Waiting.

    def wait_for(self, look: Callable[[], T], what: str, *, patience_s: float = PATIENCE_S) -> T:
        """Look until there is something to see. An agent that died is started again meanwhile."""

        def revived_look() -> T:
            self.revive()
            return look()

        return wait_until(revived_look, lambda: f"{what}\n{self.story()}", limit_s=patience_s)

    def revive(self) -> None:
        """If the agent was killed, see to what happens then, and start it again."""
        if self._process is None or self._process.poll() is None:
            return
        code = self.exit_code()
        assert code == -signal.SIGKILL, f"the agent ended with {code}\n{self.story()}"
        self.deaths += 1
        self.while_dead()
        self.start(dies=self.further_deaths.pop(0) if self.further_deaths else "")

    def wait_begun(self) -> None:
        """Until the agent that runs now has read its journal and begun."""
        self.wait_for(lambda: " info begin " in self._said().read_text(), "it has begun")

    def wait_closed(self, times: int = 1, *, patience_s: float = PATIENCE_S) -> None:
        """Until nothing is left to be done about so many events."""
        self.wait_for(
            lambda: len(self.facts(FactKind.CLOSED)) >= times, "it is closed", patience_s=patience_s
        )

    def wait_ran(self, part: str, step: str, *, what: str = "began", times: int = 1) -> None:
        """Until the step itself has said so."""
        self.wait_for(
            lambda: len(self.ran(part, step, what=what)) >= times, f"{part} {step} has {what}"
        )

    def wait_ended(self, part: str, step: str) -> None:
        """Until the journal has the end of the step."""
        self.wait_for(
            lambda: self.facts(FactKind.ENDED, part=part, step=step), f"{part} {step} has ended"
        )

    def story(self) -> str:
        facts = "\n".join(str(fact.to_json()) for fact in self.facts())
        return f"{facts}\n{self.order()}\n{self.said()}"

    def hold(self, part: str, step: str) -> Path:
        """The step does not end until this file is removed."""
        path = self.folder / f"hold-{part}-{step}"
        path.touch()
        return path

    def fail(self, part: str, step: str) -> None:
        """The step fails."""
        (self.folder / f"fail-{part}-{step}").touch()


@contextmanager
def guest_of(cloud: Cloud, folder: Path, vm: str = "vm0") -> Iterator[Guest]:
    """A VM of the cloud without an agent yet. Nothing of it runs after the block."""
    guest = Guest(folder / vm, cloud.vm(vm).url, vm=vm)
    try:
        yield guest
    finally:
        guest.end()


def approved(cloud: Cloud, event: Event) -> bool:
    return bool(cloud.approvals(event))


def finish(cloud: Cloud, event: Event) -> None:
    """Turn the clock until the event has started and is gone."""
    if approved(cloud, event):
        cloud.expect_started(event, within=60)
    elif cloud.event(event).started is None:
        cloud.clock.advance(minutes=15)
    while not cloud.event(event).gone:
        cloud.clock.next()


def play(cloud: Cloud, guest: Guest, event: Event) -> None:
    """A whole life of an event, from being scheduled to being closed, with whoever dies in it."""
    guest.wait_for(
        lambda: approved(cloud, event) or guest.facts(FactKind.WITHHELD) or cloud.event(event).gone,
        "it is approved, or that is refused",
    )
    if approved(cloud, event):
        cloud.expect_started(event, within=60)
    elif cloud.event(event).started is None:
        cloud.clock.advance(minutes=15)
    guest.wait_for(
        lambda: (
            guest.facts(FactKind.ENDED, FactKind.LEFT_OUT, part="started")
            or cloud.event(event).gone
        ),
        "what is to be done when it has started is done",
    )
    finish(cloud, event)
    guest.wait_closed()


# Judging.


def judge(guest: Guest, expected: Mapping[str, Sequence[str]] | None = None) -> None:
    """Nothing was silently run twice and nothing silently left out, by the journal and the steps.

    For one event that was taken care of alone. `expected` are the steps of the parts that had to
    be run; without it, the whole of a life.
    """
    wanted = [(part, step) for part, steps in (expected or LIFE).items() for step in steps]
    ran = {(one.part, one.step) for one in guest.ran()}
    assert ran <= set(wanted), guest.story()
    for part, step in wanted:
        _judge_step(guest, part, step)
    assert len(guest.facts(FactKind.APPEARED)) == 1, guest.story()
    assert len(guest.facts(FactKind.CLOSED)) == 1, guest.story()
    _judge_approval(guest)


def _judge_step(guest: Guest, part: str, step: str) -> None:
    runs = guest.ran(part, step)
    ends = _ends(guest, part, step)
    if not ends:
        left_out = guest.facts(FactKind.LEFT_OUT, part=part, step=step)
        assert not runs, f"{part} {step} was silently run\n{guest.story()}"
        assert len(left_out) == 1, f"{part} {step} was silently skipped\n{guest.story()}"
        assert left_out[0].detail["why"], guest.story()
        return
    assert len(runs) <= len(ends), f"{part} {step} was silently repeated\n{guest.story()}"
    assert set(ends[:-1]) <= {"unknown"}, f"why was it repeated?\n{guest.story()}"
    if ends[-1] == "unknown":
        ruled = guest.facts(FactKind.RULED, part=part, step=step)
        assert len(ruled) == 1, f"nobody said what {part} {step} counts as\n{guest.story()}"
    else:
        known = guest.ran(part, step, what="ended") + guest.ran(part, step, what="failed")
        assert known, f"{part} {step} did not do what the journal says\n{guest.story()}"


def _ends(guest: Guest, part: str, step: str) -> list[str]:
    """How each run of a step ended that was not surely never begun, by the journal, in order."""
    ends: list[str] = []
    under_way: int | None = None
    kinds = (FactKind.INTENDED, FactKind.NOT_BEGUN, FactKind.ENDED)
    for fact in guest.facts(*kinds, part=part, step=step):
        attempt = fact.detail["attempt"]
        if fact.kind is FactKind.INTENDED:
            assert under_way is None, f"{part} {step} was run beside itself\n{guest.story()}"
            under_way = attempt
            continue
        assert under_way == attempt, guest.story()
        under_way = None
        if fact.kind is FactKind.ENDED:
            ends.append(fact.detail["outcome"])
    assert under_way is None, f"the end of {part} {step} is not kept\n{guest.story()}"
    return ends


def _judge_approval(guest: Guest) -> None:
    """By the order of the journal: what may be approved is prepared, each step of it."""
    facts = guest.facts()
    said = [
        at for at, fact in enumerate(facts) if fact.kind in (FactKind.APPROVING, FactKind.APPROVED)
    ]
    if not said:
        return
    for step in LIFE["prepare"]:
        done = [
            at
            for at, fact in enumerate(facts)
            if fact.detail.get("part") == "prepare"
            and fact.detail.get("step") == step
            and "done" in (fact.detail.get("outcome"), fact.detail.get("counts_as"))
        ]
        assert done, guest.story()
        assert done[0] < said[0], f"approved before {step} was done\n{guest.story()}"
