"""Following one document as it changes: when to ask next, and what to make of trouble."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Callable

from forewarn_guest import retry_policy
from forewarn_guest.document import Document
from forewarn_guest.errors import BadAnswer, Busy, EndpointError, NotFound, Refused, Unreachable
from forewarn_guest.http1 import Bell, Stop, Stopped, bell_of

if TYPE_CHECKING:
    from forewarn_guest.client import Client

Trouble = Callable[[EndpointError], None]

log = logging.getLogger(__name__)


class Following:
    """One iteration over the documents of a client.

    A request never begins less than a second after the one before began, unless that had news.
    An endpoint that holds requests thus is asked again as soon as it has answered, and one that
    does not is polled each second, without either being known beforehand.
    """

    def __init__(
        self,
        client: Client,
        on_trouble: Trouble | None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._clock = clock
        self._on_trouble = on_trouble
        self._known: Document | None = None
        self._failures = 0
        self._failing_since_s = 0.0
        self._logged = False

    def documents(self, *stops: Stop) -> Iterator[Document]:
        """New documents until one of these says stop."""
        with bell_of(*stops) as bell:
            while not any(stop.is_set() for stop in stops):
                began = self._clock()
                try:
                    news = self._once(bell)
                except Stopped:
                    return
                except EndpointError as error:
                    if any(stop.is_set() for stop in stops):
                        return
                    pause_s = self._failed(error)
                else:
                    pause_s = retry_policy.POLL_S if news is None else retry_policy.NEWS_S
                    if news is not None:
                        yield news
                if bell.wait(began + pause_s - self._clock()):
                    return

    def _once(self, bell: Bell) -> Document | None:
        """A document that differs from the last, or None."""
        document = self._client.poll(bell, self._known.etag if self._known else "")
        if self._logged:
            log.warning("the endpoint answers again")
        self._failures, self._logged = 0, False
        if document is None:
            return None
        known, self._known = self._known, document
        same = known and (known.incarnation, known.events) == (
            document.incarnation,
            document.events,
        )
        return None if same else document

    def _failed(self, error: EndpointError) -> float:
        """Tells of the trouble; seconds from the beginning of this request to the next."""
        now = self._clock()
        self._failures += 1
        if self._failures == 1:
            self._failing_since_s = now
        lasting_s = now - self._failing_since_s
        gone = isinstance(error, Busy) and error.status == 410
        if not gone or lasting_s >= retry_policy.GONE_S:
            self._tell(error)
        if isinstance(error, Unreachable) and lasting_s >= retry_policy.LOST_S:
            self._client.look_again()
            self._failing_since_s = now
        if isinstance(error, NotFound):
            return retry_policy.LOOK_AGAIN_S
        return retry_policy.delay_after(error, self._failures)

    def _tell(self, error: EndpointError) -> None:
        if self._on_trouble is not None:
            self._on_trouble(error)
            return
        if self._known is None and isinstance(error, (NotFound, Refused, BadAnswer)):
            raise error
        if not self._logged:
            log.warning("the endpoint does not answer as it should, and is asked again: %s", error)
            self._logged = True
