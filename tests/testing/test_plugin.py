"""The fixtures as users have them: whole runs of pytest in a process of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from forewarn import pytest_plugin
from programs import needs

RUN_SECONDS_MAX = 90

# Fails the run if a test leaves a thread or a socket; what counts is what is there at the end.
WATCHING = """
import threading
from pathlib import Path

import pytest


def sockets():
    links = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(descriptor.readlink()))
        except FileNotFoundError:
            pass
    return {link for link in links if link.startswith("socket:")}


@pytest.fixture(autouse=True)
def nothing_left():
    threads, before = set(threading.enumerate()), sockets()
    yield
    assert set(threading.enumerate()) == threads
    assert sockets() == before
"""


def run_pytest(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest over these files, outside of the repository's own settings."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *options, str(folder)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )


def test_a_hundred_parallel_tests_share_no_port_and_leave_nothing(tmp_path: Path) -> None:
    test = """
        import json
        import pytest
        import urllib.request

        @pytest.mark.cloud(scopes=["web:3"])
        @pytest.mark.parametrize("number", range(100))
        def test_restart(cloud, number):
            vm = cloud.vm(f"web_{number % 3}")
            event = cloud.restart(vm)
            asked = urllib.request.Request(vm.document_url, headers={"Metadata": "true"})
            with urllib.request.urlopen(asked) as answer:
                (shown,) = json.load(answer)["Events"]
            assert shown["EventId"] == event.event_id
            assert shown["Resources"] == [vm.name]
            if number % 10 == 0:
                assert cloud.operator_url
            cloud.clock.advance(minutes=20)
            cloud.expect_gone(event)
        """
    run = run_pytest(tmp_path, "-n", "4", conftest=WATCHING, test_many=textwrap.dedent(test))
    assert run.returncode == 0, run.stdout + run.stderr
    assert "100 passed" in run.stdout


def test_a_failing_test_and_a_failing_set_up_leave_nothing(tmp_path: Path) -> None:
    test = """
        import pytest

        def test_fails(cloud):
            cloud.restart("vm0")
            assert cloud.operator_url == ""

        @pytest.mark.cloud(scopes=["web:0"])
        def test_cannot_be_set_up(cloud):
            pass

        @pytest.mark.cloud(inventory="[[vm]]")
        def test_has_a_bad_inventory(cloud):
            pass

        @pytest.fixture
        def broken(cloud):
            raise RuntimeError("the set-up of the test's own")

        def test_whose_own_set_up_fails(broken):
            pass

        def test_last():
            pass
        """
    run = run_pytest(tmp_path, conftest=WATCHING, test_failing=textwrap.dedent(test))
    assert "1 failed, 1 passed, 3 errors" in run.stdout
    assert "assert set(threading.enumerate())" not in run.stdout


def test_a_missed_expectation_shows_the_test_and_not_the_plugin(tmp_path: Path) -> None:
    test = """
        def test_that_nobody_approves(cloud):
            event = cloud.restart("vm0")
            cloud.expect_approved(event, within=0.01)
        """
    run = run_pytest(tmp_path, test_missed=textwrap.dedent(test))
    assert run.returncode == pytest.ExitCode.TESTS_FAILED
    assert "cloud.expect_approved(event, within=0.01)" in run.stdout
    assert "was not approved within 0.01 s." in run.stdout
    assert "cloud.py" not in run.stdout.replace("test_missed.py", "")


def test_a_refusal_shows_the_test_and_the_words_only(tmp_path: Path) -> None:
    test = """
        import asyncio

        def test_of_an_order(cloud):
            cloud.restart("web_0")

        def test_of_a_host(cloud):
            cloud.maintain("vm0", "freeze")

        def test_of_the_clock(cloud):
            cloud.clock.advance("15min")

        def test_of_a_fault(cloud):
            cloud.faults.add("gon")

        def test_of_a_scenario(cloud):
            cloud.scenario("live-migratio")

        def test_of_an_expectation(cloud):
            cloud.expect_approved(cloud.restart("vm0"), by="vm1")

        def test_of_an_awaited_expectation(cloud):
            asyncio.run(cloud.aio.expect_polled("vm1"))

        def test_of_nothing(cloud):
            cloud.expect_gone([])

        def test_of_a_second_cloud(make_cloud):
            make_cloud(scopes=["web"])

        def test_of_an_inventory(make_cloud):
            make_cloud(inventory="[[vm]]")
        """
    run = run_pytest(tmp_path, test_refused=textwrap.dedent(test))
    assert "10 failed" in run.stdout, run.stdout
    assert "There is no VM web_0. There are: vm0." in run.stdout
    assert "There is no VM vm1. Did you mean vm0?" in run.stdout
    ours = "/".join(Path(pytest_plugin.__file__).parent.parts[-2:])
    assert not re.findall(rf"^\S*{ours}/\S+:\d+: .*", run.stdout, re.MULTILINE)
    assert "concurrent/futures" not in run.stdout
    everything = run_pytest(tmp_path, "--full-trace", "-k", "of_an_order")
    assert "testing/cloud.py" in everything.stdout


def test_the_marker_is_known_and_its_mistakes_are_named(tmp_path: Path) -> None:
    test = """
        import pytest

        @pytest.mark.cloud(["web:3"])
        def test_without_a_word(cloud):
            pass

        @pytest.mark.cloud(scope=["web:3"])
        def test_with_a_wrong_word(cloud):
            pass
        """
    run = run_pytest(tmp_path, test_marker=textwrap.dedent(test))
    assert "2 errors" in run.stdout
    assert "The marker cloud takes words with names, not ['web:3']." in run.stdout
    assert "The marker cloud is refused. A cloud has no scope. Did you mean scopes?" in run.stdout
    assert "another exception occurred" not in run.stdout
    assert "@pytest.mark.cloud(vms=" in run_pytest(tmp_path, "--markers").stdout


def test_an_error_inside_the_emulator_fails_the_test_that_caused_it(tmp_path: Path) -> None:
    test = """
        async def breaks(emulator):
            async def planted():
                raise ValueError("planted")

            emulator.pacer.at(emulator.clock.now_ms(), "something breaks", planted)

        def test_breaks(cloud):
            import urllib.error, urllib.request

            event = cloud.restart("vm0")
            url = cloud.vm("vm0").document_url
            cloud._background.call(breaks)
            body = b'{"StartRequests":[{"EventId":"%s"}]}' % event.event_id.encode()
            asked = urllib.request.Request(url, headers={"Metadata": "true"}, data=body)
            try:
                urllib.request.urlopen(asked)
            except urllib.error.HTTPError as error:
                error.close()

        def test_is_well(cloud):
            cloud.restart("vm0")
        """
    run = run_pytest(tmp_path, conftest=WATCHING, test_broken=textwrap.dedent(test))
    assert "ERROR test_broken.py::test_breaks" in run.stdout
    assert "The emulator broke: ValueError('planted')" in run.stdout
    assert "2 passed, 1 error" in run.stdout


@needs("unshare", "ip")
def test_a_cloud_needs_no_network() -> None:
    alone = [
        "unshare",
        "--map-root-user",
        "--net",
        "sh",
        "-c",
        'ip link set lo up && exec "$@"',
        "-",
    ]
    try:
        subprocess.run([*alone, "true"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as why:
        pytest.skip(f"this system cannot take the network away: {why}")
    code = (
        "import urllib.request; from forewarn.testing import Cloud\n"
        "with Cloud() as cloud:\n"
        "    url = cloud.vm('vm0').document_url\n"
        "    asked = urllib.request.Request(url, headers={'Metadata': 'true'})\n"
        "    print(urllib.request.urlopen(asked).status, cloud.operator_url[:17])\n"
    )
    ended = subprocess.run(
        [*alone, sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "200 http://127.0.0.1:\n", ended.stderr


def test_pytest_starts_without_importing_forewarn(tmp_path: Path) -> None:
    test = """
        import sys

        def test_nothing_is_imported():
            ours = {name for name in sys.modules if name.split(".")[0] == "forewarn"}
            assert ours == {"forewarn", "forewarn.pytest_plugin"}
        """
    run = run_pytest(tmp_path, test_imports=textwrap.dedent(test))
    assert run.returncode == 0, run.stdout


def test_forewarn_itself_does_not_need_pytest() -> None:
    code = "import sys; sys.modules['pytest'] = None; from forewarn.testing import Cloud; Cloud()"
    subprocess.run([sys.executable, "-c", code], timeout=60, check=True)


def test_the_entry_point_names_the_plugin(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.pluginmanager.get_plugin("forewarn") is pytest_plugin
