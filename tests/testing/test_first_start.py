"""What the first cloud of a process costs, and what a lifecycle costs its writer, by counting."""

from __future__ import annotations

import subprocess
import sys
import urllib.request

from forewarn.testing import Cloud

# Every module costs each run of somebody's tests a part of a millisecond. 381 are loaded today.
MODULES_MAX = 436
# Each of them loads dozens of others, and a cloud that nobody asks for metrics, logs and the
# operator API needs none.
NOT_NEEDED = (
    "cryptography",
    "email",
    "http.client",
    "httpcore",
    "importlib.metadata",
    "jwt",
    "prometheus_client",
    "pygments",
    "rich",
    "starlette",
    "structlog",
    "typer",
    "uvicorn",
)
# 27 before what is only read was read from the published fleet; 10 today.
TURNS_MAX = 12


def test_the_first_cloud_of_a_process_loads_only_what_it_needs() -> None:
    code = (
        "import sys; from forewarn.testing import Cloud\n"
        "with Cloud() as cloud:\n"
        "    cloud.vm('vm0')\n"
        "    print('\\n'.join(sys.modules))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = ran.stdout.splitlines()
    assert [name for name in NOT_NEEDED if name in loaded] == []
    assert len(loaded) <= MODULES_MAX


def test_a_lifecycle_takes_few_turns_of_the_writer() -> None:
    with Cloud() as cloud:
        vm = cloud.vm("vm0")
        urllib.request.urlopen(_asking(vm.document_url)).close()
        before = _turns(cloud)
        event = cloud.restart(vm)
        urllib.request.urlopen(_asking(vm.document_url)).close()
        cloud.approve(event)
        cloud.clock.next()
        urllib.request.urlopen(_asking(vm.document_url)).close()
        assert cloud.events() == ()
        assert 0 < _turns(cloud) - before <= TURNS_MAX


def _asking(url: str) -> urllib.request.Request:
    return urllib.request.Request(url, headers={"Metadata": "true"})


def _turns(cloud: Cloud) -> float:
    headers = {"Authorization": f"Bearer {cloud.operator_token}"}
    asked = urllib.request.Request(f"{cloud.operator_url}/metrics", headers=headers)
    with urllib.request.urlopen(asked) as answer:
        lines = answer.read().decode().splitlines()
    [line] = [line for line in lines if line.startswith("forewarn_writer_turns_total ")]
    return float(line.rpartition(" ")[2])
