"""`forewarn verify`: the conformance kit on the command line."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from forewarn.cli.client import EXIT_REFUSED, EXIT_UNREACHABLE, EXIT_USAGE, Stop
from forewarn.cli.session import flag
from forewarn.verify import (
    BadOptions,
    NothingAnswers,
    Options,
    Outcome,
    commands,
    report_formats,
    run,
)
from forewarn.verify.documents import EVENT_TYPES
from forewarn.verify.options import PACE_PER_S, TIMEOUT_S, Profile

TIMEOUT_MAX_S = 600.0


class Format(StrEnum):
    """How the report is printed."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"


class Follows(StrEnum):
    """Whose choices are checked."""

    FOREWARN = "forewarn"
    AZURE = "azure"


Url = Annotated[
    str, typer.Argument(metavar="URL", help="The endpoint, for instance http://169.254.169.254.")
]
Approve = Annotated[
    bool,
    flag("--approve", help="Also POST; this approves a Scheduled event that is there."),
]
Operator = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[TYPE=]CMD",
        help="Schedules an event on the endpoint; {type}, {verb} and {vm} are filled in. Allows "
        "the full lifecycle, approvals included. May be repeated with TYPE=CMD.",
    ),
]
Types = Annotated[
    str, typer.Option(metavar="TYPE,...", help="The event types that CMD can schedule.")
]
Cancel = Annotated[
    str | None, typer.Option(metavar="CMD", help="Cancels an event; {event} is its EventId.")
]
Advance = Annotated[
    str | None,
    typer.Option(
        metavar="CMD",
        help="Turns the clock of an emulator by {seconds}; without it the run waits.",
    ),
]
VmName = Annotated[
    str | None,
    typer.Option("--vm", metavar="NAME", help="The VM for CMD; by default what it says it is."),
]
Burst = Annotated[
    bool, flag("--burst", help="Also go beyond the rate limit, which others may feel.")
]
ProfileName = Annotated[
    Follows, typer.Option(help="azure leaves out what Forewarn decided for itself.")
]
Only = Annotated[
    str, typer.Option(metavar="ID,...", help="Only these checks or topics, and their needs.")
]
Skip = Annotated[str, typer.Option(metavar="ID,...", help="Not these checks or topics.")]
Pace = Annotated[
    float, typer.Option(metavar="N", help="At most N requests per second; 0 is no limit.")
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", help="How long an answer may take.")]
ListChecks = Annotated[bool, flag("--list", help="List every check, with its source, and stop.")]
Long = Annotated[bool, flag("--long", help="List too what each check cannot see.")]
InJson = Annotated[bool, flag("--json", help="As --format json. May stand anywhere.")]
Output = Annotated[Format, typer.Option("--format", help="How to print the report.")]


def verify(
    url: Url = "",
    *,
    approve: Approve = False,
    operator: Operator = None,
    types: Types = "Reboot",
    cancel: Cancel = None,
    advance: Advance = None,
    vm: VmName = None,
    burst: Burst = False,
    profile: ProfileName = Follows.FOREWARN,
    only: Only = "",
    skip: Skip = "",
    pace: Pace = PACE_PER_S,
    timeout: Timeout = TIMEOUT_S,
    list_checks: ListChecks = False,
    long: Long = False,
    output: Output = Format.TEXT,
    as_json: InJson = False,
) -> None:
    """Check an endpoint, Forewarn's or another's, sentence by sentence against the contract.

    By default it only sends GETs, below the rate limit, so that it is safe in
    a real VM; note that the first GET of a VM turns scheduled events on for
    it. An endpoint without a rate limit is checked faster with --pace 0. Ends
    with 0 only if nothing failed.
    """
    output = Format.JSON if as_json else output
    if list_checks:
        as_text = output is not Format.JSON
        sys.stdout.write(
            report_formats.listed(long=long) if as_text else report_formats.listed_json()
        )
        return
    if long:
        raise Stop(EXIT_USAGE, "--long is for the list of checks.", "Give --list --long.")
    if not url:
        raise Stop(EXIT_USAGE, "which endpoint?", "Give its URL, or --list.")
    try:
        options = _options(
            approve=approve,
            operator=operator or [],
            types=_words(types),
            cancel=cancel,
            advance=advance,
            vm=vm,
            burst=burst,
            profile=profile.value,
            only=_words(only),
            skip=_words(skip),
            pace=pace,
            timeout=timeout,
        )
        if operator and advance is None:
            _announce("events take their time; where a clock can be turned, give --advance")
        _report(url, options, output)
    except BadOptions as bad:
        raise Stop(EXIT_USAGE, str(bad)) from None
    except NothingAnswers as why:
        raise Stop(EXIT_UNREACHABLE, f"{why}.") from None


def _options(
    *,
    approve: bool,
    operator: list[str],
    types: list[str],
    cancel: str | None,
    advance: str | None,
    vm: str | None,
    burst: bool,
    profile: Profile,
    only: list[str],
    skip: list[str],
    pace: float,
    timeout: float,
) -> Options:
    unknown = [name for name in types if name not in EVENT_TYPES]
    if unknown or not types:
        known = ", ".join(sorted(EVENT_TYPES))
        raise BadOptions(f"--types {','.join(types)}: there are {known}.")
    if not 0 < timeout <= TIMEOUT_MAX_S:
        raise BadOptions(f"--timeout {timeout:g}: more than 0 and at most {TIMEOUT_MAX_S:g} s.")
    if not 0 <= pace < float("inf"):
        raise BadOptions(f"--pace {pace:g}: requests per second, or 0 for no limit.")
    schedule, able = commands.operator(operator, types)
    if cancel is not None and not operator:
        raise BadOptions("--cancel cancels what --operator schedules; give both.")
    return Options(
        approve=approve,
        burst=burst,
        operator=schedule if operator else None,
        cancel=None if cancel is None else commands.cancel(cancel),
        advance=None if advance is None else commands.advance(advance),
        types=tuple(able) or tuple(types),
        vm=vm,
        profile=profile,
        only=tuple(only),
        skip=tuple(skip),
        pace_per_s=pace,
        timeout_s=timeout,
        announce=_announce,
    )


def _report(url: str, options: Options, output: Format) -> None:
    text = report_formats.TextLines()

    def each(outcome: Outcome) -> None:
        if output is Format.TEXT:
            sys.stdout.write("".join(f"{line}\n" for line in text.lines(outcome)))
            sys.stdout.flush()

    report = run(url, options, each=each)
    if output is Format.JSON:
        sys.stdout.write(report_formats.as_json(report))
    elif output is Format.JUNIT:
        sys.stdout.write(report_formats.as_junit(report))
    else:
        sys.stdout.write(f"\n{report_formats.summary(report)}\n")
    if not report.good:
        raise typer.Exit(EXIT_REFUSED)


def _announce(text: str) -> None:
    sys.stderr.write(f"forewarn verify: {text}\n")
    sys.stderr.flush()


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]
