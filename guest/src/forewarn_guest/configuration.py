"""What the agent is told to do, as values. Reading a file is `config_file`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any


class Approve(Enum):
    """Who says go ahead, and when."""

    AFTER_PREPARE = "after-prepare"
    AT_ONCE = "at-once"  # User events only
    FIRST_NAMED = "first-named"
    NEVER = "never"


class OnUnknown(Enum):
    """What to make of a step whose end was not recorded."""

    REPEAT = "repeat"
    TREAT_AS_DONE = "treat-as-done"
    TREAT_AS_FAILED = "treat-as-failed"


class Part(Enum):
    """The lists of steps of a rule."""

    PREPARE = "prepare"
    STARTED = "started"
    RECOVER = "recover"
    CANCELED = "canceled"


@dataclass(frozen=True)
class Step:
    """One thing to do. Every step is a process, built-in ones too.

    `argv` is run as it is, without a shell unless the configuration asked for one (then `argv`
    already says so). `options` go to built-in steps, as JSON on standard input beside the event.
    An `optional` step may fail without blocking approval or the steps after it.
    """

    name: str
    kind: str
    argv: tuple[str, ...]
    limit_s: float
    on_unknown: OnUnknown = OnUnknown.TREAT_AS_FAILED
    optional: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    line: int = 0


@dataclass(frozen=True)
class Rule:
    """What to do about the events that it matches. The first rule that matches decides.

    Empty `event_types` are all but Preempt, which wants a rule of its own. `min_duration_s`
    leaves out events that say they are shorter; what says nothing, or -1, matches. Events that an
    `ignore` rule matches are noted and left alone.
    """

    name: str
    event_types: tuple[str, ...] = ()
    source: str = ""
    min_duration_s: int | None = None
    resources: tuple[str, ...] = ()  # patterns like web_*; any name of the event may match
    ignore: bool = False
    approve: Approve = Approve.AFTER_PREPARE
    take_over_s: float = 60.0
    margin_s: float = 10.0
    prepare: tuple[Step, ...] = ()
    started: tuple[Step, ...] = ()
    recover: tuple[Step, ...] = ()
    canceled: tuple[Step, ...] | None = None  # None: what `recover` does
    line: int = 0

    def steps(self, part: Part) -> tuple[Step, ...]:
        """The steps of a part; without an own list, what undoes is what recovers."""
        if part is Part.CANCELED:
            return self.recover if self.canceled is None else self.canceled
        found: tuple[Step, ...] = getattr(self, part.value)
        return found


@dataclass(frozen=True)
class Configuration:
    """The whole of a configuration file, checked.

    `warnings` are what it says that is allowed and probably not meant, each with its line.
    """

    rules: tuple[Rule, ...]
    folder: Path = Path("/var/lib/forewarn-guest")
    endpoint: str = ""
    vm: str = ""
    api_version: str = "2020-07-01"
    status_file: Path | None = None
    metrics_file: Path | None = None
    log_format: str = "text"
    warnings: tuple[str, ...] = ()

    def rule(self, name: str) -> Rule | None:
        return next((rule for rule in self.rules if rule.name == name), None)
