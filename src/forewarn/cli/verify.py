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
# Nothing failed, but what was asked for was not looked at.
EXIT_NOT_LOOKED = 4


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
    flag(
        "--approve",
        help="Also POST; this approves a Scheduled event whose Resources are this VM alone, and "
        "says which.",
    ),
]
ApproveEvent = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="As --approve, with this event, whichever VMs it names. Asks before, on a terminal.",
    ),
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
Strict = Annotated[
    bool, flag("--strict", help="End with 4 if a check was skipped that was not left out.")
]
Quiet = Annotated[bool, flag("--quiet", help="Print what failed and the last line, and no more.")]
InJson = Annotated[bool, flag("--json", help="As --format json. May stand anywhere.")]
Output = Annotated[Format, typer.Option("--format", help="How to print the report.")]


def verify(
    url: Url = "",
    *,
    approve: Approve = False,
    approve_event: ApproveEvent = None,
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
    strict: Strict = False,
    quiet: Quiet = False,
    output: Output = Format.TEXT,
    as_json: InJson = False,
) -> None:
    """Check an endpoint, Forewarn's or another's, sentence by sentence against the contract.

    By default it only sends GETs, below the rate limit, so that it is safe in
    a real VM; note that the first GET of a VM turns scheduled events on for
    it. An endpoint without a rate limit is checked faster with --pace 0.

    Ends with 0 if nothing failed, 1 if something failed, 2 if it cannot be run
    as asked, 3 if nothing answers, and 4 if nothing failed but every check that
    --only names was skipped (with --strict: if any check was).
    """
    output = Format.JSON if as_json else output
    if list_checks or long or not url:
        _list(output, wanted=list_checks, long=long)
        return
    try:
        options = _options(
            approve=approve,
            approve_event=approve_event,
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
            quiet=quiet,
        )
        _report(url, options, output, strict=strict, quiet=quiet)
    except BadOptions as bad:
        raise Stop(EXIT_USAGE, str(bad)) from None
    except NothingAnswers as why:
        raise Stop(EXIT_UNREACHABLE, f"{why}.") from None


def _list(output: Format, *, wanted: bool, long: bool) -> None:
    """List the checks, or say what is missing for a run."""
    if long and not wanted:
        raise Stop(EXIT_USAGE, "--long is for the list of checks.", "Give --list --long.")
    if not wanted:
        raise Stop(EXIT_USAGE, "which endpoint?", "Give its URL, or --list.")
    as_text = output is not Format.JSON
    sys.stdout.write(report_formats.listed(long=long) if as_text else report_formats.listed_json())


def _options(
    *,
    approve: bool,
    approve_event: str | None,
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
    quiet: bool,
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
    if approve_event is not None and operator:
        raise BadOptions("--approve-event is for an event that is there; give it or --operator.")
    return Options(
        approve=approve,
        approve_event=approve_event,
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
        progress=_ignore if quiet else _announce,
        agree=_agree,
    )


def _report(url: str, options: Options, output: Format, *, strict: bool, quiet: bool) -> None:
    if options.operator is not None and options.advance is None:
        options.progress("events take their time; where a clock can be turned, give --advance")
    text = report_formats.TextLines(quiet=quiet)

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
        between = "" if quiet else "\n"
        sys.stdout.write(f"{between}{report_formats.summary(report)}\n")
    if not report.good:
        raise typer.Exit(EXIT_REFUSED)
    skipped = report.not_looked_at(strict=strict)
    if skipped:
        first = skipped[0]
        _announce(
            f"{len(skipped)} skipped, so the result is incomplete; {first.check.id}: {first.why}"
        )
        raise typer.Exit(EXIT_NOT_LOOKED)


def _agree(event: str) -> bool:
    """Ask, where there is a terminal; who named the event elsewhere has said yes."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    return typer.confirm(f"Approve {event}?", err=True)


def _ignore(_: str) -> None:
    """For --quiet."""


def _announce(text: str) -> None:
    sys.stderr.write(f"forewarn verify: {text}\n")
    sys.stderr.flush()


def _words(text: str) -> list[str]:
    return [word for word in (part.strip() for part in text.split(",")) if word]
