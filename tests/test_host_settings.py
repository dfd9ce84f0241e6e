"""The settings of a host daemon: where they come from, and what is refused with which words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from forewarn import host_settings, settings
from forewarn.host_settings import BadSettings, HostSettings

HOME = {"HOME": "/home/someone"}


def load(
    tmp_path: Path,
    text: str | None = None,
    environment: dict[str, str] | None = None,
    options: dict[str, str | None] | None = None,
) -> HostSettings:
    file = None
    if text is not None:
        file = tmp_path / "host.toml"
        file.write_text(text, encoding="utf-8")
    return host_settings.load(
        file=file, environment={**HOME, **(environment or {})}, options=options, folder=tmp_path
    )


def mistakes(tmp_path: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(BadSettings) as bad:
        load(tmp_path, text)
    return bad.value.mistakes


def test_without_file_and_environment_everything_has_its_default(tmp_path: Path) -> None:
    found = load(tmp_path)

    assert found.data == Path("/home/someone/.local/state/forewarn-host")
    assert (found.libvirt, found.listen) == ("qemu:///system", "bridge")
    assert found.metrics == "127.0.0.1:8257"
    assert found.reboot_command == ()


def test_every_key_can_be_set_in_the_file(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        'data = "d"\nname = "h1"\ncontrol = "https://ctl.example:8256/"\n'
        'libvirt = "qemu:///session"\nmigrate_uri = "qemu+tcp://{host}/system"\n'
        'shutdown_seconds = 30\nreboot_command = ["systemctl", "reboot"]\n'
        'boot_id_file = "b"\nlisten = "bridge"\nbridges = ["br0", "br-lan"]\nmetrics = ""\n'
        'guest_requests_per_second = 0\nmetadata_header = "lenient"\nlocation = "cellar"\n'
        'guest_names = ["Metadata.Example"]\n'
        'resource_group = "rg"\nsubscription_id = "11111111-1111-1111-1111-111111111111"\n',
    )

    assert found == HostSettings(
        data=tmp_path / "d",
        name="h1",
        control="https://ctl.example:8256",
        libvirt="qemu:///session",
        migrate_uri="qemu+tcp://{host}/system",
        shutdown_seconds=30,
        reboot_command=("systemctl", "reboot"),
        boot_id_file=tmp_path / "b",
        bridges=("br0", "br-lan"),
        metrics="",
        guest_requests_per_second=0,
        metadata_header="lenient",
        guest_names=("Metadata.Example",),
        location="cellar",
        resource_group="rg",
        subscription_id="11111111-1111-1111-1111-111111111111",
    )
    assert found.place().location == "cellar"
    assert found.rules().metadata_header == "lenient"
    assert found.rules().guest_names == {"metadata.example"}


def test_lists_are_words_in_the_environment_and_in_options(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        environment={"FOREWARN_HOST_REBOOT_COMMAND": "sh -c 'reboot now'"},
        options={"bridges": "br0, br1", "guest_names": "a.example, b.example"},
    )

    assert found.reboot_command == ("sh", "-c", "reboot now")
    assert found.bridges == ("br0", "br1")
    assert found.guest_names == ("a.example", "b.example")


def test_an_option_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    text = 'name = "file"\nlocation = "file"\nresource_group = "file"\n'
    environment = {"FOREWARN_HOST_NAME": "env", "FOREWARN_HOST_LOCATION": "env"}
    found = load(tmp_path, text, environment, {"name": "option", "control": None})

    assert (found.name, found.location, found.resource_group) == ("option", "env", "file")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('control = "http://ctl.example:8256"', "like https://ctl:8256"),
        ('control = "https://ctl.example/path"', "like https://ctl:8256"),
        ('control = "https://user@ctl.example"', "like https://ctl:8256"),
        ('control = "https://ctl.example:99999"', "like https://ctl:8256"),
        ("control = 5", "like https://ctl:8256"),
        ('name = "a b"', "1 to 64 letters"),
        ('listen = "wire"', '"bridge" or "tap" or "none"'),
        ('bridges = "br0"', "names of bridges"),
        ('bridges = ["a/b"]', "names of bridges"),
        ("bridges = [5]", "names of bridges"),
        ('migrate_uri = "qemu+ssh://{target}/system"', "with {host} for its name"),
        ('migrate_uri = "{"', "with {host} for its name"),
        ("shutdown_seconds = 601", "from 0 to 600"),
        ('reboot_command = "reboot"', "a program and its arguments"),
        ('metrics = "8257"', "ADDR:PORT"),
        ("metrics = 5", "ADDR:PORT"),
        ('nam = "h1"', "Did you mean name?"),
        ('guest = "127.0.0.1:80"', "there is no setting"),
    ],
)
def test_a_mistake_says_where_and_what_would_be_accepted(
    tmp_path: Path, line: str, words: str
) -> None:
    (found,) = mistakes(tmp_path, f"\n{line}\n")

    assert "line 2" in found
    assert words in found


def test_bridges_mean_nothing_where_taps_are_listened_on(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, 'listen = "tap"\nbridges = ["br0"]\n')

    assert "has no meaning" in found


def test_a_command_that_no_shell_would_take_apart_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSettings) as bad:
        load(tmp_path, environment={"FOREWARN_HOST_REBOOT_COMMAND": "sh -c 'reboot"})
    assert "FOREWARN_HOST_REBOOT_COMMAND" in str(bad.value)


def test_an_unknown_variable_stops_the_start_and_those_of_control_do_not(tmp_path: Path) -> None:
    load(tmp_path, environment={"FOREWARN_OPERATOR": "x", "FOREWARN_URL": "x"})
    with pytest.raises(BadSettings) as bad:
        load(tmp_path, environment={"FOREWARN_HOST_NAM": "h1"})
    assert "Did you mean FOREWARN_HOST_NAME?" in str(bad.value)


def test_the_service_leaves_the_variables_of_the_host_daemon_alone(tmp_path: Path) -> None:
    environment = {**HOME, "FOREWARN_HOST_NAME": "h1"}

    loaded = settings.load(file=None, environment=environment, folder=tmp_path)

    assert loaded == settings.load(file=None, environment=HOME, folder=tmp_path)


def test_every_key_has_a_field_and_every_field_a_key() -> None:
    assert set(host_settings.setting_names()) == {field.name for field in fields(HostSettings)}
    assert set(host_settings._KEYS.fields) == set(host_settings.setting_names())


def test_the_page_of_the_host_daemon_describes_every_setting_and_every_metric() -> None:
    page = (Path(__file__).parent.parent / "docs" / "host" / "reference.md").read_text("utf-8")
    numbers = (Path(host_settings.__file__).parent / "wiring" / "host_metrics.py").read_text()
    metrics = set(re.findall(r'"(forewarn_\w+)"', numbers))

    assert [key for key in host_settings.setting_names() if f"`{key}`" not in page] == []
    assert len(metrics) > 10
    assert [name for name in sorted(metrics) if name not in page] == []
