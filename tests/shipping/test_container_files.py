"""Containerfile and compose.yaml, without an engine: their commands are taken out and run.

What a container is to the commands is played by a folder (its files) and a network namespace (its
addresses). Where no such namespace may be made, the tests that need one say so and skip.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.shipping_world import ROOT, Emulator, Place, empty_place, why_no_namespace

SECRET = "chosen-by-the-one-who-starts-it"
INSTALLED = Path(sysconfig.get_path("purelib"))
LINK_LOCAL = "169.254.169.254"


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a Containerfile."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The words of a list in JSON, as ENTRYPOINT and CMD have it, or of a plain line."""
        if self.rest.startswith("["):
            words: list[str] = json.loads(self.rest)
            return words
        return shlex.split(self.rest)


def instructions() -> list[Instruction]:
    lines = (ROOT / "Containerfile").read_text("utf-8").splitlines()
    kept = [line for line in lines if line and not line.startswith("#")]
    return [Instruction(*line.split(" ", 1)) for line in kept]


def only(name: str) -> Instruction:
    (found,) = [one for one in instructions() if one.name == name]
    return found


def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
    return read


@pytest.fixture
def place(tmp_path: Path) -> Place:
    if why_no_namespace():
        pytest.skip(f"no network namespace can be made here: {why_no_namespace()}")
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return empty_place(tmp_path, PATH=programs)


def contained(command: Sequence[str], *, address: str = "", ports_from: int = 1024) -> list[str]:
    """The command in a network of its own, without any privilege, as a container runs it."""
    prepare = "ip link set lo up"
    if address:
        prepare += f" && ip address add {address}/32 dev lo"
    prepare += f" && echo {ports_from} > /proc/sys/net/ipv4/ip_unprivileged_port_start"
    drop = "exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs"
    shell = ["sh", "-c", f'{prepare} && {drop} "$@"', "sh"]
    return ["unshare", "--map-root-user", "--net", *shell, *command]


def beside(emulator: Emulator, command: Sequence[str]) -> list[str]:
    """The command in the network of a running container."""
    there = ["nsenter", "--target", str(emulator.pid), "--user", "--preserve-credentials", "--net"]
    return [*there, *command]


# The image.


@pytest.fixture
def borrowed(tmp_path: Path) -> Path:
    """What an index would give: the installed packages, but nothing of Forewarn itself."""
    folder = tmp_path / "borrowed"
    folder.mkdir()
    for one in INSTALLED.iterdir():
        if one.suffix != ".pth" and not one.name.startswith(("forewarn", "pip", "setuptools")):
            (folder / one.name).symlink_to(one)
    return folder


def built(root: Path, place: Place, borrowed: Path) -> None:
    """Do what the first stage does, under a folder that stands for the root of its image."""
    workdir = root
    for one in instructions():
        if one.name == "WORKDIR":
            workdir = root / one.rest.lstrip("/")
            workdir.mkdir()
        elif one.name == "COPY" and "--from" not in one.rest:
            *sources, target = one.words
            for source in sources:
                _copy(ROOT / source, workdir / target)
        elif one.name == "RUN":
            ran = subprocess.run(
                ["sh", "-c", one.rest.replace("/opt/", f"{root}/opt/")],
                cwd=workdir,
                env={**place.environment, **_offline(borrowed)},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            assert ran.returncode == 0, ran.stderr


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)  # as an engine does
        shutil.copy(source, target)


def _offline(borrowed: Path) -> dict[str, str]:
    """Lets pip do the same without an index: with the packages that are there already."""
    return {
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it as the option's own value: no isolation
        "PYTHONPATH": str(borrowed),
    }


@pytest.fixture
def image(tmp_path: Path, place: Place, borrowed: Path) -> Place:
    """Where the image's commands run: its files, its environment, no privilege."""
    root = tmp_path / "image"
    root.mkdir()
    built(root, place, borrowed)
    environment = {**place.environment, "PYTHONPATH": str(borrowed)}
    for one in instructions():
        if one.name == "ENV":
            name, _, value = one.words[0].partition("=")
            value = re.sub(r"^/tmp/", f"{place.environment['TMPDIR']}/", value)
            value = re.sub(r"^/opt/", f"{root}/opt/", value)
            environment[name] = value.replace("$PATH", environment["PATH"])
    return Place(place.folder, environment)


def entrypoint(*arguments: str) -> list[str]:
    return [*only("ENTRYPOINT").words, *arguments]


def test_the_image_is_built_and_emulates_as_its_file_says(image: Place) -> None:
    command = entrypoint(*only("CMD").words, "--json")
    with image.running(contained(command), FOREWARN_TOKEN=SECRET) as emulator:
        assert emulator.vm_urls == {"vm0": "http://0.0.0.0:8254"}
        assert emulator.said["operator_url"] == "http://0.0.0.0:8255"
        shown = image.run(
            beside(emulator, entrypoint("clock", "show")),
            FOREWARN_URL="http://127.0.0.1:8255",
            FOREWARN_TOKEN=SECRET,
        )
        assert (shown.returncode, shown.stderr) == (0, "")
        # Inside the container nobody has to know the token.
        listed = image.run(beside(emulator, entrypoint("scenario", "run", "user-reboot")))
        assert (listed.returncode, listed.stderr) == (0, "")
    program = shutil.which("forewarn", path=image.environment["PATH"])
    assert program is not None
    assert "/image/opt/forewarn/bin/" in program


