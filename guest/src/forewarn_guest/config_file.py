"""A configuration file -> a checked Configuration, or every mistake in it with its line.

The keys are tables in `config_keys`; here is what they mean together. Nothing is run here, but
the programs that a file names are looked at, because a hook that is missing when the event comes
is found too late.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable

from forewarn_guest.config_files_check import missing_places
from forewarn_guest.config_keys import (
    AGENT,
    COMMANDS,
    PREEMPT,
    RULE,
    STEP,
    Key,
    did_you_mean,
)
from forewarn_guest.config_warnings import warnings_about
from forewarn_guest.configuration import Approve, Configuration, Part, Rule, Step
from forewarn_guest.errors import ConfigError, NotToml
from forewarn_guest.hook_files import find_program, who_may_change
from forewarn_guest.shared_folders import others_than_root
from forewarn_guest.steps import KINDS, read_options
from forewarn_guest.toml_parser import Table
from forewarn_guest.toml_parser import read as read_toml

CONFIG_BYTES_MAX = 262_144
RULES_MAX = 100
STEPS_MAX = 50  # in one list
MARGIN_PREEMPT_S = 1.0  # of thirty seconds
_PARTS = tuple(part.value for part in Part)
_KINDS_OF_STEP = (*COMMANDS, *KINDS)
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_.-]")

Look = Callable[[str], str]


def read(path: Path) -> Configuration:
    """What the file says. Raises ConfigError with every mistake.

    Its warnings are also about files that are not on this machine.
    """
    configuration = parse(_text_of(path), str(path))
    missing = missing_places(configuration, str(path))
    return replace(configuration, warnings=configuration.warnings + missing)


def parse(text: str, where: str, look: Look = find_program) -> Configuration:
    """What a text says. `where` stands before the line of every mistake and warning.

    `look` finds the program of a step: it returns the path to run, or raises ValueError with
    words that follow the key. Raises ConfigError with every mistake; a text that is not TOML has
    one, because the rest of it has no certain meaning.
    """
    page = _Page(where, look)
    try:
        table = read_toml(text)
    except NotToml as error:
        raise ConfigError((f"{where}:{error.line}: {error}",)) from None
    configuration = _configuration(page, table)
    if page.mistakes:
        raise ConfigError(page.sorted_mistakes())
    return configuration


def _text_of(path: Path) -> str:
    """The text of a file that only its owner and group can change; for root, only root."""
    try:
        data = _bytes_of(path)
        why = who_may_change(path) or others_than_root(path) or others_than_root(path.parent)
    except FileNotFoundError:
        says = "There is no such file. Name yours with --config FILE"
        raise ConfigError(
            (f"{path}: {says}, or have `forewarn-guest install` write an example.",)
        ) from None
    except OSError as error:
        raise ConfigError((f"{path}: It cannot be read: {error.strerror}.",)) from None
    if why:
        says = f"A user who can change it can run anything with the agent's rights, and {why}."
        raise ConfigError((f"{path}: {says}",))
    if len(data) > CONFIG_BYTES_MAX:
        raise ConfigError((f"{path}: It has more than {CONFIG_BYTES_MAX:,} bytes.",))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError((f"{path}:{line}: This is not UTF-8.",)) from None


def _bytes_of(path: Path) -> bytes:
    # A pipe must not hold up the start, so it is opened without waiting, and then refused.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise ConfigError((f"{path}: This is no file.",))
        with open(opened, "rb", closefd=False) as file:
            return file.read(CONFIG_BYTES_MAX + 1)
    finally:
        os.close(opened)


class _Page:
    """The file while it is read: its mistakes so far, and how to read tables of it."""

    def __init__(self, where: str, look: Look) -> None:
        self.where = where
        self.look = look
        self.mistakes: list[tuple[int, str]] = []

    def mistake(self, line: int, says: str) -> None:
        end = "" if says.endswith((".", "?")) else "."
        self.mistakes.append((line, says + end))

    def sorted_mistakes(self) -> tuple[str, ...]:
        return tuple(f"{self.where}:{line}: {says}" for line, says in sorted(self.mistakes))

    def refuse_unknown(self, table: Table, known: tuple[str, ...], place: str) -> None:
        for key in table.values:
            if key not in known:
                near = did_you_mean(key, known) or f" There are {', '.join(known)}."
                self.mistake(table.lines[key], f'"{key}" is no key of {place}.{near}')

    def values(self, table: Table, keys: Mapping[str, Key]) -> dict[str, Any]:
        """What each key has or stands for it; a mistake is noted, and the default taken."""
        values = {}
        for name, key in keys.items():
            values[name] = key.default
            if name in table.values:
                value = table.values[name]
                given = value.plain() if isinstance(value, Table) else value
                try:
                    values[name] = key.read(given)
                    continue
                except ValueError as error:
                    self.mistake(table.lines[name], f"{name} {error}")
            if key.default not in (None, ""):
                values[name] = key.read(key.default)
        return values

    def tables(self, table: Table, name: str, header: str, most: int) -> list[Table]:
        """The tables of that name, each under its [[header]]."""
        found = table.values.get(name, [])
        if not isinstance(found, list) or not all(isinstance(one, Table) for one in found):
            says = f"{name} must have double brackets, [[{header}]], before what belongs to it"
            self.mistake(table.lines[name], says)
            return []
        if len(found) > most:
            self.mistake(
                table.lines[name], f"There are {len(found)} [[{header}]]; at most {most} are read"
            )
        return found[:most]


def _configuration(page: _Page, table: Table) -> Configuration:
    page.refuse_unknown(table, ("agent", "rule"), "the file")
    agent = table.values.get("agent", Table(line=1))
    if not isinstance(agent, Table):
        page.mistake(table.lines["agent"], "agent must be a table, like [agent]")
        agent = Table(line=1)
    page.refuse_unknown(agent, tuple(AGENT), "[agent]")
    values = page.values(agent, AGENT)
    written = page.tables(table, "rule", "rule", RULES_MAX)
    if not written and "rule" not in table.values:
        page.mistake(1, "There is no [[rule]], so there is nothing to do about any event")
    rules = tuple(_rule(page, one, number) for number, one in enumerate(written, 1))
    _refuse_equal_names(page, [(rule.name, rule.line) for rule in rules], "rules")
    return Configuration(
        rules=rules,
        folder=values["folder"],
        endpoint=values["endpoint"] or "",
        vm=values["vm"] or "",
        api_version=values["api_version"],
        status_file=values["status_file"],
        metrics_file=values["metrics_file"],
        log_format=values["log"],
        warnings=warnings_about(rules, values["api_version"], page.where),
    )


def _refuse_equal_names(page: _Page, names: list[tuple[str, int]], what: str) -> None:
    first: dict[str, int] = {}
    for name, line in names:
        if name in first:
            page.mistake(
                line,
                f'Two {what} are called "{name}", the other one on line {first[name]};'
                " the journal tells them apart by their names. Give one of them a name",
            )
        first.setdefault(name, line)


def _rule(page: _Page, table: Table, number: int) -> Rule:
    page.refuse_unknown(table, (*RULE, *_PARTS), "[[rule]]")
    values = page.values(table, RULE)
    types = values["types"] or ()
    if PREEMPT in types and "margin" not in table.values:
        values["margin"] = MARGIN_PREEMPT_S
    rule = Rule(
        name=values["name"] or f"rule-{number}",
        event_types=types,
        source=values["source"],
        min_duration_s=values["min_duration"],
        resources=values["resources"] or (),
        ignore=values["ignore"],
        approve=values["approve"],
        take_over_s=values["take_over"],
        margin_s=values["margin"],
        prepare=_steps(page, table, Part.PREPARE),
        started=_steps(page, table, Part.STARTED),
        recover=_steps(page, table, Part.RECOVER),
        canceled=_steps(page, table, Part.CANCELED) if "canceled" in table.values else None,
        line=table.line,
    )
    _check_rule(page, table, rule)
    return rule


def _check_rule(page: _Page, table: Table, rule: Rule) -> None:
    """What the keys of a rule must have together."""
    line_of = {**dict.fromkeys((*RULE, *_PARTS), table.line), **table.lines}
    if PREEMPT in rule.event_types and len(set(rule.event_types)) > 1:
        page.mistake(
            line_of["types"],
            "Preempt must have a rule of its own: it leaves thirty seconds, so its list is short",
        )
    if rule.approve is Approve.AT_ONCE and rule.source != "User":
        page.mistake(
            line_of["approve"],
            'approve = "at-once" goes with source = "User" only: what the platform wants is'
            ' approved when the VM is prepared, with "after-prepare"',
        )
    if "take_over" in table.values and rule.approve is not Approve.FIRST_NAMED:
        page.mistake(line_of["take_over"], 'take_over goes with approve = "first-named" only')
    if rule.ignore:
        for key in ("approve", "margin", "take_over", *_PARTS):
            if key in table.values:
                page.mistake(line_of[key], f"{key} does not go with ignore = true")


def _steps(page: _Page, table: Table, part: Part) -> tuple[Step, ...]:
    written = page.tables(table, part.value, f"rule.{part.value}", STEPS_MAX)
    found = [_step(page, one, part) for one in written]
    steps = tuple(step for step in found if step is not None)
    _refuse_equal_names(page, [(s.name, s.line) for s in steps], f"steps of {part.value}")
    return steps


def _step(page: _Page, table: Table, part: Part) -> Step | None:
    page.refuse_unknown(table, (*STEP, *KINDS), f"[[rule.{part.value}]]")
    values = page.values(table, STEP)
    kinds = [kind for kind in _KINDS_OF_STEP if kind in table.values]
    if len(kinds) != 1:
        has = "has " + " and ".join(kinds) if kinds else "says nothing to do"
        page.mistake(table.line, f"The step {has}. It must have one of {', '.join(_KINDS_OF_STEP)}")
        return None
    kind = kinds[0]
    options: dict[str, object] = {}
    if kind in COMMANDS:
        if values[kind] is None:
            return None  # what is wrong with it has been said
        argv = _command(page, table, kind, values)
        default_name = _NOT_IN_A_NAME.sub("-", Path(argv[0]).name) if kind == "run" else kind
    else:
        argv = (sys.executable, "-m", "forewarn_guest.steps", kind)
        default_name = kind
        options = _options(page, table, kind)
        options["limit"] = values["limit"]  # one place says it, for every kind of step
    return Step(
        name=values["name"] or default_name.lstrip("_.-") or kind,
        kind=kind,
        argv=argv,
        limit_s=values["limit"],
        on_unknown=values["on_unknown"],
        optional=values["optional"],
        options=options,
        line=table.line,
    )


def _command(page: _Page, table: Table, kind: str, values: dict[str, Any]) -> tuple[str, ...]:
    """The argv of a command; after a mistake, as it was written."""
    argv: tuple[str, ...] = ("/bin/sh", "-c", values[kind]) if kind == "shell" else values[kind]
    try:
        return (page.look(argv[0]), *argv[1:])
    except ValueError as error:
        page.mistake(table.lines[kind], f"{kind} {error}")
        return argv


def _options(page: _Page, table: Table, kind: str) -> dict[str, object]:
    """What goes to a built-in step. The step reads it again; here it is only checked."""
    given = table.values[kind]
    if not isinstance(given, Table):
        page.mistake(table.lines[kind], f'{kind} must be a table, like {kind} = {{ key = "..." }}')
        return {}
    known = tuple(option for option in KINDS[kind].options if option != "limit")
    if "limit" in given.values:
        page.mistake(given.lines["limit"], f'limit stands beside {kind}, like limit = "30s"')
    others = Table(given.line, dict(given.values), given.lines)
    others.values.pop("limit", None)
    page.refuse_unknown(others, known, kind)
    options = {key: value for key, value in others.plain().items() if key in known}
    for mistake in read_options(KINDS[kind], options)[1]:
        line = given.lines.get(mistake.option, table.lines[kind])
        page.mistake(line, f"{mistake.option} of {kind} {mistake.says}")
    program = options.get("program")
    if isinstance(program, str) and program.startswith("/"):
        try:
            page.look(program)
        except ValueError as error:
            page.mistake(given.lines["program"], f"program of {kind} {error}")
    return options
