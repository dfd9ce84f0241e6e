"""`forewarn webhook`: where lines of the feed are sent, and how that goes."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from forewarn.cli import tables, times
from forewarn.cli.client import EXIT_REFUSED, EXIT_USAGE, Reply, Stop
from forewarn.cli.session import AsJson, Session, flag, session_of
from forewarn.core.errors import Invalid
from forewarn.core.model import SECOND_MS, WebhookFormat
from forewarn.text.durations import parse_duration_ms

webhook = typer.Typer(no_args_is_help=True, help="Webhooks: where lines of the feed are sent.")

OVERLAP_DEFAULT = "24h"
TEST_LIMIT_S = 30.0  # a receiver has 20
SAID_CHARS_MAX = 300  # of what a receiver says, on a terminal

Json = dict[str, Any]
Which = Annotated[str, typer.Argument(metavar="WEBHOOK", help="Its name, or its id.")]
Scopes = Annotated[
    list[str] | None, typer.Option("--scope", help="Only lines of this scope; once for each.")
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", help="Only lines of this kind; once for each.")
]
Batch = Annotated[
    int | None, typer.Option("--batch", min=1, max=100, help="Lines that one request may have.")
]
Later = Annotated[bool, flag("--later", help="The scopes need not be there yet.")]


@webhook.command("add")
def add_webhook(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called here.")],
    url: Annotated[str, typer.Argument(metavar="URL", help="Where lines are sent: https://...")],
    form: Annotated[
        WebhookFormat, typer.Option("--format", help="In which words; text is for chat.")
    ] = WebhookFormat.CLOUDEVENTS,
    scope: Scopes = None,
    kind: Kinds = None,
    batch: Batch = None,
    begin: Annotated[
        str,
        typer.Option("--from", metavar="ID", help="After which line it begins: an id, `oldest`."),
    ] = "end",
    later: Later = False,
    as_json: AsJson = False,
) -> None:
    """Send lines of the feed to a place, and show the secret that signs them this once."""
    session = session_of(context)
    body: Json = {"name": name, "url": url, "format": form.value, "after": begin, "later": later}
    body |= {"scopes": scope or [], "kinds": kind or [], "batch": batch or 1}
    _show_secret(session, session.client().order("webhooks", body=body), as_json=as_json)


@webhook.command("list")
def list_webhooks(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List webhooks, and how each is doing."""
    session = session_of(context)
    reply = session.client().get("webhooks")
    session.show(reply, lambda page, now: _table(page["items"], now), as_json=as_json)


@webhook.command("show")
def show_webhook(context: typer.Context, *, which: Which, as_json: AsJson = False) -> None:
    """Show a webhook: how far it has come, and what its receiver has answered last."""
    session = session_of(context)
    session.show(session.client().get("webhooks", which), _details, as_json=as_json)


@webhook.command("change")
def change_webhook(
    context: typer.Context,
    *,
    which: Which,
    name: Annotated[str | None, typer.Option("--name", help="Another name.")] = None,
    url: Annotated[str | None, typer.Option("--url", help="Another place.")] = None,
    form: Annotated[WebhookFormat | None, typer.Option("--format", help="Other words.")] = None,
    scope: Scopes = None,
    kind: Kinds = None,
    everything: Annotated[
        bool, flag("--everything", help="Lines of every scope and kind that is not named here.")
    ] = False,
    batch: Batch = None,
    later: Later = False,
    as_json: AsJson = False,
) -> None:
    """Have a webhook send elsewhere, in other words, or other lines. The rest stays as it is."""
    session = session_of(context)
    said: Json = {
        "name": name,
        "url": url,
        "format": form.value if form is not None else None,
        "scopes": scope or ([] if everything else None),
        "kinds": kind or ([] if everything else None),
        "batch": batch,
    }
    body = {key: value for key, value in said.items() if value is not None}
    if not body:
        raise Stop(EXIT_USAGE, "Nothing is to be changed.", "Say at least one option.")
    reply = session.client().order("webhooks", which, "change", body={**body, "later": later})
    session.show(reply, _details, as_json=as_json)


@webhook.command("test")
def try_webhook(context: typer.Context, *, which: Which, as_json: AsJson = False) -> None:
    """Send a marked line at once, and show what comes back."""
    session = session_of(context)
    reply = session.client().order("webhooks", which, "test", timeout_s=TEST_LIMIT_S)
    session.show(reply, lambda said, _: _tried(said), as_json=as_json)
    if not reply.content["taken"]:
        raise Stop(
            EXIT_REFUSED,
            f"The receiver of {which} has not taken it.",
            "Any answer from 200 to 299 says that it has.",
        )


