"""The one module that knows libvirt: a connection that is opened, lost and opened again.

Every call is made in a thread of its own and has a deadline. One that hangs is given up, and with
it the connection it hangs on; others are not kept waiting. Lifecycle events come through libvirt's
own event loop, in one thread for the whole process. What libvirt says is put into our words here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from types import ModuleType
from typing import Any, TypeVar

from forewarn.adapters.libvirt.blocking_calls import LibvirtSession
from forewarn.logs import Log
from forewarn.ports import HypervisorFailed

log = Log(__name__)

T = TypeVar("T")

CALL_S = 15.0  # one call, unless the caller says otherwise
CALLS_AT_ONCE = 16
GIVEN_UP_MAX = 32  # calls that hang; with more of them, libvirt is not asked any more
OPEN_S = 15.0
KEEPALIVE_EVERY_S = 5
KEEPALIVE_MISSED_MAX = 3
EVENT_LOOP_TURN_MS = 1_000


class Why(StrEnum):
    """What a refusal of libvirt means for the caller."""

    GONE = "gone"  # there is no such domain
    NOT_NOW = "not-now"  # it is not in a condition for that: off already, running already
    CANNOT_LIVE = "cannot-live"  # not while it runs: its storage, its devices or the driver
    REFUSED = "refused"


class LibvirtRefused(HypervisorFailed):
    """Libvirt was reached and said no."""

    def __init__(self, words: str, why: Why) -> None:
        super().__init__(words)
        self.why = why


class LibvirtLost(HypervisorFailed):
    """Libvirt could not be reached, or was lost in the middle: what was asked may have happened."""


class LibvirtMissing(HypervisorFailed):
    """The Python binding is not installed."""


def _binding() -> ModuleType:
    try:
        import libvirt  # noqa: PLC0415 - an extra: only who asks for libvirt needs it
    except ImportError as missing:
        raise LibvirtMissing(
            f"The Python binding of libvirt cannot be loaded ({missing}). Install it: "
            "`pip install 'forewarn[libvirt]'` (it is built against libvirt's headers; on Debian "
            "`apt install libvirt-dev pkg-config python3-dev gcc` first)."
        ) from None
    found: ModuleType = libvirt
    return found


class _OpenConnection:
    """An open connection and how many calls are on it. Retired, it is closed after the last.

    Closing it earlier would fail calls of others, and closing one that hangs would hang too.
    """

    def __init__(self, lv: Any, connect: Any) -> None:
        self.connect = connect
        self._lv = lv
        self._lock = threading.Lock()
        self._calls = 0
        self._retired = False

    def alive(self) -> bool:
        try:
            return bool(self.connect.isAlive())
        except self._lv.libvirtError:
            return False

    def enter(self) -> None:
        with self._lock:
            self._calls += 1

    def leave(self) -> None:
        with self._lock:
            self._calls -= 1
            closes = self._retired and self._calls == 0
        if closes:
            self._close()

    def retire(self) -> None:
        with self._lock:
            closes = not self._retired and self._calls == 0
            self._retired = True
        if closes:
            threading.Thread(target=self._close, daemon=True).start()

    def _close(self) -> None:
        try:
            self.connect.close()
        except self._lv.libvirtError:
            return  # it was lost, which is why it is closed


class LibvirtConnection:
    """A libvirt to ask. It is opened by the first call, and by the next one after it was lost."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._lv: Any = _binding()
        self._opening = threading.Lock()
        self._open: _OpenConnection | None = None
        self._closed = False
        self._turns = asyncio.Semaphore(CALLS_AT_ONCE)
        self._hanging: set[asyncio.Future[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._rings: list[Callable[[], None]] = []
        self._reboots: list[Callable[[str], None]] = []

    async def call(
        self, work: Callable[[LibvirtSession], T], *, what: str, seconds: float = CALL_S
    ) -> T:
        """The value of `work`, which runs in a thread. `what` names it in refusals.

        Raises LibvirtRefused if libvirt said no and LibvirtLost if it is not known what came of
        it; both are HypervisorFailed.
        """
        if len(self._hanging) >= GIVEN_UP_MAX:
            raise LibvirtLost(
                f"Libvirt at {self.uri} does not answer: {len(self._hanging)} calls hang. "
                "Look at it with `virsh list`; `systemctl restart libvirtd` harms no running VM."
            )
        async with self._turns:
            loop = self._loop = asyncio.get_running_loop()
            answer: asyncio.Future[T] = loop.create_future()
            threading.Thread(
                target=self._in_thread, args=(work, what, loop, answer), daemon=True
            ).start()
            try:
                await asyncio.wait([answer], timeout=seconds)
                if answer.done():
                    return answer.result()
            finally:
                answer.cancel()  # the caller has gone; a later answer is dropped
            self._hanging.add(answer)
            self._forget()
            raise LibvirtLost(f"Libvirt at {self.uri} took more than {seconds:g} s to {what}.")

    def on_event(self, ring: Callable[[], None]) -> None:
        """Call `ring`, on the event loop of the calls, when a domain has changed or may have."""
        self._rings.append(ring)

    def on_reboot(self, tell: Callable[[str], None]) -> None:
        """Call `tell`, on the event loop of the calls, with the name of a domain that was reset.

        That is a reboot without an end of the machine: `virsh reboot`, `virsh reset`, or the guest.
        """
        self._reboots.append(tell)

    def close(self) -> None:
        """End it. What is under way in libvirt goes on there."""
        self._closed = True
        self._rings.clear()
        self._reboots.clear()
        self._forget()

    # In threads of their own.

    def _in_thread(
        self,
        work: Callable[[LibvirtSession], T],
        what: str,
        loop: asyncio.AbstractEventLoop,
        answer: asyncio.Future[T],
    ) -> None:
        opened = None
        try:
            opened = self._opened()
            value = work(LibvirtSession(self._lv, opened.connect))
        except self._lv.libvirtError as error:
            self._answer(loop, _fail, answer, self._in_words(error, opened, what))
        except BaseException as error:  # noqa: BLE001 - the caller that waits must know it
            self._answer(loop, _fail, answer, error)
        else:
            self._answer(loop, _give, answer, value)
        finally:
            if opened is not None:
                opened.leave()

    def _answer(
        self,
        loop: asyncio.AbstractEventLoop,
        settle: Callable[..., None],
        answer: asyncio.Future[T],
        value: object,
    ) -> None:
        def on_loop() -> None:
            self._hanging.discard(answer)
            settle(answer, value)

        try:
            loop.call_soon_threadsafe(on_loop)
        except RuntimeError:
            return  # no caller waits any more: the event loop has ended

    def _opened(self) -> _OpenConnection:
        """The open connection, entered; the one who gets it leaves it."""
        if not self._opening.acquire(timeout=OPEN_S):
            raise LibvirtLost(f"Libvirt at {self.uri} took more than {OPEN_S:g} s to connect.")
        try:
            if self._closed:
                raise LibvirtLost(f"The connection to libvirt at {self.uri} was closed.")
            opened = self._open
            if opened is not None and opened.alive():
                opened.enter()
                return opened
            self._forget()
            _run_events(self._lv)
            try:
                opened = _OpenConnection(self._lv, self._lv.open(self.uri))
            except self._lv.libvirtError as error:
                raise LibvirtLost(self._not_opened(error)) from None
            self._watch(opened.connect)
            opened.enter()
            self._open = opened
        finally:
            self._opening.release()
        self._ring()  # what happened meanwhile was not told
        return opened

    def _watch(self, connect: Any) -> None:
        """Be told what happens; a driver that cannot tell it is asked again and again anyway."""
        lv = self._lv
        watched = (
            lv.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
            lv.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE,
            lv.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED,
            lv.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED,
        )
        for event_id in watched:
            self._offered(connect.domainEventRegisterAny, None, event_id, self._told, None)
        reboots = lv.VIR_DOMAIN_EVENT_ID_REBOOT
        self._offered(connect.domainEventRegisterAny, None, reboots, self._rebooted, None)
        self._offered(connect.registerCloseCallback, self._told, None)
        self._offered(connect.setKeepAlive, KEEPALIVE_EVERY_S, KEEPALIVE_MISSED_MAX)

    def _offered(self, ask: Callable[..., object], *arguments: object) -> None:
        try:
            ask(*arguments)
        except self._lv.libvirtError as error:
            if error.get_error_code() != self._lv.VIR_ERR_NO_SUPPORT:
                raise

    def _told(self, *_: object) -> None:
        self._ring()

    def _rebooted(self, _connect: object, domain: Any, *_: object) -> None:
        name = str(domain.name())
        for tell in list(self._reboots):
            self._on_loop(tell, name)

    def _ring(self) -> None:
        for ring in list(self._rings):
            self._on_loop(ring)

    def _on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(call, *arguments)

    def _forget(self) -> None:
        """Let the next call open another connection."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.retire()

    # Words.

    def _not_opened(self, error: Any) -> str:
        words = str(error).strip()
        lowered = words.lower()
        if "permission denied" in lowered or "authentication" in lowered:
            remedy = "Run the host daemon as root, or its user in the group libvirt."
        elif "no such file" in lowered or "refused" in lowered:
            remedy = "Is it running? `systemctl start libvirtd` (or virtqemud), then `virsh list`."
        else:
            remedy = f"Try `virsh -c {self.uri} list`."
        return f"Libvirt at {self.uri} cannot be reached: {words}. {remedy}"

    def _in_words(self, error: Any, opened: _OpenConnection | None, what: str) -> HypervisorFailed:
        lv = self._lv
        words = f"libvirt could not {what}: {str(error).strip()}"
        if opened is None or not opened.alive():
            return LibvirtLost(f"The connection to libvirt at {self.uri} was lost ({words}).")
        why = {
            lv.VIR_ERR_NO_DOMAIN: Why.GONE,
            lv.VIR_ERR_OPERATION_INVALID: Why.NOT_NOW,
            lv.VIR_ERR_MIGRATE_UNSAFE: Why.CANNOT_LIVE,
            lv.VIR_ERR_CONFIG_UNSUPPORTED: Why.CANNOT_LIVE,
            lv.VIR_ERR_OPERATION_UNSUPPORTED: Why.CANNOT_LIVE,
            lv.VIR_ERR_ARGUMENT_UNSUPPORTED: Why.CANNOT_LIVE,
            lv.VIR_ERR_NO_SUPPORT: Why.CANNOT_LIVE,
        }.get(error.get_error_code(), Why.REFUSED)
        return LibvirtRefused(words, why)


def open_libvirt(uri: str) -> LibvirtConnection:
    """A connection to the libvirt at `uri`; nothing is sent yet. Raises LibvirtMissing."""
    return LibvirtConnection(uri)


def _give(answer: asyncio.Future[T], value: T) -> None:
    if not answer.done():
        answer.set_result(value)


def _fail(answer: asyncio.Future[object], error: BaseException) -> None:
    if not answer.done():
        answer.set_exception(error)


_EVENTS_STARTING = threading.Lock()
_events_run = threading.Event()


def _run_events(lv: Any) -> None:
    """Libvirt's own event loop, once for the process: it tells what happens and keeps alive."""
    with _EVENTS_STARTING:
        if _events_run.is_set():
            return
        lv.registerErrorHandler(lambda *_: None, None)  # else it also writes to standard error
        lv.virEventRegisterDefaultImpl()
        lv.virEventAddTimeout(EVENT_LOOP_TURN_MS, lambda *_: None, None)
        threading.Thread(target=_events, args=(lv,), name="libvirt-events", daemon=True).start()
        _events_run.set()


def _events(lv: Any) -> None:
    while True:
        try:
            lv.virEventRunDefaultImpl()
        except lv.libvirtError as error:
            log.warning("libvirt_event_loop", why=str(error))
            time.sleep(EVENT_LOOP_TURN_MS / 1_000)
