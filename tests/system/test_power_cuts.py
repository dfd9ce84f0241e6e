"""`serve` that is killed, or has no room, while a simulated host has lost its power."""

from __future__ import annotations

import http.client
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.system_world import Service, needs_strace, running, standalone_fleet, traced
from support.waiting import wait_until

pytestmark = needs_strace


def host(service: Service, name: str = "h1") -> tuple[str, bool]:
    shown: Any = service.look(f"hosts/{name}")
    return shown["health"], shown["alive"]


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
def test_a_kill_between_the_cut_and_the_commit_leaves_a_host_that_can_be_failed_again(
    tmp_path: Path, call: str
) -> None:
    with running(tmp_path, fleet=standalone_fleet(1)) as service, ThreadPoolExecutor(1) as caller:
        wait_until(lambda: host(service) == ("ok", True), "the host is heard")

        def order() -> int | None:
            try:
                return service.ask("POST", "hosts/h1/fail", {"fenced": True}).status
            except (OSError, http.client.HTTPException):
                return None

        with traced(service, "-e", f"trace={call}", "-e", f"inject={call}:delay_enter=10s"):
            answer = caller.submit(order)
            wait_until(lambda: host(service) == ("ok", False), "the power is cut, not committed")
            service.kill()
        assert answer.result() is None

        service.start()
        assert host(service) in (("ok", True), ("failed", False))
        failed = service.order("hosts/h1/fail", {"fenced": True})
        assert (failed["health"], failed["fenced"], failed["alive"]) == ("failed", True, False)
        service.order("hosts/h1/repair")
        wait_until(lambda: host(service) == ("ok", True), "the repaired host is heard")


def test_a_failed_host_is_still_off_after_a_restart_and_comes_back_with_its_repair(
    tmp_path: Path,
) -> None:
    with running(tmp_path, fleet=standalone_fleet(1)) as service:
        service.order("hosts/h1/fail")
        service.kill()
        service.start()
        assert host(service) == ("failed", False)
        assert service.order("hosts/h1/fail", {"fenced": True})["fenced"] is True
        service.order("hosts/h1/repair")
        wait_until(lambda: host(service) == ("ok", True), "the repaired host is heard")
