"""What of a scope a host is shown, for tests that look at one scope and one host."""

from __future__ import annotations

from forewarn.control.hosts.access import ScopeByHost
from forewarn.core.model import Scope
from forewarn.wire.link import ShownScope


def as_shown_to(scope: Scope, host: str) -> ShownScope:
    """What of a scope its documents on that host are made of."""
    return ScopeByHost(scope).to(host)
