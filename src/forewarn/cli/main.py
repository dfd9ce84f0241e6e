"""The `forewarn` command: its root, and the way out when something is refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli import events, fleet, service, watch
from forewarn.cli.client import Stop
from forewarn.cli.session import AsJson, Session, new_console

app = typer.Typer(
    name="forewarn",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tells every VM what is about to happen to it, waits until it is ready, then does it.",
)
app.add_typer(fleet.vm, name="vm")
app.add_typer(fleet.host, name="host")
app.add_typer(events.event, name="event")
app.add_typer(events.operation, name="operation")
app.add_typer(fleet.scope, name="scope")
app.command("journal")(service.journal)
app.command("watch")(watch.watch)
app.add_typer(service.inventory, name="inventory")
app.command("backup")(service.backup)
app.command("restore")(service.restore)

_OF_OPERATORS = frozenset(
    {"vm", "host", "event", "operation", "scope", "journal"}
    | {"watch", "inventory", "backup", "restore", "verify"}
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data folder of the service to talk to."),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file with settings.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    as_json: AsJson = False,
) -> None:
    """Begin a session; the commands do the rest."""
    if version:
        number = version_of("forewarn")
        if as_json:
            Session.show_json({"version": number})
        else:
            sys.stdout.write(f"forewarn {number}\n")
        raise typer.Exit
    context.obj = Session(data=data, settings=settings)
    if context.invoked_subcommand is None:
        sys.stdout.write(f"{context.get_help()}\n")
        raise typer.Exit(2)


def arranged(arguments: Sequence[str]) -> list[str]:
    """The arguments where they are expected, wherever they stood: `--json` last, and `--data` and
    `--settings` first, unless the command is `serve`, which takes them itself.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before = [argument for argument in arguments[:end] if argument != "--json"]
    asked = ["--json"] if len(before) < end else []
    first: list[str] = []
    if "serve" not in before:
        first, before = _taken_out(before, ("--data", "--settings"))
    return [*first, *before, *asked, *arguments[end:]]


def _taken_out(arguments: Sequence[str], options: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """Options with their values, and what is left without them."""
    found: list[str] = []
    left: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in options:
            found.extend([argument, *([value] if (value := next(rest, None)) is not None else [])])
        elif argument.startswith(tuple(f"{option}=" for option in options)):
            found.append(argument)
        else:
            left.append(argument)
    return found, left


def _mount_serve(arguments: Sequence[str]) -> None:
    """Add `serve` unless another command is plainly meant: it imports the whole service."""
    if _OF_OPERATORS.intersection(arguments) and "serve" not in arguments:
        return
    if any(command.name == "serve" for command in app.registered_commands):
        return
    from forewarn.cli import run  # noqa: PLC0415 - see above

    app.command("serve")(run.serve)


def _mount_verify(arguments: Sequence[str]) -> None:
    """Add `verify` unless another command is plainly meant, for the same reason."""
    if _OF_OPERATORS.intersection(arguments) and "verify" not in arguments:
        return
    if any(command.name == "verify" for command in app.registered_commands):
        return
    from forewarn.cli import verify  # noqa: PLC0415 - see above

    app.command("verify")(verify.verify)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 refused, 2 misused, 3 no service."""
    given = arranged(sys.argv[1:] if arguments is None else arguments)
    _mount_serve(given)
    _mount_verify(given)
    try:
        app(given, prog_name="forewarn")
    except Stop as stop:
        if "--json" in given and stop.problem is not None:
            Session.show_json(stop.problem)
        console = new_console(stderr=True)
        console.print(f"forewarn: {stop.sentence}", soft_wrap=True)
        if stop.remedy:
            console.print(stop.remedy, soft_wrap=True)
        raise SystemExit(stop.exit_code) from None


if __name__ == "__main__":
    main()
