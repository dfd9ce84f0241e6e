"""`forewarn token` and `forewarn whoami`: who may come in over TCP, and what the caller may do."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from forewarn.cli import tables, times
from forewarn.cli.client import EXIT_USAGE, Reply, Stop
from forewarn.cli.session import AsJson, Session, flag, session_of
from forewarn.core.access import Role
from forewarn.core.errors import Invalid
from forewarn.core.model import SECOND_MS
from forewarn.core.tokens import VALID_MS_MAX, VALID_MS_MIN
from forewarn.text.durations import duration_text, parse_duration_ms

token = typer.Typer(
    no_args_is_help=True, help="Tokens: who may ask over TCP, in which role, until when."
)

VALID_DEFAULT = "90d"

Json = dict[str, Any]
Which = Annotated[str, typer.Argument(metavar="TOKEN", help="Its name, or its id.")]
Valid = Annotated[
    str, typer.Option("--valid", metavar="TIME", help="How long it is valid: 12h, 30d, 366d.")
]


@token.command("make")
def make_token(
    context: typer.Context,
    *,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Who holds it; the journal has this name.")
    ],
    role: Annotated[Role, typer.Option("--role", help="What its holder may do.")],
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="A scope of an owner; once for each.")
    ] = None,
    valid: Valid = VALID_DEFAULT,
    later: Annotated[
        bool, flag("--later", help="The scopes need not be there yet, like those of a new team.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make a token, and show its secret this once."""
    session = session_of(context)
    body = {
        "name": name,
        "role": role.value,
        "scopes": scope or [],
        "valid_seconds": _valid_seconds(valid),
        "later": later,
    }
    _show_secret(session, session.client().order("tokens", body=body), as_json=as_json)


@token.command("list")
def list_tokens(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List tokens, those that have ended too. No secret is shown."""
    session = session_of(context)
    reply = session.client().get("tokens")
    session.show(reply, lambda page, now: _table(page["items"], now), as_json=as_json)


@token.command("show")
def show_token(context: typer.Context, *, which: Which, as_json: AsJson = False) -> None:
    """Show a token, without its secret."""
    session = session_of(context)
    session.show(session.client().get("tokens", which), _details, as_json=as_json)


@token.command("rotate")
def rotate_token(
    context: typer.Context,
    *,
    which: Which,
    valid: Valid = VALID_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Give a token another secret, and show it this once. The old one lets in no more."""
    session = session_of(context)
    body = {"valid_seconds": _valid_seconds(valid)}
    _show_secret(
        session, session.client().order("tokens", which, "rotate", body=body), as_json=as_json
    )


@token.command("revoke")
def revoke_token(context: typer.Context, *, which: Which, as_json: AsJson = False) -> None:
    """End a token, at once and for good: it lets no caller in any more."""
    session = session_of(context)
    reply = session.client().order("tokens", which, "revoke")
    session.show(reply, lambda shown, _: f"{_called(shown)} is revoked.", as_json=as_json)


def whoami(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Say who you are to the service, and what you may do."""
    session = session_of(context)
    session.show(session.client().get("whoami"), lambda shown, _: _who(shown), as_json=as_json)


def _valid_seconds(valid: str) -> int:
    try:
        valid_ms = parse_duration_ms(valid)
    except Invalid as wrong:
        raise Stop(EXIT_USAGE, wrong.refused, wrong.accepted) from None
    if not VALID_MS_MIN <= valid_ms <= VALID_MS_MAX:
        accepted = f"{duration_text(VALID_MS_MIN)} to {duration_text(VALID_MS_MAX)}"
        raise Stop(EXIT_USAGE, f"A token cannot be valid for {valid}.", f"Accepted: {accepted}.")
    return -(-valid_ms // SECOND_MS)


def _show_secret(session: Session, reply: Reply, *, as_json: bool) -> None:
    """Print a token that was just made: alone on standard output, so that a shell can take it."""
    if as_json:
        session.show_json(reply.content)
        return
    shown = reply.content
    if shown["token"] is None:
        raise Stop(1, f"{_called(shown)} was made, but its secret is not known.", shown["note"])
    until = times.both(shown["expires"], reply.now)
    told = f"{_called(shown)}, {_role(shown)}, until {until}. It is shown this once:"
    sys.stderr.write(f"{told}\n")
    sys.stdout.write(f"{shown['token']}\n")


def _called(shown: Json) -> str:
    return f"Token {shown['name']} (fwt_{shown['token_id']})"


def _role(shown: Json) -> str:
    of = f" of {', '.join(shown['scopes'])}" if shown["scopes"] else ""
    return f"{shown['role']}{of}"


def _until(shown: Json, now: datetime) -> Text | str:
    if shown["revoked"]:
        return Text(f"revoked {times.away(shown['revoked'], now)}", style="dim")
    if not shown["valid"]:
        return Text(f"expired {times.away(shown['expires'], now)}", style="dim")
    return times.away(shown["expires"], now)


def _table(items: list[Json], now: datetime) -> RenderableType:
    if not items:
        return "There are no tokens. `forewarn token make NAME --role ROLE` makes one."
    table = tables.new_table("TOKEN", "ID", "ROLE", "EXPIRES", "LAST USED", "MADE BY")
    for one in items:
        used = times.away(one["used"], now) or "never"
        table.add_row(
            one["name"], one["token_id"], _role(one), _until(one, now), used, one["made_by"]
        )
    return table


def _details(shown: Json, now: datetime) -> RenderableType:
    rows = [
        ("role", _role(shown)),
        ("made", f"{times.both(shown['made'], now)} by {shown['made_by']}"),
        ("rotated", times.both(shown["rotated"], now)),
        ("expires", times.both(shown["expires"], now)),
        ("last used", times.both(shown["used"], now) or "never"),
        (
            "revoked",
            f"{times.both(shown['revoked'], now)} by {shown['revoked_by']}"
            if shown["revoked"]
            else "",
        ),
    ]
    lines = [Text(f"{word:<10} {said}") for word, said in rows if said]
    return Group(Text(_called(shown), style="bold"), *lines)


def _who(shown: Json) -> str:
    rights = ", ".join(shown["rights"])
    where = f" in {', '.join(shown['scopes'])}" if shown["scopes"] else ""
    return f"{shown['name']} ({shown['id']}), {shown['role']}: may {rights}{where}."
