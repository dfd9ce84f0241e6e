"""Settings: where each comes from, and that every mistake stops the start with clear words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import fields

from forewarn import folders, settings
from forewarn.control.inventory import apply_at_once
from forewarn.core.deadlines import DEADLINE_MS
from forewarn.core.errors import BadInventory
from forewarn.core.model import Policy
from forewarn.core.scheduling import FREEZE_SECONDS_MAX
from forewarn.core.suggestions import MISTAKES_NAMED_MAX
from forewarn.endpoint.routes import RequestRules
from forewarn.environment import GUEST_VARIABLES, OTHER_VARIABLES
from forewarn.settings import BadSettings, Settings

HOME = {"HOME": "/home/someone"}
SETTINGS_PAGE = Path(__file__).parent.parent / "docs" / "settings.md"


def load(
    tmp_path: Path,
    text: str | None = None,
    environment: dict[str, str] | None = None,
    options: dict[str, str | None] | None = None,
) -> Settings:
    file = None
    if text is not None:
        file = tmp_path / "forewarn.toml"
        file.write_text(text, encoding="utf-8")
    return settings.load(
        file=file,
        environment={**HOME, **(environment or {})},
        options=options,
        folder=tmp_path,
    )


def mistakes(
    tmp_path: Path, text: str | None = None, environment: dict[str, str] | None = None
) -> tuple[str, ...]:
    with pytest.raises(BadSettings) as raised:
        load(tmp_path, text, environment)
    assert str(raised.value) == "\n".join(raised.value.mistakes)
    return raised.value.mistakes


def as_text(value: object) -> str:
    """A value as the environment holds it."""
    return ",".join(value) if isinstance(value, tuple) else words(value)


def test_without_file_and_environment_everything_has_its_default(tmp_path: Path) -> None:
    found = load(tmp_path)

    assert found == Settings(data=Path("/home/someone/.local/state/forewarn"))
    assert found.inventory is None
    assert found.guest_requests_per_second == 5
    assert found.policy() == Policy()


def test_defaults_listen_on_loopback_only(tmp_path: Path) -> None:
    found = load(tmp_path)

    assert found.guest.startswith("127.0.0.1:")
    assert found.operator.startswith("127.0.0.1:")
    assert found.guest != found.operator


def words(value: object) -> str:
    """A value as a file has it."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value)) if isinstance(value, tuple) else str(value)


def test_every_default_is_accepted_when_it_is_written_down(tmp_path: Path) -> None:
    plain = load(tmp_path)
    written = {
        f"FOREWARN_{field.name.upper()}": as_text(getattr(plain, field.name))
        for field in fields(Settings)
        if getattr(plain, field.name) is not None
    }

    assert load(tmp_path, environment=written) == plain


def test_the_environment_wins_over_the_file_and_an_option_over_both(tmp_path: Path) -> None:
    text = 'user_events_max = 7\nguest = "127.0.0.1:1"\noperator = "127.0.0.1:2"\n'
    environment = {"FOREWARN_GUEST": "127.0.0.1:3", "FOREWARN_OPERATOR": "127.0.0.1:4"}

    found = load(tmp_path, text, environment, {"operator": "127.0.0.1:5", "data": None})

    assert (found.user_events_max, found.guest, found.operator) == (
        7,
        "127.0.0.1:3",
        "127.0.0.1:5",
    )


def test_paths_in_the_file_are_relative_to_the_file_and_others_to_the_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "etc").mkdir()
    file = tmp_path / "etc" / "forewarn.toml"
    file.write_text('inventory = "fleet.toml"\ndata = "~/data"\n')

    found = settings.load(
        file=Path("etc/forewarn.toml"),
        environment=HOME,
        options={"data": "here"},
        folder=tmp_path,
    )
    from_file = settings.load(file=file, environment=HOME, folder=tmp_path)

    assert found.inventory == tmp_path / "etc" / "fleet.toml"
    assert found.data == tmp_path / "here"
    assert from_file.data == Path("/home/someone/data")


@pytest.mark.parametrize(
    ("state_home", "data"),
    [
        ("/srv/state", "/srv/state/forewarn"),
        ("relative", "/home/someone/.local/state/forewarn"),
        ("", "/home/someone/.local/state/forewarn"),
    ],
)
def test_the_data_folder_follows_the_state_folder_of_the_user(
    tmp_path: Path, state_home: str, data: str
) -> None:
    assert load(tmp_path, environment={"XDG_STATE_HOME": state_home}).data == Path(data)


