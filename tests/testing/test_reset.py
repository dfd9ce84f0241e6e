"""`cloud.reset()`: one cloud for many tests, as new for each, and still the same for its app."""

from __future__ import annotations

import http.client
import socket
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from forewarn.testing import Cloud
from support.cli_runner import forewarn
from support.cloud_guest import approve, read

pytest_plugins = ["pytester"]
FIXED = """
[[host]]
name = "h"

[[vm]]
name = "db"
host = "h"
listen = "127.0.0.1:{port}"
"""


def test_nothing_is_left_of_what_was_and_the_app_sees_one_cloud_that_goes_on() -> None:
    with Cloud(scopes=["web:2"], seed=7, delete_seconds=0) as cloud:
        start, urls = cloud.clock.now, {vm.name: vm.url for vm in cloud.vms}
        first = cloud.restart("web_0")
        cloud.approve(cloud.delete("web_1"))
        cloud.faults.add("error", vm="web_0", count=1)
        cloud.clock.advance(minutes=20)
        assert [vm.name for vm in cloud.vms] == ["web_0"]
        before = cloud.document("web_0")["DocumentIncarnation"]
        cloud.reset()
        assert {vm.name: vm.url for vm in cloud.vms} == urls
        assert (cloud.clock.now, cloud.events(ended=True), cloud.faults.list()) == (start, (), ())
        assert cloud.polls("web_0") == 0
        document = read(cloud.vm("web_0"))
        assert document["Events"] == []
        assert document["DocumentIncarnation"] > before
        again = cloud.restart("web_0")
        assert again.event_id != first.event_id
        approve(cloud.vm("web_0"), again.event_id)
        cloud.expect_started(again, within=0)


def test_the_same_seed_gives_the_same_run_after_as_many_resets() -> None:
    def ids() -> list[str]:
        found = []
        with Cloud(seed=7) as cloud:
            for _ in range(3):
                found.append(cloud.restart("vm0").event_id)
                cloud.reset()
        return found

    assert ids() == ids()
    assert len(set(ids())) == 3


def test_an_app_that_connects_at_any_time_is_never_refused() -> None:
    with Cloud() as cloud:
        parts, stop = urlsplit(cloud.vm("vm0").url), threading.Event()
        refused: list[OSError] = []

        def app() -> None:
            while not stop.is_set():
                try:
                    with socket.create_connection((parts.hostname or "", parts.port or 0), 60):
                        pass
                except ConnectionRefusedError as error:
                    refused.append(error)

        thread = threading.Thread(target=app)
        thread.start()
        for _ in range(10):
            cloud.reset()
        stop.set()
        thread.join()
        assert refused == []


def test_the_operator_api_stays_where_it_is_too() -> None:
    with Cloud() as cloud:
        environment = cloud.environment
        assert forewarn("vm", "restart", "vm0", environment=environment).code == 0
        cloud.reset()
        assert cloud.environment == environment
        assert "no open events" in forewarn("event", "list", environment=environment).out.lower()


def test_a_vm_that_listens_where_its_inventory_says_stays_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Cloud(inventory=FIXED.format(port=port)) as cloud:
        cloud.reset()
        assert cloud.vm("db").url == f"http://127.0.0.1:{port}"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request(
            "GET", cloud.vm("db").document_url.partition(str(port))[2], headers={"Metadata": "true"}
        )
        assert connection.getresponse().status == 200
        connection.close()


def test_what_was_attached_is_let_go() -> None:
    app = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        with Cloud() as cloud:
            attached = cloud.vm("vm0").attach(app)
            cloud.approve(cloud.maintain("vm0", "Freeze"))
            cloud.reset()
            cloud.approve(cloud.restart("vm0"))
            assert app.poll() is None
            assert [one.impact for one in attached.impacts] == ["freeze"]
    finally:
        app.kill()
        app.wait()


def test_nothing_is_left_open_after_many_resets() -> None:
    descriptors = Path("/proc/self/fd")
    with Cloud(scopes=["web:3"]) as cloud:
        cloud.reset()
        before = len(list(descriptors.iterdir()))
        for _ in range(5):
            cloud.reset()
        assert len(list(descriptors.iterdir())) == before


def test_tests_of_a_session_share_a_cloud_that_is_as_new_for_each(
    pytester: pytest.Pytester,
) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def cloud_arguments():
            return {"scopes": ["web:2"]}

        @pytest.fixture(scope="session")
        def app_url(session_cloud):
            return session_cloud.vm("web_0").url
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("turn", range(3))
        def test_each(reset_cloud, session_cloud, app_url, turn):
            assert reset_cloud is session_cloud
            assert reset_cloud.vm("web_0").url == app_url
            assert reset_cloud.events() == ()
            reset_cloud.restart("web_0")

        def test_more(make_session_cloud):
            assert make_session_cloud(vms=2).vm("vm1").name == "vm1"

        @pytest.mark.cloud(vms=2)
        def test_misuse(reset_cloud):
            pass
        """
    )
    ran = pytester.runpytest("-p", "no:cacheprovider")
    ran.assert_outcomes(passed=4, errors=1)
    ran.stdout.fnmatch_lines(["*Say what it emulates by a session fixture `cloud_arguments`*"])
