"""`/metadata/instance` and `/metadata/versions`: what clients of scheduled events also ask."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from support.endpoint_world import EndpointWorld, running


@pytest.fixture(scope="module")
def world() -> Iterator[EndpointWorld]:
    with running() as world:
        yield world


@pytest.mark.parametrize(
    "version", ["2017-08-01", "2017-12-01", "2019-08-01", "2020-09-01", "2021-02-01", "2021-12-13"]
)
def test_a_vm_finds_itself_in_every_version_in_use(world: EndpointWorld, version: str) -> None:
    for source, name in (("127.0.0.1", "web_0"), ("127.0.0.2", "web_1"), ("127.0.0.3", "db_0")):
        answer = world.get(f"/metadata/instance?api-version={version}", source=source)
        compute = json.loads(answer.body)["compute"]
        assert (answer.status, compute["name"], compute["vmId"]) == (200, name, f"id-{name}")


@pytest.mark.parametrize("version", ["2019-03-11", "2019-06-01", "2021-05-01", "2021-12-13"])
def test_the_name_alone_comes_as_bare_text(world: EndpointWorld, version: str) -> None:
    answer = world.get(f"/metadata/instance/compute/name?api-version={version}&format=text")
    assert (answer.status, answer.body) == (200, b"web_0")
    assert answer.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    "url",
    [
        "/metadata/instance/?api-version=2021-02-01",
        "/metadata/instance?api-version=2021-02-01&format=json",
        "/Metadata/Instance?format=json&api-version=2021-02-01",
        "/metadata/instance/compute?api-version=2021-02-01",
        "/metadata/instance/compute/?api-version=2021-02-01",
        "/metadata/instance/network/interface/0?api-version=2021-02-01",
    ],
)
def test_branches_come_as_json(world: EndpointWorld, url: str) -> None:
    answer = world.get(url)
    assert answer.status == 200
    assert isinstance(json.loads(answer.body), dict)


def test_the_versions_are_listed_without_asking_for_one(world: EndpointWorld) -> None:
    answer = world.get("/metadata/versions")
    versions = json.loads(answer.body)["apiVersions"]
    assert answer.status == 200
    assert versions == sorted(versions)


def test_asking_for_neighbours_is_no_poll() -> None:
    with running() as world:
        world.get("/metadata/instance?api-version=2021-02-01")
        world.get("/metadata/versions")
        assert world.call(world.documents.polled) == {}
