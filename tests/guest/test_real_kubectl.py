"""The step `kubernetes` with a real kubectl, and an API server of just what kubectl asks for."""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from programs import program
from support.guest_steps_world import run_step

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: here, cluster: {server: "%s"}}]
users: [{name: me, user: {}}]
contexts: [{name: here, context: {cluster: here, user: me}}]
"""
POD = re.compile(r"/api/v1/namespaces/(\w+)/pods/([\w-]+)(/eviction)?")
DAEMON_SET = re.compile(r"/apis/apps/v1/namespaces/(\w+)/daemonsets/([\w-]+)")
NODE = re.compile(r"/api/v1/nodes/([\w.-]+)")
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def resource(name: str, kind: str, *, namespaced: bool, **more: str) -> dict[str, Any]:
    shown = {"name": name, "singularName": "", "namespaced": namespaced, "kind": kind}
    return {**shown, "verbs": VERBS, **more}


DISCOVERY: dict[str, dict[str, Any]] = {
    "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": group,
                "versions": [{"groupVersion": f"{group}/{version}", "version": version}],
                "preferredVersion": {"groupVersion": f"{group}/{version}", "version": version},
            }
            for group, version in (("apps", "v1"), ("policy", "v1beta1"))
        ],
    },
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            resource("nodes", "Node", namespaced=False),
            resource("pods", "Pod", namespaced=True),
            resource(
                "pods/eviction", "Eviction", namespaced=True, group="policy", version="v1beta1"
            ),
        ],
    },
    "/apis/apps/v1": {
        "kind": "APIResourceList",
        "groupVersion": "apps/v1",
        "resources": [resource("daemonsets", "DaemonSet", namespaced=True)],
    },
    "/apis/policy/v1beta1": {
        "kind": "APIResourceList",
        "groupVersion": "policy/v1beta1",
        "resources": [],
    },
}


class Kubernetes:
    """One node with pods on it; `stuck` pods have a disruption budget that allows nothing."""

    def __init__(self) -> None:
        self.unschedulable = False
        self.pods: dict[str, str] = {"web": "ReplicaSet", "agent": "DaemonSet"}
        self.stuck: set[str] = set()
        self.evicted: list[str] = []
        self.url = ""

    def node(self) -> dict[str, Any]:
        spec = {"unschedulable": True} if self.unschedulable else {}
        about = {"name": "web-0", "uid": "1", "resourceVersion": "1"}
        return {"kind": "Node", "apiVersion": "v1", "metadata": about, "spec": spec, "status": {}}

    def pod(self, name: str) -> dict[str, Any]:
        owner = {"kind": self.pods[name], "name": "owner", "controller": True, "uid": "2"}
        about: dict[str, Any] = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        about["ownerReferences"] = [{**owner, "apiVersion": "apps/v1"}]
        shown = {"metadata": about, "spec": {"nodeName": "web-0"}, "status": {"phase": "Running"}}
        return {"kind": "Pod", "apiVersion": "v1", **shown}

    def get(self, target: str) -> tuple[int, dict[str, Any]]:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path in DISCOVERY:
            return 200, DISCOVERY[path]
        if (found := NODE.fullmatch(path)) and found[1] == "web-0":
            return 200, self.node()
        if path == "/api/v1/pods":
            assert query["fieldSelector"] == ["spec.nodeName=web-0"]
            items = [self.pod(name) for name in self.pods]
            return 200, {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        if (found := POD.fullmatch(path)) and found[2] in self.pods:
            return 200, self.pod(found[2])
        if DAEMON_SET.fullmatch(path):
            about = {"name": "owner", "namespace": "default"}
            return 200, {"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": about}
        return failure(404, "NotFound", f"{path.rpartition('/')[2]} not found")

    def patch(self, target: str, body: bytes) -> tuple[int, dict[str, Any]]:
        found = NODE.fullmatch(urlsplit(target).path)
        if found is None or found[1] != "web-0":
            return failure(404, "NotFound", "not found")
        self.unschedulable = bool(json.loads(body)["spec"]["unschedulable"])
        return 200, self.node()

    def post(self, target: str) -> tuple[int, dict[str, Any]]:
        found = POD.fullmatch(urlsplit(target).path)
        assert found is not None
        assert found[3] == "/eviction"
        if found[2] in self.stuck:
            return failure(429, "TooManyRequests", "Cannot evict pod as it would violate")
        self.evicted.append(found[2])
        del self.pods[found[2]]
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success"}


def failure(code: int, reason: str, says: str) -> tuple[int, dict[str, Any]]:
    shown = {"status": "Failure", "reason": reason, "message": says, "code": code}
    return code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, **shown}


@contextlib.contextmanager
def api_server() -> Iterator[Kubernetes]:
    here = Kubernetes()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.give(*here.get(self.path))

        def do_PATCH(self) -> None:
            self.give(*here.patch(self.path, self.body()))

        def do_POST(self) -> None:
            self.body()
            self.give(*here.post(self.path))

        def body(self) -> bytes:
            return self.rfile.read(int(self.headers["Content-Length"]))

        def give(self, code: int, content: dict[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_arguments: Any) -> None:
            """Nothing on the terminal of the tests."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True  # kubectl keeps connections until it ends

    server = Server(("127.0.0.1", 0), Handler)
    here.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def kubernetes(tmp_path: Path) -> Iterator[Kubernetes]:
    program("kubectl")
    with api_server() as here:
        (tmp_path / "kubeconfig").write_text(KUBECONFIG % here.url)
        yield here


