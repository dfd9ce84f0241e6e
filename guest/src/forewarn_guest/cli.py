"""The program `forewarn-guest`: what can be asked of it, and how it ends.

Each command is imported when it is asked for, because the agent must stay small.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from forewarn_guest import __version__
from forewarn_guest.errors import (
    ConfigError,
    EndpointError,
    GuestError,
    JournalDamaged,
    NotFound,
    Unreachable,
)

DEFAULT_CONFIG = Path("/etc/forewarn-guest/agent.toml")

DONE, FAILED, MEND, NO_ENDPOINT = 0, 1, 2, 3
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
        code: int = options.command(options)
        sys.stdout.flush()
    except ConfigError as error:
        _complain("The configuration must not be used:", *error.mistakes)
        return MEND
    except GuestError as error:
        _complain(str(error))
        return _code_of(error)
    except KeyboardInterrupt:
        return DONE
    except BrokenPipeError:
        # Whoever read has had enough. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    return code


def _complain(*lines: str) -> None:
    sys.stderr.write("".join(f"{line}\n" for line in lines))


def _code_of(error: GuestError) -> int:
    if isinstance(error, JournalDamaged):
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

    run = commands.add_parser("run", help="be the agent: look after this VM until told to end")
    run.add_argument("--config", type=Path, default=DEFAULT_CONFIG, metavar="FILE")
    run.set_defaults(command=_run)
    return parser


def _run(options: argparse.Namespace) -> int:
    from forewarn_guest import starting  # noqa: PLC0415 - only the agent needs it

    try:
        starting.run(options.config)
    except EndpointError as error:
        _complain(str(error))
        return NO_ENDPOINT
    return DONE
