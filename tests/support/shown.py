"""What of a scope a host is shown, for tests that look at one scope and one host."""

from __future__ import annotations

import msgspec

from forewarn.control.hosts.own_vms import ScopeByHost
from forewarn.core.model import Scope
from forewarn.wire.link import ShownScope


def as_shown_to(scope: Scope, host: str) -> ShownScope:
    """What of a scope its documents on that host are made of, in process or over the wire."""
    showing = ScopeByHost(scope)
    shown = showing.to(host)
    assert bytes(showing.encoded(host)) == msgspec.json.encode(shown)
    return shown
