"""`forewarn vm adopt`: traits on their way to the host that writes them into the VM's domain.

Nothing here is durable, and nothing needs to be: the domain's metadata is the truth. The operator
that ordered it is told how it ended, or that this is not known. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from msgspec import Struct

from forewarn.core.errors import Conflict, NotFound, Unavailable
from forewarn.core.inventory.host_report import SeenVm, Traits
from forewarn.wire.link import Adoption
from forewarn.wire.link_values import vm_traits

ADOPT_WITHIN_S = 15.0
ADOPTIONS_MAX = 64  # that wait at once; a caller that asks for more is told to wait
# Reports after the traits were written: the first may have been under way already.
REPORTS_AFTER_WRITING = 2


class _Waiting(Struct):
    """One adoption: what is to be written, and who waits for it."""

    host: str
    adoption: Adoption
    done: asyncio.Future[str]
    written: bool = False
    reports: int = 0


class Adoptions:
    """Adoptions that wait for their hosts. `ring` says that a host has a new one."""

    def __init__(self, prefix: str, ring: Callable[[str], None]) -> None:
        self._prefix = prefix  # another one after every start: late answers find nothing
        self._numbers = count(1)
        self._waiting: dict[str, _Waiting] = {}
        self.ring = ring

    async def adopt(
        self, host: str, vm: str, traits: Traits, *, within_s: float = ADOPT_WITHIN_S
    ) -> str:
        """Have the host write the traits; what is still in their way when it shows them, if any.

        Raises Conflict with the host's words if it cannot write them, and Unavailable if it has
        not answered in time; then it may still write them.
        """
        self.need_room()
        adoption_id = f"{self._prefix}-{next(self._numbers)}"
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = _Waiting(host, Adoption(adoption_id, vm, vm_traits(traits)), done)
        self._waiting[adoption_id] = waiting
        self.ring(host)
        try:
            async with asyncio.timeout(within_s):
                return await done
        except TimeoutError:
            how_far = "wrote it but has not shown it" if waiting.written else "has not answered"
            raise Unavailable(
                f"Host {host} {how_far} within {within_s:g} seconds. "
                f"`forewarn host show {host}` says whether it is heard; adopting again is safe."
            ) from None
        finally:
            del self._waiting[adoption_id]

    def need_room(self) -> None:
        """Raises Unavailable while too many wait."""
        if len(self._waiting) >= ADOPTIONS_MAX:
            raise Unavailable(f"{ADOPTIONS_MAX} adoptions wait for their hosts; try again later.")

    def queued(self, host: str) -> tuple[Adoption, ...]:
        """What the host has still to write, oldest first. Writing one twice does no harm."""
        return tuple(w.adoption for w in self._waiting.values() if w.host == host and not w.written)

    def answered(self, host: str, adoption_id: str, problem: str) -> None:
        """The host has written the traits, or says why not. Answers that come late say nothing."""
        waiting = self._waiting.get(adoption_id)
        if waiting is None or waiting.host != host or waiting.done.done():
            return
        if problem:
            refused = f"Host {host} could not adopt VM {waiting.adoption.vm}: {problem}"
            waiting.done.set_exception(Conflict(refused))
        waiting.written = True

    def shown(self, host: str, vms: Sequence[SeenVm], problems: Mapping[str, str]) -> None:
        """The host has shown its VMs: those whose traits it wrote are adopted."""
        waiting = [w for w in self._waiting.values() if w.host == host and w.written]
        if not waiting:
            return
        by_name = {seen.name: seen for seen in vms}
        for one in waiting:
            one.reports += 1
            seen = by_name.get(one.adoption.vm)
            if one.done.done():
                continue
            if seen is None and one.reports >= REPORTS_AFTER_WRITING:
                gone = f"VM {one.adoption.vm} has left host {host}."
                one.done.set_exception(NotFound(gone, "`forewarn vm list` shows where it is."))
            elif seen is not None and (
                vm_traits(seen.traits) == one.adoption.traits
                or one.reports >= REPORTS_AFTER_WRITING
            ):
                one.done.set_result(problems.get(one.adoption.vm, ""))
