"""Every breakage there is, by the check that must find it."""

from __future__ import annotations

from verify import breaking_events, breaking_requests

BREAKAGES = {**breaking_requests.BREAKAGES, **breaking_events.BREAKAGES}
