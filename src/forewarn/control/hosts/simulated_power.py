"""The power of the hosts that are simulated in this process.

An order that says that such a host has failed cuts its power first: from then on it is not heard,
and its hands do nothing. Only the transaction that runs cuts and restores, and it puts back what it
did if it is taken back, so that a refused order has cut nothing. Any thread may look. It ends with
the process: after a restart a host has power unless it is committed as failed.
"""

from __future__ import annotations


class HostPower:
    """Which simulated hosts have power: all but those whose power was cut."""

    def __init__(self) -> None:
        self._without: frozenset[str] = frozenset()  # replaced whole, as other threads look

    def on(self, host: str) -> bool:
        return host not in self._without

    def cut(self, host: str) -> None:
        self._without |= {host}

    def restore(self, host: str) -> None:
        self._without -= {host}
