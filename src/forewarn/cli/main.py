"""The `forewarn` command: its root, and the way out when something is refused."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli.client import Stop
from forewarn.cli.session import AsJson, Session, flag, new_console, plain

app = typer.Typer(
    name="forewarn",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tells every VM what is about to happen to it, waits until it is ready, then does it.",
)

# Each is imported when it is meant: a module with its function or group of commands.
_COMMANDS = {
    "vm": ("adopt", "vm"),
    "host": ("host", "host"),
    "event": ("events", "event"),
    "operation": ("events", "operation"),
    "scope": ("fleet", "scope"),
    "journal": ("journal", "journal"),
    "feed": ("feed", "feed"),
    "watch": ("watch", "watch"),
    "console": ("console", "console"),
    "token": ("tokens", "token"),
    "webhook": ("webhooks", "webhook"),
    "whoami": ("tokens", "whoami"),
    "inventory": ("inventory", "inventory"),
    "backup": ("backups", "backup"),
    "restore": ("backups", "restore"),
    "check-store": ("backups", "check_store"),
    "serve": ("serve", "serve"),
    "control": ("control", "control"),
    "simulate": ("simulate", "simulate"),
    "clock": ("clock", "clock"),
    "scenario": ("scenarios", "scenario"),
    "fault": ("faults", "fault"),
    "verify": ("verify", "verify"),
}
_OF_ROOT = ("--data", "--settings")
# They take these options themselves.
_RUNNING = frozenset({"serve", "control", "simulate"})


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    *,
    data: Annotated[
        Path | None,
        # Who may use its socket need not be able to read the folder; the socket says who may.
        typer.Option(metavar="DIR", readable=False, help="The data folder of the service."),
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A TOML file with settings.")
    ] = None,
    version: Annotated[bool, flag("--version", help="Print the version.")] = False,
    as_json: AsJson = False,
) -> None:
    """Begin a session; the commands do the rest."""
    if version:
        from importlib.metadata import version as version_of  # noqa: PLC0415 - it imports much

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
    `--settings` first, unless the command is one that takes them itself.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    before = [argument for argument in arguments[:end] if argument != "--json"]
    asked = ["--json"] if len(before) < end else []
    first: list[str] = []
    if _command(before) not in _RUNNING:
        first, before = _taken_out(before, _OF_ROOT)
    return [*first, *before, *asked, *arguments[end:]]


def _command(arguments: Sequence[str]) -> str:
    """The command that is meant; empty if none is."""
    _, left = _taken_out(arguments, _OF_ROOT)
    return next((argument for argument in left if not argument.startswith("-")), "")


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


def mount(arguments: Sequence[str]) -> None:
    """Add the command that is meant; for the help, and for what is no command, all of them."""
    meant = _command(arguments)
    if not meant and "--version" in arguments:
        return
    wanted = {meant} if meant in _COMMANDS else _COMMANDS.keys()
    mounted = {command.name for command in app.registered_commands}
    mounted.update(group.name for group in app.registered_groups)
    for name, (module, attribute) in _COMMANDS.items():
        if name not in wanted or name in mounted:
            continue
        found = getattr(import_module(f"forewarn.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name)
        else:
            app.command(name)(found)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: 0 done, 1 refused, 2 misused, 3 no service."""
    given = arranged(sys.argv[1:] if arguments is None else arguments)
    mount(given)
    try:
        app(given, prog_name="forewarn")
    except Stop as stop:
        if "--json" in given and stop.problem is not None:
            Session.show_json(stop.problem)
        session = Session(console=new_console(stderr=True))
        session.print(plain(f"forewarn: {stop.sentence}"))
        if stop.remedy:
            session.print(plain(stop.remedy))
        raise SystemExit(stop.exit_code) from None


if __name__ == "__main__":
    main()
