"""Settings of who may come from another machine: issuers, and TLS of the operator API."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from forewarn import settings
from forewarn.core.access import Role
from forewarn.core.oidc_claims import IssuerRules
from forewarn.settings import BadSettings, Settings
from forewarn.text import issuers as text_issuers
from forewarn.text.issuers import ISSUERS_MAX

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "access.md"
EXAMPLE = ROOT / "examples" / "operators-elsewhere"

GOOD = """
[[oidc]]
issuer = "https://login.example.com/realms/ops"
audience = "forewarn"
roles = { "ops" = "operator" }
"""


def load(tmp_path: Path, text: str = "", **options: str) -> Settings:
    file = tmp_path / "forewarn.toml"
    file.write_text(text, encoding="utf-8")
    return settings.load(
        file=file, environment={"HOME": str(tmp_path)}, options=options, folder=tmp_path
    )


def mistakes(tmp_path: Path, text: str = "", **options: str) -> tuple[str, ...]:
    with pytest.raises(BadSettings) as raised:
        load(tmp_path, text, **options)
    return raised.value.mistakes


def test_an_issuer_needs_little_to_be_said(tmp_path: Path) -> None:
    assert load(tmp_path).issuers == ()
    assert load(tmp_path, GOOD).issuers == (
        IssuerRules(
            issuer="https://login.example.com/realms/ops",
            audience=("forewarn",),
            roles={"ops": Role.OPERATOR},
        ),
    )


def test_everything_that_can_be_said_of_issuers_is_read(tmp_path: Path) -> None:
    text = """
freeze_seconds = 7

[[oidc]]
issuer = "https://login.example.com/"
audience = ["forewarn", "https://ctl.example:8255"]
role_claim = ["realm_access", "roles"]
scopes_claim = "groups"
scopes_prefix = "scope/"
name_claim = "email"
lifetime = "1h"

[oidc.roles]
"cloud ops" = "operator"
"boss" = "admin"
"team" = "owner"
"other" = "viewer"