def test_the_rules_get_their_numbers_from_the_settings(tmp_path: Path) -> None:
    text = (
        'enablement = "always"\nuser_events_max = 3\ndomain_recovery_seconds = 0\n'
        "freeze_seconds = 1\nreboot_seconds = 2\nredeploy_seconds = 4\n"
        "delete_seconds = 8\n"
    )

    assert load(tmp_path, text).policy() == Policy(
        freeze_s=1,
        reboot_s=2,
        redeploy_s=4,
        delete_s=8,
        domain_recovery_ms=0,
        user_events_max=3,
        always_enabled=True,
    )


def test_the_place_of_the_fleet_comes_from_the_settings(tmp_path: Path) -> None:
    place = load(tmp_path, 'location = "cellar"\nresource_group = "rg"\n').place()

    assert (place.location, place.resource_group) == ("cellar", "rg")


def test_what_the_endpoint_asks_of_requests_comes_from_the_settings(tmp_path: Path) -> None:
    text = 'metadata_header = "lenient"\nguest_names = ["Metadata.Example.", "vm.internal"]\n'
    rules = load(tmp_path, text).rules()

    assert rules.metadata_header == "lenient"
    assert rules.guest_names == {"metadata.example", "vm.internal"}
    assert load(tmp_path).rules() == RequestRules()


def test_names_are_divided_by_commas_in_the_environment(tmp_path: Path) -> None:
    found = load(tmp_path, environment={"FOREWARN_GUEST_NAMES": "metadata.example, vm.internal"})

    assert found.guest_names == ("metadata.example", "vm.internal")


def test_an_unknown_key_names_its_line_and_the_key_that_was_meant(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "# mine\n\nuser_event_max = 5\n")

    assert "forewarn.toml, line 3:" in found
    assert "Did you mean user_events_max?" in found


def test_a_key_nothing_resembles_is_answered_with_all_keys(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "zzzz = 5\n")

    assert all(name in found for name in settings.setting_names())


def test_a_table_in_the_file_is_an_unknown_key(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, "[server]\nguest = 1\n")

    assert "line 1" in found
    assert '"server"' in found


def test_an_unknown_variable_of_ours_stops_the_start(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, environment={"FOREWARN_USER_EVENT_MAX": "5"})

    assert "FOREWARN_USER_EVENT_MAX" in found
    assert "Did you mean FOREWARN_USER_EVENTS_MAX?" in found


def test_variables_that_are_read_elsewhere_are_left_alone(tmp_path: Path) -> None:
    others = dict.fromkeys(OTHER_VARIABLES | GUEST_VARIABLES, "x")
    others["FOREWARN_EVENT_ID"] = "x"  # what a step of the guest is told; it may call us

    found = load(tmp_path, environment={**others, "forewarn_data": "x", "PATH": "x"})

    assert found == load(tmp_path)


