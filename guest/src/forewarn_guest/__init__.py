"""The guest side of scheduled events: a client, and an agent that prepares, approves and recovers.

Standard library only. It speaks to Forewarn and to the real service alike. What programs need is
here: `from forewarn_guest import Client`. It is loaded when it is first used, because the steps of
the agent are processes that start from this package and need none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forewarn_guest.changes import Change, What
    from forewarn_guest.client import Client
    from forewarn_guest.discovery import Discovery, Try, discover
    from forewarn_guest.document import Document, Event
    from forewarn_guest.errors import (
        BadAnswer,
        Busy,
        EndpointError,
        GuestError,
        NotFound,
        Refused,
        Unreachable,
    )
    from forewarn_guest.http1 import Stop

# Both distributions have this version; nothing else in the repository says it.
__version__ = "0.2.0"

__all__ = [
    "Client",
    "Document",
    "Event",
    "Change",
    "What",
    "Stop",
    "discover",
    "Discovery",
    "Try",
    "GuestError",
    "EndpointError",
    "NotFound",
    "Unreachable",
    "Refused",
    "Busy",
    "BadAnswer",
]

_MODULES = {
    "changes": ("Change", "What"),
    "client": ("Client",),
    "discovery": ("Discovery", "Try", "discover"),
    "document": ("Document", "Event"),
    "errors": (
        *("BadAnswer", "Busy", "EndpointError", "GuestError"),
        *("NotFound", "Refused", "Unreachable"),
    ),
    "http1": ("Stop",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
