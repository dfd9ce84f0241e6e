"""The operator's API, asked from outside of the cell that it listens in."""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from rig.cells import Cell

ANSWER_LIMIT_S = 20.0
JOURNAL_PAGE = 1_000
_NETWORK = 0x40000000  # CLONE_NEWNET

_Work = tuple[Callable[[], Any], "SimpleQueue[tuple[bool, Any]]"]


class Refused(Exception):  # noqa: N818 - says what is the case
    """Control answered, and not with yes."""

    def __init__(self, status: int, problem: Any) -> None:
        super().__init__(f"{status}: {json.dumps(problem)}")
        self.status = status
        self.problem = problem


class Unreachable(Exception):  # noqa: N818 - says what is the case
    """Nobody answers; control may be down."""


class Operator:
    """Orders and questions. One thread lives in the network of control and does the talking."""

    def __init__(self, cell: Cell, data: Path) -> None:
        self._cell = cell
        self._data = data
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._live_there, name="operator", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._work.put(None)
        self._thread.join(timeout=5)

    def get(self, path: str) -> Any:
        """An answer of the API. Refused or Unreachable."""
        return self._ask("GET", path, None)

    def post(self, path: str, **words: object) -> Any:
        """The answer to an order. Refused or Unreachable."""
        return self._ask("POST", path, words)

    def journal(self, after: int = 0) -> list[dict[str, Any]]:
        """Every line of the journal beyond a number, oldest first."""
        lines: list[dict[str, Any]] = []
        while True:
            page = self.get(f"/v1/journal?after={after}&limit={JOURNAL_PAGE}")["items"]
            lines += page
            if len(page) < JOURNAL_PAGE:
                return lines
            after = page[-1]["number"]

    def _ask(self, method: str, path: str, words: dict[str, object] | None) -> Any:
        answer: SimpleQueue[tuple[bool, Any]] = SimpleQueue()
        self._work.put((lambda: self._talk(method, path, words), answer))
        worked, content = answer.get(timeout=ANSWER_LIMIT_S * 2)
        if not worked:
            raise content
        return content

    def _live_there(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        network = os.open(f"/proc/{self._cell.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        entered = libc.setns(network, _NETWORK) == 0
        os.close(network)
        while (work := self._work.get()) is not None:
            ask, answer = work
            if not entered:
                answer.put((False, Unreachable("The network of control could not be entered.")))
                continue
            try:
                answer.put((True, ask()))
            except (Refused, Unreachable) as why:
                answer.put((False, why))

    def _talk(self, method: str, path: str, words: dict[str, object] | None) -> Any:
        try:
            url = (self._data / "operator.url").read_text(encoding="utf-8").strip()
            token = (self._data / "operator.token").read_text(encoding="utf-8").strip()
            connection = http.client.HTTPConnection(
                url.removeprefix("http://"), timeout=ANSWER_LIMIT_S
            )
            headers = {"Authorization": f"Bearer {token}", "Idempotency-Key": str(uuid.uuid4())}
            try:
                body = None if words is None else json.dumps(words)
                connection.request(method, path, body, headers)
                response = connection.getresponse()
                content = json.loads(response.read() or b"null")
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as why:
            raise Unreachable(f"{method} {path}: {why}") from why
        if response.status >= 400:
            raise Refused(response.status, content)
        return content
