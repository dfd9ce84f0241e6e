"""`forewarn inventory`: the file that says what the fleet is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forewarn.cli import details
from forewarn.cli.client import EXIT_USAGE, Stop
from forewarn.cli.session import AsJson, session_of
from forewarn.core.errors import BadInventory

ANSWER_S = 1_800.0  # one of 200,000 VMs is answered when it was applied

inventory = typer.Typer(no_args_is_help=True, help="The file that says what the fleet is.")


@inventory.command("apply")
def apply_inventory(
    context: typer.Context,
    *,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file.")],
    as_json: AsJson = False,
) -> None:
    """Make the fleet what the file says, whole or not at all."""
    session = session_of(context)
    from forewarn.settings import read_inventory  # noqa: PLC0415 - it imports half of the service

    try:
        text = read_inventory(file)
    except BadInventory as bad:
        raise Stop(EXIT_USAGE, bad.refused, bad.accepted) from None
    reply = session.client().order("inventory", body=text.encode(), timeout_s=ANSWER_S)
    session.show(reply, lambda answer, _: details.applied(answer), as_json=as_json)
