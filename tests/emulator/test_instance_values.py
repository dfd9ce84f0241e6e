"""What VMs of the emulator read of themselves: values of a test's own, names, an attestation."""

from __future__ import annotations

import base64
import http.client
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from forewarn.core.errors import Invalid, NotFound
from forewarn.emulator.fleet import computer_name
from forewarn.testing import Cloud, CloudVm
from support.simulate_process import forewarn, simulating

INSTANCE = "/metadata/instance"


def got(vm: CloudVm, path: str = "", query: str = "api-version=2021-02-01", **headers: str) -> Any:
    connection = http.client.HTTPConnection(urlsplit(vm.url).netloc, timeout=60)
    sent = {"Metadata": "true", **headers}
    connection.request("GET", f"{path}?{query}", headers=sent)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def text(vm: CloudVm, path: str) -> str:
    status, body = got(vm, f"{INSTANCE}/{path}", "api-version=2021-02-01&format=text")
    assert status == 200, body
    return str(body.decode())


SIZE = "Standard_D2s_v3"


@pytest.mark.cloud(vms=2, instance={"compute/vmSize": SIZE, "compute/userData": "QQ=="})
def test_values_are_read_at_any_path_by_all_vms_or_by_one(cloud: Cloud) -> None:
    one, other = cloud.vms
    assert text(one, "compute/vmSize") == "Standard_D2s_v3"
    assert json.loads(got(other, INSTANCE)[1])["compute"]["userData"] == "QQ=="
    cloud.instance.set("compute/vmsize", "Standard_E4_v5", vm=one)
    assert text(one, "compute/vmSize") == "Standard_E4_v5"
    assert text(other, "compute/vmSize") == "Standard_D2s_v3"
    cloud.instance.set("network/interface/0/ipv4/ipAddress/0/publicIpAddress", "192.0.2.9")
    cloud.instance.set("network/interface/1", {"macAddress": "0200DEADBEEF"})
    cloud.instance.set("compute/storageProfile", {"dataDisks": [{"lun": 0, "shared": True}]})
    cloud.instance.set("compute/zone", None)
    tree = json.loads(got(one, INSTANCE)[1])
    first, second = tree["network"]["interface"]
    assert first["ipv4"]["ipAddress"][0]["publicIpAddress"] == "192.0.2.9"
    assert first["macAddress"]
    assert second == {"macAddress": "0200DEADBEEF"}
    assert tree["compute"]["storageProfile"] == {"dataDisks": [{"lun": "0", "shared": "true"}]}
    assert "zone" not in tree["compute"]
    assert tree["compute"]["name"] == "vm0"
    cloud.instance.clear()
    assert got(one, f"{INSTANCE}/compute/vmSize", "api-version=2021-02-01&format=text")[0] == 404


def test_a_value_that_cannot_be_is_refused(cloud: Cloud) -> None:
    for path in ("", "compute//x", "/".join("a" * 17)):
        with pytest.raises(Invalid, match="no path of /metadata/instance"):
            cloud.instance.set(path, "x")
    with pytest.raises(Invalid, match="cannot stand"):
        cloud.instance.set("compute/x", object())
    with pytest.raises(NotFound, match=r"There is no VM .vm9."):
        cloud.instance.set("compute/x", "y", vm="vm9")
    with pytest.raises(Invalid, match="Give values by path"):
        Cloud(instance=["compute/vmSize"])  # type: ignore[arg-type] # the mistake


def test_the_command_line_sets_values_and_names(tmp_path: Path) -> None:
    options = ("--scope", "aks-pool-vmss:2", "--computer-names", "vmss")
    values = ("--instance", "compute/vmSize=A=B", "--instance", "aks-pool-vmss_1:compute/sku=x")
    with simulating(tmp_path, *options, *values) as emulator:
        query = "api-version=2021-02-01"
        first, second = (
            emulator.guest(f"aks-pool-vmss_{n}").get(f"{INSTANCE}?{query}").json()["compute"]
            for n in range(2)
        )
        assert (first["vmSize"], first["osProfile"]["computerName"]) == (
            "A=B",
            "aks-pool-vmss000000",
        )
        assert (second["sku"], second["name"]) == ("x", "aks-pool-vmss_1")
        assert "sku" not in first


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--instance", "compute/vmSize"), "has no value"),
        (("--computer-names", "aks"), "Use vm or vmss"),
        (("--instance", "vm9:compute/vmSize=x"), "There is no VM vm9"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    ports = ("--guest", "127.0.0.1:0", "--operator", "127.0.0.1:0")
    ran = forewarn(tmp_path, "simulate", *ports, *options)
    assert ran.returncode in (1, 2)
    assert said in ran.stderr


@pytest.mark.parametrize(("number", "name"), [(0, "000000"), (18, "00000i"), (36, "000010")])
def test_computer_names_of_a_scale_set_count_in_base_36(number: int, name: str) -> None:
    assert computer_name("aks-x-vmss", number) == f"aks-x-vmss{name}"


@pytest.mark.cloud(scopes=["web:1"], computer_names="vmss")
def test_resources_have_the_name_of_the_vm_and_not_of_its_computer(cloud: Cloud) -> None:
    assert text(cloud.vm("web_0"), "compute/osProfile/computerName") == "web000000"
    assert cloud.restart("web_0").resources == ("web_0",)


ATTESTED = "/metadata/attested/document"


@pytest.mark.cloud(start="2026-03-03T10:15:00Z", seed=1)
def test_the_attested_document_is_plainly_a_tests(cloud: Cloud) -> None:
    vm = cloud.vm("vm0")
    status, body = got(vm, ATTESTED, "api-version=2021-02-01&nonce=1234576")
    document = json.loads(body)
    assert status == 200
    assert document["encoding"] == "forewarn-test"
    content = json.loads(base64.b64decode(document["signature"]))
    assert "proves nothing" in content["forewarnTest"]
    assert content["nonce"] == "1234576"
    assert content["vmId"] == text(vm, "compute/vmId")
    assert content["timeStamp"] == {
        "createdOn": "03/03/26 10:15:00 -0000",
        "expiresOn": "03/03/26 16:15:00 -0000",
    }
    without = json.loads(base64.b64decode(json.loads(got(vm, ATTESTED)[1])["signature"]))
    assert without["nonce"] == "20260303-101500"


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("nonce=1", {}, 400),
        ("api-version=2017-04-02", {}, 404),
        ("api-version=2021-02-01", {"Metadata": "false"}, 400),
        ("api-version=2021-02-01", {"X-Forwarded-For": "1.2.3.4"}, 400),
    ],
)
def test_the_attested_document_is_asked_for_as_everything_else(
    cloud: Cloud, query: str, headers: dict[str, str], status: int
) -> None:
    assert got(cloud.vm("vm0"), ATTESTED, query, **headers)[0] == status


def test_a_fault_hits_the_attested_document_too(cloud: Cloud) -> None:
    cloud.faults.add("error", count=1)
    assert got(cloud.vm("vm0"), ATTESTED)[0] == 500
    assert got(cloud.vm("vm0"), ATTESTED)[0] == 200
