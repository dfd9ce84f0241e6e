"""DHCP and a vanished host over a real cable, between two network namespaces of the test's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import network_world
from programs import missing

HERE = Path(__file__).parent
LIMIT_S = network_world.LONG_S / 2  # ends a hang: what waits in vain waits for longer


def played(play: str) -> Any:
    """What a play came to. Skips where this machine does not let us make namespaces."""
    if missing("unshare", "ip"):
        pytest.skip(missing("unshare", "ip"))
    path = os.pathsep.join([str(HERE.parent / "src"), str(HERE)])
    run = subprocess.run(
        [
            *("unshare", "--map-root-user", "--net"),
            *(sys.executable, str(HERE / "network_world.py"), play),
        ],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if run.returncode == network_world.NOT_HERE or run.stderr.startswith("unshare:"):
        pytest.skip(f"network namespaces are not permitted here: {run.stderr or run.stdout}")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


def test_an_endpoint_is_found_through_a_dhcp_server() -> None:
    came = played("discover")
    assert came["url"] == f"http://{network_world.HOST}"
    assert came["tries"][0][0] == "link-local"
    assert came["tries"][-1] == ["dhcp cable0", "answers"]


def test_an_interface_without_an_address_hears_the_server_by_broadcast() -> None:
    came = played("broadcast")
    assert came["interfaces"] == ["cable0"]  # neither lo nor one that is down
    assert came["heard"] == [["cable0", network_world.HOST]]


def test_silence_is_waited_for_as_long_as_was_said_or_until_the_bell_rings() -> None:
    came = played("silence")
    assert came["why"] == ["no DHCP server answered"]
    assert came["seconds"] > 1.4
    assert came["stopped"]


def test_an_endpoint_that_vanishes_during_a_wait_is_noticed_long_before_its_end() -> None:
    assert played("vanish") == ["vanishes", "noticed"]