def test_the_image_needs_no_root() -> None:
    user, _, group = only("USER").rest.partition(":")
    assert int(user) > 0
    assert int(group) > 0
    names = [one.name for one in instructions()]
    assert names.index("USER") > max(i for i, name in enumerate(names) if name in ("RUN", "COPY"))
    exposed = only("EXPOSE").words
    assert all(f"0.0.0.0:{port}" in only("CMD").words for port in exposed)


def test_an_image_is_built_from_nothing_but_what_it_copies() -> None:
    ignored = (ROOT / ".containerignore").read_text("utf-8")
    assert (ROOT / ".dockerignore").read_text("utf-8") == ignored
    let_in = set(re.findall(r"^!(\S+)$", ignored, re.MULTILINE))
    copied = {
        word
        for one in instructions()
        if one.name == "COPY" and "--from" not in one.rest
        for word in one.words[:-1]
    }
    assert let_in == copied
    assert all((ROOT / one).exists() for one in copied)


# The app and the emulator side by side.


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


def filled_in(environment: dict[str, str]) -> dict[str, str]:
    """The environment of a service, once the person who starts it has exported the token."""
    return {
        name: re.sub(r"\$\{FOREWARN_TOKEN:\?[^}]*\}", SECRET, value)
        for name, value in environment.items()
    }


@pytest.fixture
def together(place: Place) -> Iterator[tuple[Place, Emulator]]:
    """The emulator of compose.yaml at the address of its network."""
    given = service("emulator")
    (address,) = [one["ipv4_address"] for one in given["networks"].values()]
    ports_from = int(given["sysctls"]["net.ipv4.ip_unprivileged_port_start"])
    command = entrypoint(*given["command"], "--json")
    environment = filled_in(given["environment"])
    here = Place(place.folder, {**place.environment, "FOREWARN_DATA": f"{place.folder}/data"})
    packed = contained(command, address=address, ports_from=ports_from)
    with here.running(packed, **environment) as emulator:
        assert emulator.vm_urls == {"vm0": f"http://{LINK_LOCAL}:80"}
        yield here, emulator


def test_the_health_check_is_good_once_the_emulator_listens(
    together: tuple[Place, Emulator],
) -> None:
    place, emulator = together
    how, *command = service("emulator")["healthcheck"]["test"]
    assert how == "CMD"
    ran = place.run(beside(emulator, command), **filled_in(service("emulator")["environment"]))
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_app_reads_and_approves_at_the_address_that_vms_know(
    together: tuple[Place, Emulator],
) -> None:
    place, emulator = together
    environment = filled_in(service("operator")["environment"])
    # There is no name server in the namespace: what `emulator` stands for is written out.
    environment["FOREWARN_URL"] = environment["FOREWARN_URL"].replace("emulator", "127.0.0.1")
    (mount,) = service("app")["volumes"]
    folder, inside, mode = mount.split(":")
    assert mode == "ro"
    assert (ROOT / folder).is_dir()
    command = [
        re.sub(f"^{inside}/", f"{ROOT / folder}/", word) for word in service("app")["entrypoint"]
    ]

    ordered = place.run(
        beside(emulator, entrypoint("scenario", "run", "user-reboot")), **environment
    )
    assert (ordered.returncode, ordered.stderr) == (0, "")
    app = subprocess.Popen(
        beside(emulator, command),
        env=dict(place.environment),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert app.stdout is not None
        said = [app.stdout.readline() for _ in range(3)]
    finally:
        app.kill()
        app.communicate()
    assert said[:2] == ["working\n", "drained\n"]
    assert said[2].startswith("approved ")
    listed = place.run(beside(emulator, entrypoint("event", "list", "--json")), **environment)
    assert [one["phase"] for one in json.loads(listed.stdout)["items"]] == ["started"]


def test_the_commands_that_compose_yaml_tells_people_exist() -> None:
    text = (ROOT / "compose.yaml").read_text("utf-8")
    told = re.findall(r"^#   docker compose run --rm operator (.+)$", text, re.MULTILINE)
    assert told == ["scenario run user-reboot", "clock advance 15m"]
    assert service("operator")["image"] == service("emulator")["image"]
    assert service("app")["depends_on"]["emulator"]["condition"] == "service_healthy"


def test_the_network_has_the_address_of_the_real_service() -> None:
    (network,) = compose()["networks"].values()
    assert [one["subnet"] for one in network["ipam"]["config"]] == ["169.254.169.0/24"]
    assert service("emulator")["networks"]["cloud"]["ipv4_address"] == LINK_LOCAL
    # The operator API is open to this machine only.
    assert service("emulator")["ports"] == ["127.0.0.1:8255:8255"]


def test_no_secret_is_written_down() -> None:
    for name in ("emulator", "operator"):
        assert service(name)["environment"]["FOREWARN_TOKEN"].startswith("${FOREWARN_TOKEN:?")
