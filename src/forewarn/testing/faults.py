"""`cloud.faults`: an endpoint that misbehaves when a test tells it to."""

from __future__ import annotations

import json
from collections.abc import Mapping

from forewarn.core.errors import Refusal
from forewarn.emulator.faults.book import Fault
from forewarn.emulator.faults.orders import read_order
from forewarn.testing.background import Background
from forewarn.testing.literals import FaultName, FaultStatus, MethodName
from forewarn.testing.tracebacks import cut, for_refusals
from forewarn.testing.values import CloudVm, name_of
from forewarn.wiring.simulate import Emulator

__tracebackhide__ = for_refusals


class CloudFaults:
    """The faults of a cloud. Each is a value as it was; `get` gives it as it is now."""

    def __init__(self, background: Background) -> None:
        self._background = background

    def add(
        self,
        kind: FaultName | FaultStatus,
        *,
        vm: str | CloudVm | None = None,
        method: MethodName | None = None,
        count: int | None = None,
        share: float | None = None,
        for_s: float | str | None = None,
        seconds: float | str | None = None,
        retry_after: float | str | None = None,
        by: int | None = None,
        per_second: float | None = None,
        document: str | Mapping[str, object] | None = None,
    ) -> Fault:
        """From now on the requests that it fits meet this fault.

        `kind` is one of those of `forewarn fault add --help` or a status like 429; `FaultName` has
        all. It can be kept to a VM, to GET or POST, to the first `count` requests, to a `share` of
        them, and (`for_s`) to a time on the cloud's clock; `seconds` and `retry_after` are real,
        but of documents and actions. `document` is what `replay` answers with.

        Raises Invalid with the word that is wrong, NotFound for a VM there is not.
        """
        words = {
            "kind": kind,
            "vm": name_of(vm),
            "method": method,
            "count": count,
            "share": share,
            "for": for_s,
            "seconds": seconds,
            "retry_after": retry_after,
            "by": by,
            "per_second": per_second,
            "document": None if document is None else _as_text(document),
        }
        try:
            order = read_order(words)
        except Refusal as refusal:
            raise cut(refusal) from None

        async def work(emulator: Emulator) -> Fault:
            added = emulator.faults.add(order)
            await emulator.pacer.settle()
            return emulator.faults.get(added.fault_id)

        return self._background.call(work)

    def list(self, *, over: bool = False) -> tuple[Fault, ...]:
        """Those that stand, oldest first; with `over` also those that are over, in front."""

        async def work(emulator: Emulator) -> tuple[Fault, ...]:
            return emulator.faults.list(over=over)

        return self._background.call(work)

    def get(self, fault: Fault | str) -> Fault:
        """The fault as it is now, with its `hits` and whether it is `over`. Raises NotFound."""

        async def work(emulator: Emulator) -> Fault:
            return emulator.faults.get(fault_id_of(fault))

        return self._background.call(work)

    def clear(self, fault: Fault | str | None = None) -> None:
        """End one fault, or all. What is over stays over."""

        async def work(emulator: Emulator) -> None:
            emulator.faults.clear(None if fault is None else fault_id_of(fault))
            await emulator.pacer.settle()

        self._background.call(work)


def _as_text(document: str | Mapping[str, object]) -> str:
    return document if isinstance(document, str) else json.dumps(dict(document))


def fault_id_of(fault: Fault | str) -> str:
    """The id of a fault that is given as a value or by its id."""
    return fault if isinstance(fault, str) else fault.fault_id