[[oidc]]
issuer = "http://127.0.0.1:8080"
audience = "x"
roles = { "a" = "admin" }
lifetime = 600
"""
    found = load(tmp_path, text)

    assert found.freeze_seconds == 7
    one, two = found.issuers
    assert one.audience == ("forewarn", "https://ctl.example:8255")
    assert one.role_claim == ("realm_access", "roles")
    assert (one.scopes_claim, one.scopes_prefix) == (("groups",), "scope/")
    assert one.name_claim == ("email",)
    assert one.lifetime_s == 3_600
    assert one.roles["team"] is Role.OWNER
    assert two.lifetime_s == 600


@pytest.mark.parametrize(
    "issuer",
    [
        "",
        "login.example.com",
        "http://login.example.com",
        "http://192.0.2.1:8080",
        "https://login.example.com?x=1",
        "https://login.example.com#x",
        "https://ann:secret@login.example.com",
        "https://",
        "https:///realms",
        "https://login.example.com:0",
        "https://login.example.com:port",
        "https://login.example.com/ realm",
        "https://löwe.example",
        "file:///etc/passwd",
        "ftp://127.0.0.1",
    ],
)
def test_an_issuer_is_asked_over_tls_or_on_this_machine(tmp_path: Path, issuer: str) -> None:
    (found,) = mistakes(tmp_path, GOOD.replace("https://login.example.com/realms/ops", issuer))

    assert "line 3:" in found
    assert "https, or http on loopback" in found


@pytest.mark.parametrize("issuer", ["http://localhost:1", "http://[::1]:1", "http://127.0.0.2"])
def test_an_issuer_on_this_machine_may_speak_plain_http(tmp_path: Path, issuer: str) -> None:
    text = GOOD.replace("https://login.example.com/realms/ops", issuer)

    assert load(tmp_path, text).issuers[0].issuer == issuer


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('audience = "forewarn"\n', "", 2, "audience is missing"),
        ('audience = "forewarn"', "audience = []", 4, "a list of 1 to 16"),
        ('audience = "forewarn"', 'audience = [""]', 4, "a list of 1 to 16"),
        ('audience = "forewarn"', "audience = 5", 4, "a list of 1 to 16"),
        ('roles = { "ops" = "operator" }', "roles = {}", 5, "a table of 1 to 256"),
        ('roles = { "ops" = "operator" }', 'roles = ["ops"]', 5, "a table of 1 to 256"),
        ('"operator"', '"root"', 5, '"viewer" or "owner" or "operator" or "admin"'),
        ('"operator"', "true", 5, '"viewer" or "owner" or "operator" or "admin"'),
        ('"operator"', '"owner"', 5, "Write scopes_claim = ..."),
        ("roles =", 'client_id = "x"\nroles =', 5, "there is no key"),
        ("roles =", "role_claim = []\nroles =", 5, "the name of a claim"),
        ("roles =", 'name_claim = ""\nroles =', 5, "the name of a claim"),
        ("roles =", 'lifetime = "2d"\nroles =', 5, "from a minute to a day"),
        ("roles =", "lifetime = 59\nroles =", 5, "from a minute to a day"),
        ("roles =", "lifetime = true\nroles =", 5, "from a minute to a day"),
    ],
)
def test_a_mistake_in_an_issuer_names_its_line_and_what_is_accepted(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    (found,) = mistakes(tmp_path, GOOD.replace(old, new))

    assert f"line {line}:" in found
    assert words in found


def test_an_issuer_is_there_once_and_not_too_many_are(tmp_path: Path) -> None:
    (found,) = mistakes(tmp_path, GOOD + GOOD)
    assert "is there twice" in found
    assert "line 8:" in found
    many = "".join(
        GOOD.replace("/realms/ops", f"/realms/{number}") for number in range(ISSUERS_MAX + 1)
    )
    (found,) = mistakes(tmp_path, many)
    assert "too many" in found


def test_issuers_stand_in_the_file_alone(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match=r"FOREWARN_OIDC.*\[\[oidc\]\]"):
        settings.load(
            file=None, environment={"HOME": str(tmp_path), "FOREWARN_OIDC": "https://a.example"}
        )


def test_what_the_page_shows_is_accepted_as_it_stands_there(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)

    groups, issuer, by_files, own = (load(tmp_path, block) for block in blocks)
    assert [one.role for one in groups.socket_groups] == [Role.OPERATOR, Role.OWNER, Role.VIEWER]
    (rules,) = issuer.issuers
    assert set(rules.roles.values()) == set(Role)
    for secure in (by_files, own):
        assert secure.operator_has_tls
        settings.need_shelter(secure)


def test_the_example_is_accepted_as_it_stands_there() -> None:
    found = settings.load(file=EXAMPLE / "control.toml", environment={"HOME": "/nowhere"})

    settings.need_shelter(found)
    people, pipeline = found.issuers
    assert (people.scopes_claim, pipeline.role_claim) == (("groups",), ("sub",))
    scraped = yaml.safe_load((EXAMPLE / "prometheus.yml").read_text(encoding="utf-8"))
    (asked,) = scraped["scrape_configs"]
    assert asked["scheme"] == "https"
    assert f"https://{asked['static_configs'][0]['targets'][0]}" == found.operator_url


def test_the_page_has_every_key_of_an_issuer_with_its_default() -> None:
    table = re.findall(r"^\| `([a-z_]+)` \| (.+?) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    written = {key: default.strip('`"') for key, default in table}

    assert list(written) == list(text_issuers.KEYS)
    defaults = IssuerRules(issuer="", audience=(), roles={})
    assert written["role_claim"] == ".".join(defaults.role_claim)
    assert written["name_claim"] == ".".join(defaults.name_claim)
    assert written["lifetime"] == f"{defaults.lifetime_s // 3_600}h"


# TLS.


def test_a_certificate_has_a_key_and_is_not_our_own_as_well(tmp_path: Path) -> None:
    both = 'operator_certificate = "c.pem"\noperator_key = "k.pem"\n'
    found = load(tmp_path, both)
    assert found.operator_certificate == tmp_path / "c.pem"
    assert found.operator_has_tls
    assert load(tmp_path, 'operator_tls = "own"\n').operator_has_tls
    assert not load(tmp_path).operator_has_tls

    for half in both.splitlines():
        (words,) = mistakes(tmp_path, half)
        assert "belong together" in words
    (words,) = mistakes(tmp_path, f'{both}operator_tls = "own"\n')
    assert "Leave out one" in words


@pytest.mark.parametrize("listen", ["0.0.0.0:8255", "192.0.2.7:8255", "[2001:db8::1]:8255"])
def test_only_with_tls_or_behind_a_proxy_it_listens_beyond_loopback(
    tmp_path: Path, listen: str
) -> None:
    with pytest.raises(BadSettings, match="in the clear") as raised:
        settings.need_shelter(load(tmp_path, operator=listen))
    assert 'operator_tls = "own"' in str(raised.value)
    files = {"operator_certificate": "c.pem", "operator_key": "k.pem"}
    for sheltered in ({"operator_tls": "own"}, files, {"behind_proxy": "true"}):
        settings.need_shelter(load(tmp_path, operator=listen, **sheltered))
