"""An inventory of thousands of VMs for a running service: others go on, and a kill ends nothing."""

from __future__ import annotations

import http.client
import threading
from pathlib import Path

import pytest

from support.system_world import HOSTS, Guest, Service, request, running
from support.waiting import wait_until

SCOPES, VMS_PER_SCOPE = 400, 10
VMS = SCOPES * VMS_PER_SCOPE
FIRST = HOSTS + '[[vm]]\nname = "first"\nhost = "h1"\naddress = "127.0.0.1"\n'


def large() -> str:
    lines = [FIRST]
    for scope in range(SCOPES):
        lines.append(f'[[scope]]\nname = "s{scope:03d}"\nkind = "placement-group"\n')
        lines.extend(
            f'[[vm]]\nname = "s{scope:03d}-{vm}"\nscope = "s{scope:03d}"\nhost = "h{vm % 3 + 1}"\n'
            f'update_domain = {vm % 5}\naddress = "127.{scope // 200 + 1}.{scope % 200}.{vm + 1}"\n'
            'tags = { owner = "team-payments", environment = "production" }\n'
            for vm in range(VMS_PER_SCOPE)
        )
    return "\n".join(lines)


class Posting:
    """Somebody who applies an inventory and waits for the answer."""

    def __init__(self, service: Service, text: str) -> None:
        self._where, self._token = service.operator_where(), service.token()
        self._text = text
        self.status: int | None = None
        self.added: list[str] = []
        self._thread = threading.Thread(target=self._post)
        self._thread.start()

    def _post(self) -> None:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/toml"}
        try:
            answer = request(
                "POST", self._where, "/v1/inventory", body=self._text.encode(), headers=headers
            )
        except (OSError, http.client.HTTPException):
            return  # the service was killed
        self.status = answer.status
        self.added = answer.json()["vms"]["added"]

    def wait(self) -> None:
        self._thread.join()


def guest_at(service: Service, address: str) -> Guest:
    return Guest(service.guest_where(), source=address)


def known(service: Service) -> int:
    count: int = service.look("health")["vms"]
    return count


def test_others_are_answered_between_the_slices_of_a_large_inventory(tmp_path: Path) -> None:
    with running(tmp_path, fleet=FIRST) as service:
        guest = guest_at(service, "127.0.0.1")
        guest.document()
        posting = Posting(service, large())
        # Health goes through the writer: whoever sees a part of the fleet was let in between.
        wait_until(lambda: 1 < known(service) < VMS + 1, "a part of the fleet is there")
        event = service.order("vms/first/restart")["event_id"]
        assert event in guest.events()
        posting.wait()
        assert (posting.status, len(posting.added)) == (200, VMS)
        assert known(service) == VMS + 1
        assert guest_at(service, "127.2.199.10").document()["Events"] == []


@pytest.mark.parametrize("vms", [1, VMS // 2])
def test_an_inventory_that_a_kill_cut_off_is_gone_on_with_at_the_next_start(
    tmp_path: Path, vms: int
) -> None:
    with running(tmp_path, fleet=FIRST) as service:
        text = large()
        posting = Posting(service, text)
        wait_until(lambda: known(service) > vms, "a part of the fleet is there")
        service.kill()
        posting.wait()
        cut_off = posting.status is None
        service.inventory.write_text(text, encoding="utf-8")
        service.start()
        wait_until(lambda: known(service) == VMS + 1, "the whole fleet is there")
        wait_until(lambda: _applied(service) == 2, "the journal says so")  # and that of the start
        assert cut_off == ("inventory_gone_on_with" in service.err())
        assert guest_at(service, "127.2.199.10").document()["Events"] == []
        service.stop()
        service.start()
        assert (known(service), _applied(service)) == (VMS + 1, 2)
        assert "inventory_gone_on_with" not in service.err()


def _applied(service: Service) -> int:
    lines = service.look("journal?limit=1000")["items"]
    return sum(line["kind"] == "inventory-applied" for line in lines)
