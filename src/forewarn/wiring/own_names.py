"""What this machine is called by those who reach a server of ours: names and URLs."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from forewarn.core.addresses import listen_text, read_listen


def server_url(listen: str, *, port: int, told: str) -> str:
    """How a server with TLS is reached: as it was told, else by the name of this machine."""
    if told:
        return told.rstrip("/")
    address, _ = read_listen(listen)
    loopback = address in ("localhost", "127.0.0.1", "::1")
    return f"https://{listen_text(address, port) if loopback else f'{_own_name()}:{port}'}"


def server_names(listen: str, *, told: str) -> tuple[str, ...]:
    """What the server's certificate is for: all that it may be reached by."""
    names = {"localhost", "127.0.0.1", "::1", _own_name()}
    address, _ = read_listen(listen)
    if address not in ("0.0.0.0", "::"):  # noqa: S104 - compared, not opened
        names.add(address)
    name = urlsplit(told).hostname if told else None
    if name:
        names.add(name)
    return tuple(sorted(names))


def _own_name() -> str:
    """The name of this machine, if a certificate can be for it."""
    name = socket.gethostname().rstrip(".").lower()
    return name if name and name.isascii() else "localhost"
