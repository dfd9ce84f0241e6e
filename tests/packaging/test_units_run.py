"""Both units under a real systemd, with their walls: the host daemon serves a bridge without root.

systemd is the first process of a place of its own (`guest_private_place`), with its own network.
Of the units only what is about this machine is another: where program and settings are.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

import forewarn
from programs import program
from support.guest_private_place import system_systemd
from support.libvirt_world import libvirt_is_there
from support.waiting import wait_until

PACKAGING = Path(__file__).parent.parent.parent / "packaging"
SOURCES = Path(forewarn.__file__).parent.parent
PYTHONPATH = "/opt/forewarn/src:/opt/forewarn/lib"  # wherever they really are: see `installed`
LIMIT_S = 60.0
CONTROL, HOST = "forewarn-control.service", "forewarn-host.service"
URL = "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01"
MARKS = "/proc/sys/net/ipv4/tcp_fwmark_accept"
NET_ADMIN_AND_BIND_SERVICE = "0000000000001400"
HYPERVISOR = """<node xmlns:test='http://libvirt.org/schemas/domain/test/1.0'>
<domain type='test'><name>web-0</name><uuid>6695eb01-f6a4-8304-79aa-97f2502e193f</uuid>
<memory>8192</memory><os><type>hvm</type></os>
<devices><interface type='bridge'><mac address='52:54:00:00:00:01'/><source bridge='br0'/>
<target dev='testnet0'/></interface></devices></domain></node>"""
BRIDGE = """ip link set lo up
ip link add br0 type bridge
ip link set br0 up
ip netns add guest
ip link add testnet0 type veth peer name eth0 netns guest
ip link set testnet0 master br0 up
ip -n guest link set eth0 address 52:54:00:00:00:01 up
ip -n guest address add 198.51.100.7/24 dev eth0
ip -n guest route add 169.254.169.254/32 dev eth0"""


def python_for_everybody() -> str:
    """A Python that other users than root can run, of the version of this one."""
    found = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if found is None:
        pytest.skip("there is no Python that other users can run")
    version = "import sys; print('%d.%d' % sys.version_info[:2])"
    told = subprocess.run([found, "-c", version], capture_output=True, text=True, check=True)
    if told.stdout.strip() != f"{sys.version_info.major}.{sys.version_info.minor}":
        pytest.skip("the Python of the system is of another version")
    return found


def unit(name: str, command: str = "") -> str:
    """The unit as it is shipped, and at its end what of it is another on this machine.

    With a command it runs that within its walls.
    """
    text = (PACKAGING / "systemd" / name).read_text(encoding="utf-8")
    shipped = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    command = f"Type=oneshot\nRestart=no\nExecStart={command}" if command else shipped
    return (
        f"{text}\n[Unit]\nDefaultDependencies=no\n[Service]\nExecStart=\n"
        f"{command.replace('/etc/forewarn', '/opt/forewarn/etc')}\n"
        f"Environment=PYTHONPATH={PYTHONPATH}\n"
        f"StandardOutput=append:/var/log/{name}\nStandardError=append:/var/log/{name}\n"
    )


def installed(folder: Path) -> str:
    """A script that installs everything in folders that only this place has."""
    python = python_for_everybody()
    opt, etc = folder / "forewarn", folder / "etc"
    for made in (opt / "bin", opt / "etc", etc, folder / "usr/lib/sysusers.d"):
        made.mkdir(parents=True)
    started = f"#!{python}\nfrom forewarn.cli.main import main\n\nmain()\n"
    (opt / "bin/forewarn").write_text(started, encoding="utf-8")
    (opt / "bin/forewarn").chmod(0o755)
    (opt / "etc/hypervisor.xml").write_text(HYPERVISOR, encoding="utf-8")
    (opt / "etc/control.toml").write_text('hosts = "127.0.0.1:8256"\n', encoding="utf-8")
    settings = 'libvirt = "test:///opt/forewarn/etc/hypervisor.xml"\n'
    (opt / "etc/host.toml").write_text(settings, encoding="utf-8")
    shutil.copy(PACKAGING / "sysusers.conf", folder / "usr/lib/sysusers.d/forewarn.conf")
    for name in ("passwd", "group"):
        shutil.copy(f"/etc/{name}", etc / name)
    sysusers = program("systemd-sysusers")
    subprocess.run([sysusers, f"--root={folder}"], check=True, timeout=LIMIT_S, capture_output=True)
    binds = [f"mount --bind {etc / name} /etc/{name}" for name in ("passwd", "group")]
    own = [f"mount -t tmpfs tmpfs {place}" for place in ("/var/lib", "/var/log", "/opt")]
    # The walls hide the home folders and /tmp, where the sources of these tests may well be.
    seen = [
        f"mkdir /opt/forewarn/{name} && mount --bind {really} /opt/forewarn/{name}"
        for name, really in (("src", SOURCES), ("lib", sysconfig.get_path("purelib")))
    ]
    return "\n".join([*binds, *own, f"cp -r {opt} /opt/forewarn", *seen])


class Place:
    """A machine with both units, and ways to look at it."""

    def __init__(self, inside: list[str]) -> None:
        self._inside = inside
        self._forewarn = ["env", f"PYTHONPATH={PYTHONPATH}"]
        self._forewarn += ["/opt/forewarn/bin/forewarn"]

    def run(self, *command: str, check: bool = True, told: str = "") -> str:
        done = subprocess.run(
            [*self._inside, *command],
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            input=told,
        )
        if check and done.returncode != 0:
            logs = self.run("sh", "-c", "cat /var/log/*.service", check=False)
            pytest.fail(f"{command}: {done.stdout}{done.stderr}\n{logs}")
        return done.stdout

    def forewarn(self, *words: str) -> str:
        """The command line on this machine, as root."""
        return self.run(*self._forewarn, "--data", "/var/lib/forewarn", *words)

    def join(self, *words: str, token: str) -> str:
        """The command line as the user of the host daemon."""
        user = ["setpriv", "--reuid", "forewarn-host", "--regid", "forewarn-host", "--init-groups"]
        self.run("install", "-d", "-o", "forewarn-host", "-m", "0700", "/var/lib/forewarn-host")
        words = ("host", "--data", "/var/lib/forewarn-host", "--token-file", "-", *words)
        return self.run(*user, *self._forewarn, *words, told=token)

    def start(self, name: str) -> None:
        self.run("systemctl", "start", name)

    def main_pid(self, name: str) -> str:
        return self.run("systemctl", "show", "--value", "-p", "MainPID", name).strip()

    def status(self, name: str) -> dict[str, str]:
        lines = self.run("cat", f"/proc/{self.main_pid(name)}/status").splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def guards(self) -> list[str]:
        """The processes of thaw guards, by number."""
        listed = self.run("sh", "-c", "grep -la libvirt.tha[w] /proc/[0-9]*/cmdline", check=False)
        return sorted(listed.split())

    def ask(self, *more: str) -> str:
        """What the guest is answered; empty if nothing."""
        words = ["curl", "-s", "-m", "5", "-H", "Metadata: true", *more, URL]
        return self.run("ip", "netns", "exec", "guest", *words, check=False)


def test_the_walls_of_a_host_let_libvirt_reach_another_host_by_ssh(tmp_path: Path) -> None:
    """As far as a host that is not there: ssh has to say that, and no wall anything else."""
    program("ssh")
    virsh = program("virsh")
    command = f"-{virsh} -c qemu+ssh://127.0.0.1/system list"
    units = {HOST: unit(HOST, command)}
    before = installed(tmp_path)
    with system_systemd(units, tmp_path / "log", before=before, network=True) as inside:
        there = Place(inside)
        there.run("ip", "link", "set", "lo", "up")
        there.start(HOST)
        said = there.run("cat", f"/var/log/{HOST}")
    assert "ssh: connect to host 127.0.0.1 port 22: Connection refused" in said


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    for name in ("ip", "nft", "curl"):
        program(name)
    libvirt_is_there()
    units = {name: unit(name) for name in (CONTROL, HOST)}
    before = installed(tmp_path)
    with system_systemd(units, tmp_path / "log", before=before, network=True) as inside:
        made = Place(inside)
        made.run("sh", "-ec", BRIDGE)
        yield made


def served(place: Place) -> None:
    """Start control, let the host join, start it, and have its guest answered."""
    place.start(CONTROL)
    wait_until(lambda: "host invite" in place.run("cat", f"/var/log/{CONTROL}"), "control starts")
    invited = json.loads(place.forewarn("host", "invite", "h1", "--json"))
    said = place.join(
        "--join-only", "--control", "https://127.0.0.1:8256", "--name", "h1",
        token=invited["token"],
    )  # fmt: skip
    assert said == "This machine is host h1 of https://127.0.0.1:8256.\n"
    place.start(HOST)
    wait_until(lambda: '"Events":[]' in place.ask(), "the guest is served")


def test_members_of_the_group_are_operators_without_seeing_the_data(place: Place) -> None:
    """Also from within its walls the unit knows who asks: they hide the names of other users."""
    place.start(CONTROL)
    wait_until(lambda: "host invite" in place.run("cat", f"/var/log/{CONTROL}"), "control starts")
    assert place.run("stat", "-c", "%a %U %G", "/run/forewarn").split() == [
        "750", "forewarn", "forewarn",
    ]  # fmt: skip
    assert "fw1." not in place.run("cat", f"/var/log/{CONTROL}")
    assert json.loads(place.forewarn("host", "list", "--json"))["items"] == []
    member = ["setpriv", "--reuid", "65531", "--regid", "65531", "--groups", "forewarn"]
    stranger = ["setpriv", "--reuid", "65532", "--regid", "65532", "--clear-groups"]
    env = ["env", "HOME=/nowhere", f"PYTHONPATH={PYTHONPATH}", "/opt/forewarn/bin/forewarn"]
    invited = json.loads(place.run(*member, *env, "host", "invite", "h1", "--json"))
    assert invited["token"].startswith("fw1.")
    said = place.run("sh", "-c", '"$@" 2>&1; echo $?', "sh", *stranger, *env, "host", "list")
    assert "This user may not use /run/forewarn/operator.sock." in said
    assert said.endswith("3\n")
    place.run("chmod", "0755", "/run/forewarn")
    place.run("chmod", "0666", "/run/forewarn/operator.sock")
    said = place.run("sh", "-c", '"$@" 2>&1; echo $?', "sh", *stranger, *env, "host", "list")
    assert "may not use the operator's socket" in said
    assert json.loads(place.run(*member, *env, "host", "list", "--json"))["items"] == []


def killed_and_started_again(place: Place) -> None:
    pid = place.main_pid(HOST)
    place.run("kill", "-9", pid)
    wait_until(lambda: place.main_pid(HOST) not in ("0", pid), "systemd starts it again")


def test_the_units_run_without_root_and_serve_a_guest_on_its_bridge(place: Place) -> None:
    served(place)
    assert place.status(CONTROL)["CapEff"] == "0000000000000000"
    status = place.status(HOST)
    assert status["Uid"].split()[0] != "0"
    assert status["CapEff"] == status["CapBnd"] == NET_ADMIN_AND_BIND_SERVICE
    assert status["NoNewPrivs"] == "1"
    assert '"alive": true' in place.forewarn("host", "show", "h1", "--json")
    assert "web-0" in place.forewarn("vm", "list")
    assert place.run("cat", MARKS).strip() == "1"
    # A daemon that was killed is started again and finds its way; one that stops leaves nothing.
    killed_and_started_again(place)
    wait_until(lambda: '"Events":[]' in place.ask(), "the guest is served again")
    place.run("systemctl", "stop", HOST)
    assert "169.254.169.254" not in place.run("ip", "address", "show")
    assert "forewarn" not in place.run("nft", "list", "tables")
    assert place.run("cat", MARKS).strip() == "0"


def test_the_thaw_guard_of_a_freeze_outlives_a_daemon_that_is_killed_or_stopped(
    place: Place,
) -> None:
    served(place)
    place.forewarn("host", "maintain", "h1", "--type", "Freeze", "--duration", "60")
    wait_until(lambda: '"Freeze"' in place.ask(), "the Freeze is announced")
    event_id = json.loads(place.ask())["Events"][0]["EventId"]
    place.ask("-d", json.dumps({"StartRequests": [{"EventId": event_id}]}))
    wait_until(lambda: "paused" in place.forewarn("vm", "show", "web-0"), "the VM is frozen")
    guards = place.guards()
    assert len(guards) == 1
    killed_and_started_again(place)
    place.run("systemctl", "stop", HOST)
    assert place.guards() == guards
