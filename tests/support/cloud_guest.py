"""A guest for tests of `forewarn.testing`: plain HTTP of the standard library, nothing of ours."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from forewarn.testing import CloudVm

PATH = "/metadata/scheduledevents?api-version=2020-07-01"
PATIENCE_S = 50.0


def ask(
    vm: CloudVm, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, bytes]:
    """One request over a connection of its own: status and body."""
    connection = http.client.HTTPConnection(urlsplit(vm.url).netloc, timeout=PATIENCE_S)
    try:
        connection.request(method, PATH, body=body, headers={"Metadata": "true", **headers})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def read(vm: CloudVm) -> dict[str, Any]:
    """The document of the VM."""
    status, body = ask(vm)
    assert status == 200
    document: dict[str, Any] = json.loads(body)
    return document


def approve(vm: CloudVm, event_id: str) -> None:
    """Say go ahead."""
    status, _ = ask(vm, "POST", json.dumps({"StartRequests": [{"EventId": event_id}]}))
    assert status == 200


@contextmanager
def waiting_guest(vm: CloudVm) -> Iterator[threading.Thread]:
    """A guest that waits for the next change of its document and approves what it finds."""
    tag = read(vm)["DocumentIncarnation"]

    def work() -> None:
        status, body = ask(vm, **{"If-None-Match": f'"{tag}"', "Prefer": "wait=60"})
        if status == 200:
            for event in json.loads(body)["Events"]:
                approve(vm, event["EventId"])

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield thread
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
