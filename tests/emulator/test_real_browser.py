"""Real clients of JavaScript: a page in a browser gets nothing, a program is served."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from forewarn.endpoint.routes import MetadataHeader
from forewarn.testing import Cloud
from programs import program
from support.browser_world import PATIENCE_S, SITE, WAYS, Asked, a_site, browsing, needs_chromium
from support.cloud_guest import approve, read

OLDEST = "/metadata/scheduledevents?api-version=2017-03-01"
NEWEST = "/metadata/scheduledevents?api-version=2020-07-01"
INSTANCE = "/metadata/instance?api-version=2021-02-01"
LINK_LOCAL = "169.254.169.254"


def attacked(
    cloud: Cloud, vm: str, paths: Sequence[str], hosts: Sequence[str], folder: Path
) -> list[Asked]:
    """Everything that a page asked of a VM's endpoint, in every way and under each host.

    A host that ends in a colon gets the port of the site.
    """
    (event,) = cloud.events()
    with a_site(cloud.vm(vm).url) as site:
        named = [f"{host}{site.port}" if host.endswith(":") else host for host in hosts]
        attacks = site.attack(paths, named, event.event_id)
        with browsing(site, folder / vm):
            site.wait_for(attacks)
    assert len(attacks) == len(paths) * len(hosts) * len(WAYS)
    return site.asked


@needs_chromium
@pytest.mark.cloud(vms=["vm0", "silent"], enablement="first-poll", metadata_header="lenient")
def test_a_page_neither_reads_nor_enables_nor_approves(cloud: Cloud, tmp_path: Path) -> None:
    read(cloud.vm("vm0"))
    event = cloud.restart("vm0")
    before = cloud.journal()
    paths = [OLDEST, NEWEST, INSTANCE]
    # The site's own name, which leads to the endpoint by now; another name; an address.
    hosts = [SITE, "other.example", "127.0.0.1:"]
    for vm in ("vm0", "silent"):
        asked = attacked(cloud, vm, paths, hosts, tmp_path)
        assert [one for one in asked if one.status != 400] == []
    assert cloud.reads(event) == ()
    assert cloud.polls("silent") == 0
    assert cloud.journal() == before
    approve(cloud.vm("vm0"), event.event_id)
    cloud.expect_approved(event, by="vm0", within=0)


@needs_chromium
@pytest.mark.parametrize("setting", ["as-documented", "always", "lenient"])
def test_a_page_approves_nothing_at_the_address_of_the_real_service(
    setting: MetadataHeader, tmp_path: Path
) -> None:
    """Browsers send no Sec-Fetch-Site there: what a blind GET may do, compatibility.md says."""
    with Cloud(vms=["vm0", "silent"], enablement="first-poll", metadata_header=setting) as cloud:
        read(cloud.vm("vm0"))
        event = cloud.restart("vm0")
        before = cloud.journal()
        for vm in ("vm0", "silent"):
            asked = attacked(cloud, vm, [OLDEST, NEWEST, INSTANCE], [LINK_LOCAL], tmp_path)
            answered = {(one.method, one.version) for one in asked if one.status != 400}
            assert answered <= (set() if setting == "always" else {("GET", "2017-03-01")})
        cloud.expect_not_approved(event)
        if setting == "always":
            assert cloud.journal() == before


PROGRAM = """
const [url] = process.argv.slice(1);
const headers = {Metadata: 'true'};
(async () => {
  const seen = await (await fetch(url, {headers})).json();
  const body = JSON.stringify({StartRequests: seen.Events.map(({EventId}) => ({EventId}))});
  const answer = await fetch(url, {method: 'POST', headers, body});
  console.log(answer.status);
})();
"""


def test_a_program_that_asks_with_fetch_reads_and_approves(cloud: Cloud) -> None:
    event = cloud.restart("vm0")
    said = subprocess.run(
        [program("node"), "-e", PROGRAM, cloud.vm("vm0").document_url],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (said.stdout, said.stderr) == ("200\n", "")
    cloud.expect_approved(event, by="vm0", within=0)
