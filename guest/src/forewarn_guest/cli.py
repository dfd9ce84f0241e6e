"""The program `forewarn-guest`: what can be asked of it, and how it ends.

Each command is imported when it is asked for, because the agent must stay small.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Callable

from forewarn_guest import __version__
from forewarn_guest.errors import (
    ConfigError,
    GuestError,
    JournalDamaged,
    NotFound,
    NotOnThisSystem,
    Unreachable,
)

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - has no other name

DEFAULT_CONFIG = Path("/etc/forewarn-guest/agent.toml")

# Modules of Python that the agent needs and Windows does not have.
_OF_POSIX = ("fcntl", "pwd", "grp", "termios", "resource")

DONE, FAILED, MEND, NO_ENDPOINT = 0, 1, 2, 3
INTERRUPTED = 130  # as shells say it
EXIT_CODES = """\
exit codes:
  0  it was done
  1  it failed, or the endpoint refused it
  2  something has to be mended first: the command line, the configuration, the journal
  3  there is no endpoint, or it does not answer
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        code = _command(options.command)(options)
        sys.stdout.flush()
    except ConfigError as error:
        _complain("The configuration must not be used:", *error.mistakes)
        return MEND
    except GuestError as error:
        _complain(str(error))
        return _code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


def _complain(*lines: str) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def _code_of(error: GuestError) -> int:
    if isinstance(error, (JournalDamaged, NotOnThisSystem)):
        return MEND
    return NO_ENDPOINT if isinstance(error, (NotFound, Unreachable)) else FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="forewarn-guest",
        description="Prepares this VM for what is about to happen to it, says go ahead, and brings"
        " the workload back.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"forewarn-guest {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_agent_commands(commands)
    _add_endpoint_commands(commands)
    _add_system_commands(commands)
    return parser


def _add_agent_commands(commands: Commands) -> None:
    run = _add(commands, "run", "cli_run:run", "be the agent: look after this VM until told to end")
    run.set_defaults(config=DEFAULT_CONFIG)
    status = _add(
        commands, "status", "cli_status:show_status", "what the agent does; 1 if none runs"
    )
    status.add_argument("--file", type=Path, help="the status file, in place of the configured one")
    _add_json(status)
    journal = _add(commands, "journal", "cli_status:show_journal", "the facts that the agent keeps")
    journal.add_argument("--file", type=Path, help="the journal, in place of the configured one")
    _add_json(journal)
    check = _add(
        commands, "check", "cli_check:check", "check the configuration; what would be done now"
    )
    _add_endpoint(check)
    check.add_argument("--document", type=Path, metavar="FILE", help="a saved document to go by")
    check.add_argument("--vm", default="", metavar="NAME", help="the VM's name in events")
    _add_json(check)


def _add_endpoint_commands(commands: Commands) -> None:
    listing = _add(
        commands, "list", "cli_events:show_list", "the events that the endpoint shows now"
    )
    watching = _add(commands, "watch", "cli_events:watch", "every change to them, a line each")
    approving = _add(commands, "approve", "cli_events:approve", "say go ahead for events, at once")
    approving.add_argument("event_id", nargs="+", metavar="ID", help="the EventId")
    approving.add_argument(
        "--anyway", action="store_true", help="also if the document has no such event"
    )
    finding = _add(commands, "discover", "cli_events:show_discovery", "where the endpoint is")
    finding.add_argument("-v", "--verbose", action="store_true", help="what was tried")
    for command in (listing, watching, approving, finding):
        _add_endpoint(command)
    for command in (listing, watching, finding):
        _add_json(command)


def _add_system_commands(commands: Commands) -> None:
    install = _add(commands, "install", "install:install", "make it a service of this machine")
    uninstall = _add(commands, "uninstall", "install:uninstall", "undo what install has done")
    for command in (install, uninstall):
        command.add_argument(
            "--root", type=Path, default=Path("/"), metavar="DIR", help="of an image to work in"
        )
        command.add_argument("--dry-run", action="store_true", help="say it, and do nothing")


def _add(commands: Commands, name: str, command: str, what: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=what,
        description=what[0].upper() + what[1:] + ".",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the configuration ({DEFAULT_CONFIG})"
    )
    parser.set_defaults(command=command, usual_config=DEFAULT_CONFIG)
    return parser


def _add_endpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--endpoint", default="", metavar="URL", help="where it is, in place of looking for it"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="for programs")


def _command(place: str) -> Callable[[argparse.Namespace], int]:
    """The function that does a command; its module is imported only now."""
    module, _, name = place.partition(":")
    try:
        loaded = importlib.import_module(f"forewarn_guest.{module}")
    except ModuleNotFoundError as missing:
        if missing.name not in _OF_POSIX:
            raise
        raise NotOnThisSystem(
            f"This command needs Linux: {missing.name} is missing here. Elsewhere there are list,"
            " watch, approve and discover, and the SDK."
        ) from None
    found: Callable[[argparse.Namespace], int] = getattr(loaded, name)
    return found
