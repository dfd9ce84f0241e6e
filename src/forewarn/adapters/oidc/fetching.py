"""Asking an issuer for one of its documents: a small JSON object, whole and in time, or not at all.

Nothing of the environment is obeyed, no redirect is followed, and what comes is never shown to a
caller.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import httpcore

from forewarn.core.addresses import is_safe_url

FETCH_LIMIT_S = 5.0  # for all of one document
DOCUMENT_BYTES_MAX = 512 * 1_024

_FAILURES = (
    httpcore.TimeoutException,
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    OSError,
)


class NotFetched(Exception):  # noqa: N818 - says what is the case
    """Why a document could not be had, in words for the log."""


class Fetcher:
    """Asks for documents, each on a connection of its own."""

    def __init__(self, *, limit_s: float = FETCH_LIMIT_S) -> None:
        self._limit_s = limit_s
        self._tls: ssl.SSLContext | None = None  # reads a hundred certificates: not on the loop

    async def fetch(self, url: str) -> dict[str, Any]:
        """The JSON object at a URL. Raises NotFetched."""
        try:
            async with asyncio.timeout(self._limit_s):
                content = await self._content(url)
        except TimeoutError:
            raise NotFetched(f"{url} has not answered within {self._limit_s:g} s") from None
        except _FAILURES as error:
            raise NotFetched(
                f"{url} cannot be asked: {str(error) or type(error).__name__}"
            ) from error
        try:
            found = json.loads(content)
        except (ValueError, RecursionError):
            raise NotFetched(f"{url} is not JSON") from None
        if not isinstance(found, dict):
            raise NotFetched(f"{url} is no JSON object")
        return found

    async def _content(self, url: str) -> bytes:
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        headers = [("Host", urlsplit(url).netloc), ("Accept", "application/json")]
        content = bytearray()
        async with (
            httpcore.AsyncConnectionPool(ssl_context=self._tls, max_connections=1) as pool,
            pool.stream("GET", url, headers=headers) as answer,
        ):
            if answer.status != HTTPStatus.OK:
                raise NotFetched(f"{url} was answered with {answer.status}")
            async for chunk in answer.aiter_stream():
                content += chunk
                if len(content) > DOCUMENT_BYTES_MAX:
                    raise NotFetched(f"{url} has more than {DOCUMENT_BYTES_MAX} bytes")
        return bytes(content)


def may_ask(url: object, *, issuer: str) -> bool:
    """Whether a URL that an issuer names may be asked: by TLS, or on this machine as the issuer."""
    if not isinstance(url, str) or not is_safe_url(url):
        return False
    return url.startswith("https:") or issuer.startswith("http:")
