"""`forewarn console`: a link that opens the console in a browser."""

from __future__ import annotations

import os
import sys

import typer

from forewarn.cli.session import AsJson, session_of


def console(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Print a link that opens the console once, within a minute, as the user who asks.

    It holds a code and no token. Over a network, log in with a token instead.
    """
    session = session_of(context)
    answer = session.client().order("console", "links").content
    base = os.environ.get("FOREWARN_URL", "").rstrip("/")
    # Who names a service knows better where it is than the service itself.
    link = f"{base}{answer['path']}" if base else answer["url"]
    if as_json:
        session.show_json({**answer, "url": link})
        return
    sys.stdout.write(f"{link}\n")
    sys.stderr.write(f"It opens the console once, within {answer['valid_seconds']} seconds.\n")
