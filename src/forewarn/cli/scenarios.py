"""`forewarn scenario`: the shipped scenarios, and runs of them or of one's own scripts.

Lists and scripts come with the program; a run needs an emulator (`forewarn simulate`).
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from forewarn.cli import tables, times
from forewarn.cli.client import EXIT_REFUSED, EXIT_USAGE, Stop
from forewarn.cli.session import AsJson, flag, session_of
from forewarn.core.errors import Refusal
from forewarn.core.suggestions import meant, shown
from forewarn.emulator.scenarios import answers, library
from forewarn.emulator.scenarios.file import SCENARIO_BYTES_MAX, parse
from forewarn.emulator.scenarios.values import Needs, Scenario, StepPhase

scenario = typer.Typer(
    no_args_is_help=True, help="Scripts for the emulator: look at them, run them."
)

SUFFIX = ".toml"

What = Annotated[
    str, typer.Argument(metavar="NAME|FILE", help="A shipped scenario, or a script of one's own.")
]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="Its id, like run-1.")]


@scenario.command("list")
def list_scenarios(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List the shipped scenarios."""
    session = session_of(context)
    found = answers.listed()
    if as_json:
        session.show_json(msgspec.to_builtins(found))
        return
    table = tables.new_table("SCENARIO", "WHAT HAPPENS", "NEEDS", whole=("SCENARIO",))
    for line in found.items:
        table.add_row(line.name, line.title, needs_words(line.needs))
    session.console.print(table)


@scenario.command("show")
def show_scenario(
    context: typer.Context,
    *,
    what: What,
    toml: Annotated[bool, flag("--toml", help="Print the script, to make one's own.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a scenario does and when, or what is wrong with a script."""
    session = session_of(context)
    found = _read(what)
    if as_json:
        session.show_json(msgspec.to_builtins(answers.shown(found)))
    elif toml:
        session.console.print(Text(found.text.rstrip("\n")), soft_wrap=True)
    else:
        session.console.print(_details(found))


@scenario.command("run")
def run_scenario(
    context: typer.Context,
    *,
    what: What,
    on: Annotated[
        str | None,
        typer.Option(metavar="VM|SCOPE", help="What it runs on; by default the first that fits."),
    ] = None,
    to_end: Annotated[bool, flag("--to-end", help="Turn the clock until the run is over.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a scenario on the emulator. Ends with 1 if a step that was due is refused."""
    session = session_of(context)
    body: dict[str, object] = {"name": what, "on": on, "to_end": to_end}
    if what not in library.names():
        found = _read(what)
        body |= {"name": found.name, "toml": found.text}
    reply = session.client().order("scenarios", "runs", body=body)
    session.show(reply, _begun, as_json=as_json)
    if any(step["phase"] == StepPhase.REFUSED for step in reply.content["steps"]):
        raise typer.Exit(EXIT_REFUSED)


@scenario.command("runs")
def list_runs(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List the runs that the emulator knows, with every step."""
    session = session_of(context)
    session.show(session.client().get("scenarios", "runs"), _runs, as_json=as_json)


@scenario.command("stop")
def stop_run(context: typer.Context, *, run: RunId, as_json: AsJson = False) -> None:
    """Take no further step of a run. What was done stays done."""
    session = session_of(context)
    reply = session.client().order("scenarios", "runs", run, "stop")
    session.show(reply, run_details, as_json=as_json)


def _read(what: str) -> Scenario:
    """A shipped scenario by its name, or a script by its file."""
    names = library.names()
    file = Path(what)
    try:
        if what in names:
            return library.load(what)
        if not file.is_file():
            raise Stop(
                EXIT_USAGE, f"There is no scenario and no file {shown(what)}.", meant(what, names)
            )
        with file.open("rb") as opened:  # no more than a script may have, and one byte to say so
            text = opened.read(SCENARIO_BYTES_MAX + 1).decode("utf-8-sig")
        return parse(text, name=file.name.removesuffix(SUFFIX))
    except Refusal as refused:
        raise Stop(EXIT_USAGE, refused.refused, refused.accepted) from None
    except UnicodeDecodeError:
        raise Stop(EXIT_USAGE, f"{file} is not UTF-8.", "A TOML file is accepted.") from None
    except OSError as error:
        why = error.strerror or error
        raise Stop(EXIT_USAGE, f"{file} cannot be read: {why}.", "Name another file.") from None


# For people.


def needs_words(needs: Needs) -> str:
    """What a fleet must have, beyond one VM on one host."""
    parts = [
        tables.count(needs.vms, "VM") if needs.vms > 1 else "",
        tables.count(needs.domains, "update domain") if needs.domains > 1 else "",
        tables.count(needs.hosts, "host") if needs.hosts > 1 else "",
        "a spot VM" if needs.spot else "",
    ]
    return ", ".join(part for part in parts if part) or "any VM"


def _details(found: Scenario) -> RenderableType:
    table = tables.new_table("AT", "STEP", whole=("AT",))
    for step in answers.shown(found).steps:
        table.add_row(step.at, step.what)
    about = " ".join(found.about.split())
    return Group(
        Text(f"{found.name}: {found.title}", style="bold"),
        *([Text(about)] if about else []),
        Text(f"Needs {needs_words(found.needs)}."),
        Text(),
        table,
    )


def _begun(run: dict[str, Any], now: datetime) -> RenderableType:
    """A run that has just begun, and how it goes on: on a clock that stands, not by itself."""
    if run["over"]:
        return run_details(run, now)
    hint = "`forewarn clock next` turns the clock to what is due next; `scenario runs` looks again."
    return Group(run_details(run, now), Text(), Text(hint))


def run_details(run: dict[str, Any], now: datetime) -> RenderableType:
    """A run: its steps with what became of them, and its events."""
    over = "is over" if run["over"] else "is under way"
    steps = tables.new_table("AT", "STEP", "PHASE", "", whole=("AT", "PHASE"))
    for step in run["steps"]:
        steps.add_row(step["at"], step["what"], step["phase"], step["said"])
    parts: list[RenderableType] = [
        Text(f"{run['run_id']}: {run['scenario']} on {run['on']} {over}", style="bold"),
        steps,
    ]
    if run["events"]:
        parts += [Text(), _events(run["events"], now)]
    return Group(*parts)


def _events(events: list[dict[str, Any]], now: datetime) -> RenderableType:
    table = tables.new_table("EVENT", "TYPE", "VMS", "PHASE", "NOT BEFORE", whole=("EVENT",))
    for event in events:
        table.add_row(
            tables.short(event["event_id"]),
            event["event_type"],
            ", ".join(event["resources"]),
            tables.phase(event["phase"]),
            times.both(event["not_before"], now),
        )
    return table


def _runs(page: dict[str, Any], now: datetime) -> RenderableType:
    if not page["items"]:
        return Text("No scenario has been run.")
    parts: list[RenderableType] = []
    for run in page["items"]:
        parts += [run_details(run, now), Text()]
    return Group(*parts[:-1])