@pytest.mark.parametrize(
    ("line", "accepted"),
    [
        ('guest_requests_per_second = "5"', "without quotes"),
        ("guest_requests_per_second = -1", "from 0 to"),
        ("guest_requests_per_second = true", "a whole number"),
        ("guest_requests_per_second = 5.0", "a whole number"),
        ("user_events_max = 0", "from 1 to 1000"),
        ("user_events_max = 1001", "from 1 to 1000"),
        ("domain_recovery_seconds = 86401", "from 0 to 86400"),
        ("freeze_seconds = 601", "from 0 to 600"),
        ("reboot_seconds = [5]", "a whole number"),
        ("redeploy_seconds = 1979-05-27", "a whole number"),
        ('enablement = "Always"', '"first-poll" or "always"'),
        ('metadata_header = "never"', '"as-documented" or "always" or "lenient"'),
        ("metadata_header = true", '"as-documented" or "always" or "lenient"'),
        ('guest_names = "metadata.example"', 'like ["metadata.example"]'),
        ('guest_names = ["metadata.example:80"]', "without a port"),
        ('guest_names = ["*.example"]', "host names"),
        ('guest_names = ["a..example"]', "host names"),
        ('guest_names = [""]', "host names"),
        ('guest_names = ["-a.example"]', "host names"),
        (f'guest_names = ["{"a." * 127}a"]', "host names"),
        ("guest_names = [5]", "host names"),
        (f"guest_names = {['a.example'] * 65}", "at most 64"),
        ('guest = "127.0.0.1"', "ADDR:PORT"),
        ('guest = "127.0.0.1:65536"', "ADDR:PORT"),
        ('guest = "::1:80"', "ADDR:PORT"),
        ('guest = "somewhere:80"', "ADDR:PORT"),
        ("operator = 8080", "ADDR:PORT"),
        ('data = ""', "the path of a folder"),
        ("inventory = 5", "the path of a TOML file"),
        ('location = "a/b"', "letters, digits"),
        ('resource_group = ""', "letters, digits"),
        ('subscription_id = "0"', "a GUID"),
        ('operator_name = ""', "1 to 64 printable characters"),
        ('operator_name = " Ada"', "no space at either end"),
        ('operator_name = "Ada\\nLovelace"', "printable"),
        ('operator_name = "\\u001b[31mAda"', "printable"),
        ('operator_name = "\\u202eadA"', "printable"),
        (f'operator_name = "{"a" * 65}"', "1 to 64"),
        ('operator_name = "Policy"', "none of clock, inventory, policy, ticker"),
        ("operator_name = 5", "printable characters"),
        ('operator_url = "http://ctl.example:8255"', "https://NAME:PORT"),
        ('operator_url = "https://ann@ctl.example"', "https://NAME:PORT"),
        ('operator_tls = "on"', '"off" or "own"'),
        ("operator_tls = true", '"off" or "own"'),
        ("operator_certificate = 5", "the path of a file"),
        ('operator_key = ""', "the path of a file"),
        ('oidc = "https://login.example.com"', "Write each as [[oidc]]"),
        ("oidc = [1]", "Write each as [[oidc]]"),
    ],
)
def test_a_value_that_is_not_accepted_names_line_key_and_what_is(
    tmp_path: Path, line: str, accepted: str
) -> None:
    (found,) = mistakes(tmp_path, f"# first\n{line}\n")

    assert "line 2:" in found
    assert line.partition(" ")[0] in found
    assert accepted in found.partition("Accepted: ")[2]


@pytest.mark.parametrize("value", ["", "five", "5.0", "-1", "+5", " 5", "\u0665", "9" * 30])
def test_a_number_in_the_environment_is_digits_only(tmp_path: Path, value: str) -> None:
    (found,) = mistakes(tmp_path, environment={"FOREWARN_USER_EVENTS_MAX": value})

    assert found.startswith("FOREWARN_USER_EVENTS_MAX: ")
    assert "from 1 to 1000" in found


def test_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    found = mistakes(
        tmp_path,
        "freeze_seconds = -1\nunknown = 1\n",
        {"FOREWARN_GUEST": "x", "FOREWARN_NONSENSE": "1"},
    )

    assert len(found) == 4


def test_a_long_list_of_mistakes_is_cut_and_counted() -> None:
    error = BadSettings(f"mistake {n}" for n in range(MISTAKES_NAMED_MAX + 3))

    assert str(error).endswith("... and 3 more mistakes.")
    assert len(error.mistakes) == MISTAKES_NAMED_MAX + 3


def test_guests_and_operators_cannot_share_an_address(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, 'guest = "127.0.0.1:80"\noperator = "127.0.0.1:80"\n')

    assert "127.0.0.1:80" in found
    free = load(tmp_path, 'guest = "127.0.0.1:0"\noperator = "127.0.0.1:0"\n')
    assert free.guest == free.operator


def test_a_file_that_is_not_toml_is_refused_with_its_line(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, 'guest = "127.0.0.1:1"\nuser_events_max =\n')

    assert "line 2:" in found
    assert "not TOML" in found


def test_a_file_nested_beyond_reason_is_refused(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, f"data = {'[' * 5_000}\n")

    assert "forewarn.toml" in found


@pytest.mark.parametrize("bad", ["freeze_seconds = " + "9" * 9_999, "a" + ".a" * 50_000 + " = 1"])
def test_a_number_or_key_beyond_reason_is_refused_with_its_line(tmp_path: Path, bad: str) -> None:
    (found,) = mistakes(tmp_path, f"# settings\n{bad}\n")

    assert "forewarn.toml, line 2: " in found
    assert "would be accepted" in found