def step(folder: Path, action: str, **more: Any) -> tuple[int, str, str]:
    options = {"action": action, "kubeconfig": str(folder / "kubeconfig"), **more}
    return run_step("kubernetes", options, environment={"HOME": str(folder)})


def test_a_node_is_cordoned_and_uncordoned_and_twice_is_as_good(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    for action, expected in (("cordon", True), ("uncordon", False)):
        for _time in range(2):
            code, out, problems = step(tmp_path, action)
            assert (code, problems) == (0, "")
            assert "web-0" in out
            assert kubernetes.unschedulable is expected


def test_a_drain_evicts_what_may_go_and_leaves_daemon_sets(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    for _time in range(2):
        code, _out, problems = step(tmp_path, "drain")
        assert (code, problems) == (0, "")
        assert kubernetes.unschedulable
        assert kubernetes.evicted == ["web"]
        assert set(kubernetes.pods) == {"agent"}


def test_a_drain_that_a_budget_keeps_fails_in_time_and_names_the_pod(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    kubernetes.stuck.add("web")
    code, _out, problems = step(tmp_path, "drain", limit=4)
    assert code == 1
    assert problems.count("\n") == 1
    assert "web" in problems
    assert kubernetes.evicted == []


def test_daemon_sets_that_may_not_be_left_fail_the_drain(
    tmp_path: Path, kubernetes: Kubernetes
) -> None:
    code, _out, problems = step(tmp_path, "drain", ignore_daemonsets=False)
    assert code == 1
    assert "DaemonSet" in problems
    assert kubernetes.evicted == []


def test_an_unknown_node_fails_with_what_would_help(tmp_path: Path, kubernetes: Kubernetes) -> None:
    code, _out, problems = step(tmp_path, "cordon", node="typo")
    assert code == 1
    assert "kubectl get nodes" in problems
    assert not kubernetes.unschedulable


def test_an_api_server_that_is_away_fails_the_step_in_time(tmp_path: Path) -> None:
    program("kubectl")
    with api_server() as gone:
        (tmp_path / "kubeconfig").write_text(KUBECONFIG % gone.url)
    code, _out, problems = step(tmp_path, "drain", limit=5)
    assert code == 1
    assert problems.count("\n") == 1