@webhook.command("rotate")
def rotate_webhook(
    context: typer.Context,
    *,
    which: Which,
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="TIME", help="How long the old secret signs too: 0, 7d."),
    ] = OVERLAP_DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Give a webhook another secret, and show that this once. For a while both sign."""
    session = session_of(context)
    body = {"overlap_seconds": _seconds(overlap)}
    _show_secret(
        session, session.client().order("webhooks", which, "rotate", body=body), as_json=as_json
    )


@webhook.command("replay")
def replay_webhook(
    context: typer.Context,
    *,
    which: Which,
    begin: Annotated[
        str,
        typer.Option(
            "--from", metavar="ID", help="After which line: its id or number, `oldest` or `end`."
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Have a webhook go on after another line: what follows is sent, again if it was before."""
    session = session_of(context)
    reply = session.client().order("webhooks", which, "replay", body={"after": begin})
    session.show(
        reply,
        lambda shown, _: f"Webhook {shown['name']} goes on after {shown['after']}.",
        as_json=as_json,
    )


@webhook.command("enable")
def enable_webhook(context: typer.Context, *, which: Which, as_json: AsJson = False) -> None:
    """Have a webhook send again, from where it has stopped. One that waits tries at once."""
    _plain(context, which, "enable", "{} sends, after {}.", as_json=as_json)


@webhook.command("disable")
def disable_webhook(context: typer.Context, *, which: Which, as_json: AsJson = False) -> None:
    """Have a webhook send nothing until it is enabled."""
    _plain(context, which, "disable", "{} sends nothing; it has come to {}.", as_json=as_json)


@webhook.command("remove")
def remove_webhook(context: typer.Context, *, which: Which, as_json: AsJson = False) -> None:
    """Forget a webhook, and how far it has come."""
    _plain(context, which, "remove", "{} is removed; it had come to {}.", as_json=as_json)


def _plain(context: typer.Context, which: str, verb: str, done: str, *, as_json: bool) -> None:
    session = session_of(context)
    reply = session.client().order("webhooks", which, verb)
    session.show(
        reply,
        lambda shown, _: "Webhook " + done.format(shown["name"], shown["after"]),
        as_json=as_json,
    )


def _seconds(text: str) -> int:
    if text == "0":
        return 0
    try:
        return parse_duration_ms(text) // SECOND_MS
    except Invalid as wrong:
        raise Stop(EXIT_USAGE, wrong.refused, wrong.accepted) from None


def _show_secret(session: Session, reply: Reply, *, as_json: bool) -> None:
    """Print a secret that was just made: alone on standard output, so that a shell can take it."""
    if as_json:
        session.show_json(reply.content)
        return
    shown = reply.content
    if shown["secret"] is None:
        raise Stop(
            1, f"Webhook {shown['name']} is there, but its secret is not known.", shown["note"]
        )
    told = f"Webhook {shown['name']} to {shown['url']}. Its secret is shown this once:"
    sys.stderr.write(f"{told}\n")
    sys.stdout.write(f"{shown['secret']}\n")


def _how(shown: Json, now: datetime) -> Text | str:
    if shown["condition"] == "disabled":
        return Text(f"disabled {times.away(shown['disabled'], now)}", style="bold red")
    if shown["condition"] == "failing":
        return Text(f"failing {times.away(shown['failing_since'], now)}", style="yellow")
    return "ok"


def _table(items: list[Json], now: datetime) -> RenderableType:
    if not items:
        return "There are no webhooks. `forewarn webhook add NAME URL` makes one."
    table = tables.new_table("WEBHOOK", "TO", "FORMAT", "IS", "BEHIND", "AFTER")
    for one in items:
        behind = str(one["behind"])
        table.add_row(one["name"], one["url"], one["format"], _how(one, now), behind, one["after"])
    return table


def _details(shown: Json, now: datetime) -> RenderableType:
    rows = [
        ("to", shown["url"]),
        ("format", f"{shown['format']}, up to {shown['batch']} lines a request"),
        ("scopes", ", ".join(shown["scopes"]) or "all"),
        ("kinds", ", ".join(shown["kinds"]) or "all"),
        ("is", str(_how(shown, now))),
        ("why", shown["disabled_because"] or shown["failure"]),
        ("failed", f"{shown['failures']} times" if shown["failures"] else ""),
        ("next try", times.both(shown["next_try"], now)),
        ("after", f"{shown['after']}, {shown['behind']} lines of the journal follow"),
        ("made", f"{times.both(shown['made'], now)} by {shown['made_by']}"),
        ("old secret", times.both(shown["old_secret_until"], now)),
    ]
    lines: list[RenderableType] = [Text(f"{word:<10} {said}") for word, said in rows if said]
    if shown["last"] is not None:
        lines += [Text("last answer", style="bold"), _tried(shown["last"])]
    return Group(Text(f"Webhook {shown['name']} ({shown['webhook_id']})", style="bold"), *lines)


def _tried(said: Json) -> RenderableType:
    if not said["status"]:
        return Text(f"No answer: {said['problem']} ({said['took_ms']} ms).")
    words = f"Answered {said['status']} in {said['took_ms']} ms by {said['address']}."
    body = "".join(one if one.isprintable() else " " for one in said["said"]).strip()
    more = [Text(body[:SAID_CHARS_MAX], style="dim")] if body else []
    return Group(Text(words), *more)