def test_a_file_that_is_missing_or_not_utf8_is_refused_by_name(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'data = "x"\n# \xe9\n')

    for file, why in ((tmp_path / "none.toml", "No such file"), (latin, "line 2 is not UTF-8")):
        with pytest.raises(BadSettings) as raised:
            settings.load(file=file, environment=HOME)
        assert str(file) in str(raised.value)
        assert why in str(raised.value)


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    assert load(tmp_path, "\ufeffuser_events_max = 9\n").user_events_max == 9


def test_every_setting_is_in_the_table_of_the_settings_page() -> None:
    page = SETTINGS_PAGE.read_text(encoding="utf-8")
    section = re.split(r"^## ", page, flags=re.MULTILINE)
    table = next(part for part in section if part.startswith("Settings\n"))
    documented = re.findall(r"^\| `([a-z_]+)` \| `?([^|`]*)", table, flags=re.MULTILINE)

    assert [key for key, _ in documented] == list(settings.setting_names())
    defaults = Settings(data=Path("/"))
    for key, default in documented:
        if key == "socket":
            assert defaults.operator_socket == Path("/") / default.strip()
        elif key not in ("data", "inventory", "operator_certificate", "operator_key"):
            assert default.strip().strip('"') == words(getattr(defaults, key)), key


def test_limits_agree_with_the_rules_they_come_from() -> None:
    longest = (
        FREEZE_SECONDS_MAX,
        settings.REBOOT_SECONDS_MAX,
        settings.REDEPLOY_SECONDS_MAX,
        settings.DELETE_SECONDS_MAX,
    )
    for seconds, deadline_ms in zip(longest, list(DEADLINE_MS.values())[:4], strict=True):
        assert seconds * 1_000 < deadline_ms


def test_the_demo_fleet_comes_with_the_program_and_each_vm_has_a_listener(tmp_path: Path) -> None:
    found = apply_at_once.parse(load(tmp_path).inventory_text())

    assert [host.name for host in found.hosts] == ["h1", "h2", "h3", "h4"]
    listens = [vm.profile.listen for vm in found.vms]
    assert all(listen is not None and listen.startswith("127.0.0.1:") for listen in listens)
    assert len(set(listens)) == len(found.vms)


def test_the_inventory_is_read_from_the_file_that_is_set(tmp_path: Path) -> None:
    (tmp_path / "fleet.toml").write_text("# mine\n", encoding="utf-8")

    assert load(tmp_path, 'inventory = "fleet.toml"\n').inventory_text() == "# mine\n"
    with pytest.raises(BadInventory, match=r"gone\.toml cannot be read: No such file"):
        load(tmp_path, 'inventory = "gone.toml"\n').inventory_text()


# What the command line looks at instead, when nothing but a folder can be meant.


@pytest.mark.parametrize(
    ("data", "environment"),
    [
        (None, {}),
        (None, {"XDG_STATE_HOME": "/state"}),
        (None, {"XDG_STATE_HOME": "state"}),
        (None, {"FOREWARN_DATA": "below/here"}),
        (None, {"FOREWARN_DATA": "~/data", "FOREWARN_SOCKET": "/run/one.sock"}),
        (Path("given"), {"FOREWARN_DATA": "/other", "FOREWARN_TOKEN": "x", "FOREWARN_VM": "web"}),
        (Path("/given"), {"FOREWARN_SOCKET": "a.sock", "FOREWARN_HOST_NAME": "h1"}),
    ],
)
def test_the_folder_that_the_command_line_finds_alone_is_that_of_the_settings(
    data: Path | None, environment: dict[str, str]
) -> None:
    environment = {"HOME": "/home/ada", **environment}
    options = {"data": None if data is None else str(data)}
    loaded = settings.load(file=None, environment=environment, options=options)
    assert folders.told_plainly(data, environment) == loaded.folder()


@pytest.mark.parametrize(
    "environment",
    [{"FOREWARN_DATA": ""}, {"FOREWARN_GUEST": "nonsense"}, {"FOREWARN_DATTA": "/a"}],
)
def test_the_command_line_asks_the_settings_where_something_may_be_wrong(
    environment: dict[str, str],
) -> None:
    assert folders.told_plainly(None, {"HOME": "/home/ada", **environment}) is None
