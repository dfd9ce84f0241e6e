"""Names of VMs, scopes and hosts: two that differ in case only are the same (C10)."""

from __future__ import annotations

from collections.abc import Iterable


class KnownNames:
    """Names that exist. Agents may compare them without case."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._folded = {name.casefold(): name for name in names}

    def add(self, name: str) -> None:
        self._folded.setdefault(name.casefold(), name)

    def taken_by(self, name: str) -> str | None:
        """The name that exists and is the same, or differs in case only."""
        return self._folded.get(name.casefold())


def in_case_only(what: str, name: str) -> str:
    """Why another `what` cannot have a name that is too close to `name`."""
    return f"there is a {what} {name}, and names must differ in more than case."
