"""What an inventory file may say: every rule, and that a mistake names its line and its remedy."""

from __future__ import annotations

import random
import re
import time
import tomllib
from pathlib import Path

import pytest

from forewarn import settings
from forewarn.control.inventory import apply_at_once
from forewarn.control.inventory.file_fields import TABLES
from forewarn.control.inventory.file_reader import INVENTORY_BYTES_MAX
from forewarn.core.errors import BadInventory
from forewarn.core.model import EventType, ScopeKind
from forewarn.core.suggestions import MISTAKES_NAMED_MAX
from forewarn.core.vm_profile import Priority
from forewarn.text.toml_lines import KEY_PARTS_MAX, WORD_CHARS_MAX, NotToml, read

SETTINGS_PAGE = Path(__file__).parent.parent.parent / "docs" / "settings.md"

HEAD = """\
[[host]]
name = "h1"

[[scope]]
name = "web"
kind = "placement-group"

"""
HEAD_LINES = HEAD.count("\n")

VM = """\
[[vm]]
name = "web_0"
scope = "web"
update_domain = 0
host = "h1"
address = "192.0.2.1"
"""


def refusal(text: str) -> str:
    with pytest.raises(BadInventory) as raised:
        apply_at_once.parse(text)
    assert raised.value.code == "bad-inventory"
    return str(raised.value)


def lines_of(message: str) -> list[int]:
    return [int(line) for line in re.findall(r"(?:^|refused: )line (\d+): ", message, re.MULTILINE)]


def test_the_demo_fleet_says_what_it_should() -> None:
    found = apply_at_once.parse(settings.demo_inventory())

    scopes = {scope.name: scope for scope in found.scopes}
    vms = {vm.name: vm for vm in found.vms}
    assert scopes["web"].kind is ScopeKind.PLACEMENT_GROUP
    assert [vms[f"web_{n}"].update_domain for n in range(3)] == [0, 1, 2]
    assert scopes["vm0"].kind is ScopeKind.STANDALONE
    assert scopes["db"].terminate_notice_ms == 600_000
    assert scopes["db"].auto_approve == {EventType.REBOOT}
    assert [vm.name for vm in found.vms if vm.profile.priority is Priority.SPOT] == ["batch0"]


def test_every_key_arrives() -> None:
    text = (
        HEAD
        + VM
        + 'listen = "[::1]:08080"\npriority = "spot"\nfault_domain = 3\nzone = "2"\n'
        + 'os_type = "Windows"\ncomputer_name = "web000000"\ntags = { b = "2:x", a = "1" }\n'
    )

    (vm,) = apply_at_once.parse(text).vms

    assert (vm.name, vm.scope, vm.update_domain, vm.host) == ("web_0", "web", 0, "h1")
    assert (vm.profile.address, vm.profile.listen) == ("192.0.2.1", "[::1]:8080")
    assert (vm.profile.priority, vm.profile.fault_domain, vm.profile.zone) == (
        Priority.SPOT,
        3,
        "2",
    )
    assert (vm.profile.os_type, vm.profile.computer_name) == ("Windows", "web000000")
    assert vm.profile.tags == (("a", "1"), ("b", "2:x"))


def test_a_vm_without_a_scope_has_a_standalone_one_with_its_name() -> None:
    found = apply_at_once.parse(
        '[[host]]\nname = "h1"\n[[vm]]\nname = "a"\nhost = "h1"\nlisten = "127.0.0.1:0"\n'
    )

    assert found.vms[0].scope == "a"
    assert [(scope.name, scope.kind) for scope in found.scopes] == [("a", ScopeKind.STANDALONE)]


def test_a_declared_standalone_scope_may_set_what_its_vm_wants() -> None:
    found = apply_at_once.parse(
        '[[host]]\nname = "h1"\n'
        '[[scope]]\nname = "a"\nkind = "standalone"\nterminate_notice_minutes = 15\n'
        '[[vm]]\nname = "a"\nscope = "a"\nhost = "h1"\nlisten = "localhost:80"\n'
    )

    assert found.scopes[0].terminate_notice_ms == 15 * 60_000


@pytest.mark.parametrize("seed", range(20))
def test_order_comments_and_spelling_do_not_count_as_content(seed: int) -> None:
    shuffled = random.Random(seed)
    text = settings.demo_inventory()
    tables = re.split(r"^(?=\[\[)", text, flags=re.MULTILINE)[1:]
    mixed = []
    for table in tables:
        head, *keys = [line for line in table.splitlines() if line and not line.startswith("#")]
        shuffled.shuffle(keys)
        mixed.append("\n".join([head.replace("[[", "[[ "), *keys, f"# {shuffled.random()}"]))
    shuffled.shuffle(mixed)

    assert apply_at_once.parse("\n\n".join(mixed)) == apply_at_once.parse(text)


def test_a_different_host_or_capacity_is_different_content() -> None:
    plain = apply_at_once.parse(HEAD + VM)

    assert apply_at_once.parse(HEAD.replace('"h1"', '"h1"\ncapacity = 9') + VM) != plain
    assert apply_at_once.parse(HEAD + VM.replace("192.0.2.1", "192.0.2.2")) != plain


# (what follows HEAD, line of the mistake counted from the first line after HEAD, words of it)
MISTAKES = [
    # names
    ('[[vm]]\nhost = "h1"\naddress = "192.0.2.1"\n', 1, "[[vm]] number 1: name is missing"),
    ("[[host]]\ncapacity = 1\n", 1, "[[host]] number 2: name is missing"),
    (VM.replace("web_0", ""), 2, 'name = "" is refused. Accepted: 1 to 64 letters'),
    (VM.replace("web_0", "a" * 65), 2, "1 to 64 letters"),
    (VM.replace("web_0", "a,b"), 2, "1 to 64 letters"),
    (VM.replace("web_0", "a b"), 2, "1 to 64 letters"),
    (VM.replace("web_0", "größe"), 2, "1 to 64 letters"),
    (VM.replace("web_0", "a\\n"), 2, "1 to 64 letters"),
    (VM.replace("web_0", ".."), 2, "beginning with a letter or digit"),
    (VM.replace("web_0", "-x"), 2, "beginning with a letter or digit"),
    (VM.replace('"web_0"', "7"), 2, "name = 7 is refused"),
    ('[[scope]]\nname = "a\'b"\nkind = "cloud-service"\n', 2, "1 to 64 letters"),
    # unknown keys and tables
    (VM + 'hots = "h1"\n', 7, 'there is no key "hots". Did you mean host?'),
    ("[[vmm]]\nname = 1\n", 1, 'an inventory has no "vmm". Did you mean vm?'),
    ("[colour]\nname = 1\n", 1, "There are: host, scope, vm."),
    # twice
    (VM + VM.replace("2.1", "2.2"), 8, f"the name is taken, on line {HEAD_LINES + 2}."),
    (VM + VM.replace("2.1", "2.2").replace("web_0", "WEB_0"), 8, "taken as web_0"),
    ('[[host]]\nname = "h1"\n', 2, "the name is taken, on line 2."),
    ('[[scope]]\nname = "web"\nkind = "cloud-service"\n', 2, "the name is taken, on line 5."),
    (
        VM + VM.replace("web_0", "web_1"),
        12,
        f"address 192.0.2.1 is already that of [[vm]] web_0, on line {HEAD_LINES + 6}.",
    ),
    (
        VM + VM.replace("web_0", "web_1").replace("192.0.2.1", "::ffff:192.0.2.1"),
        12,
        "address 192.0.2.1 is already that of [[vm]] web_0",
    ),
    (
        VM
        + 'listen = "127.0.0.1:1"\n'
        + VM.replace("web_0", "b").replace("2.1", "2.2")
        + 'listen = "127.0.0.1:01"\n',
        14,
        "listen 127.0.0.1:1 is already that of [[vm]] web_0",
    ),
    # places
    (VM.replace('host = "h1"', 'host = "h2"'), 5, "there is no host h2. There are: h1."),
    (VM.replace('host = "h1"\n', ""), 1, "host is missing"),
    (VM.replace('scope = "web"', 'scope = "wbe"'), 3, "there is no scope wbe. Did you mean web?"),
    (VM.replace("update_domain = 0\n", ""), 2, "update_domain is missing"),
    (VM.replace("= 0", "= -1"), 4, "a whole number from 0 to 9999"),
    (VM.replace("= 0", '= "0"'), 4, "without quotes"),
    (VM.replace("= 0", "= true"), 4, "update_domain = true is refused"),
    (VM.replace("= 0", "= 0.0"), 4, "update_domain = 0.0 is refused"),
    (VM.replace("= 0", f"= {10**30}"), 4, "a whole number from 0 to 9999"),
    # a scope of its own
    (
        '[[vm]]\nname = "web"\nhost = "h1"\nlisten = "127.0.0.1:1"\n',
        2,
        'there is a [[scope]] web. Write scope = "web"',
    ),
    ('[[scope]]\nname = "s"\nkind = "standalone"\n', 3, "exactly one VM, but it has no VM"),
    (
        '[[scope]]\nname = "s"\nkind = "standalone"\n'
        + VM.replace('"web"', '"s"')
        + VM.replace('"web"', '"s"').replace("web_0", "b").replace("2.1", "2.2"),
        3,
        "exactly one VM, but it has 2 VMs: [[vm]] web_0, [[vm]] b",
    ),
    # scopes
    ('[[scope]]\nname = "s"\n', 1, "kind is missing"),
    ('[[scope]]\nname = "s"\nkind = "cluster"\n', 3, '"standalone" or "cloud-service"'),
    (
        '[[scope]]\nname = "s"\nkind = "cloud-service"\nterminate_notice_minutes = 4\n',
        4,
        "a whole number from 5 to 15",
    ),
    (
        '[[scope]]\nname = "s"\nkind = "cloud-service"\nterminate_notice_minutes = 16\n',
        4,
        "a whole number from 5 to 15",
    ),
    (
        '[[scope]]\nname = "s"\nkind = "cloud-service"\nauto_approve = ["reboot", "freeze"]\n',
        4,
        'a list of "reboot", "redeploy"',
    ),
    (
        '[[scope]]\nname = "s"\nkind = "cloud-service"\nauto_approve = "reboot"\n',
        4,
        'a list of "reboot", "redeploy"',
    ),
    # hosts
    ('[[host]]\nname = "h2"\ncapacity = 0\n', 3, "a whole number from 1 to"),
    ('[[host]]\nname = "h2"\ncapacity = 1.5\n', 3, "a whole number from 1 to"),
    # channels
    (VM.replace('address = "192.0.2.1"\n', ""), 2, "address and listen are missing"),
    (VM.replace("192.0.2.1", "192.0.2.256"), 6, "the IP address that requests"),
    (VM.replace("192.0.2.1", "web.example"), 6, "the IP address that requests"),
    (VM.replace("192.0.2.1", "0.0.0.0"), 6, "the IP address that requests"),
    (VM.replace("192.0.2.1", "fe80::1%eth0"), 6, "the IP address that requests"),
    (VM.replace('"192.0.2.1"', "[1]"), 6, "address = [1] is refused"),
    (VM + 'listen = "127.0.0.1"\n', 7, "ADDR:PORT"),
    (VM + 'listen = "127.0.0.1:65536"\n', 7, "ADDR:PORT"),
    (VM + 'listen = ":80"\n', 7, "ADDR:PORT"),
    (VM + "listen = 80\n", 7, "listen = 80 is refused"),
    # the rest
    (VM + 'priority = "low"\n', 7, '"regular" or "spot"'),
    (VM + 'os_type = "linux"\n', 7, '"Linux" or "Windows"'),
    (VM + "zone = 1\n", 7, "zone = 1 is refused"),
    (VM + 'computer_name = "a b"\n', 7, "1 to 64 letters"),
    (VM + "fault_domain = -1\n", 7, "a whole number from 0 to 9999"),
    (VM + 'tags = "a"\n', 7, 'tags = "a" is refused. Accepted: a table of up to 50 texts'),
    (VM + 'tags = { "a;b" = "1" }\n', 7, 'the tag name "a;b" is refused'),
    (VM + 'tags = { "a:b" = "1" }\n', 7, "also without `:`"),
    (VM + 'tags = { a = "1;2" }\n', 7, 'tag "a" = "1;2" is refused'),
    (VM + "tags = { a = 1 }\n", 7, 'tag "a" = 1 is not a text'),
    (VM + 'tags = { a = "x\\u0007" }\n', 7, "printable"),
    (VM + "tags = {" + ", ".join(f't{n} = "1"' for n in range(51)) + "}\n", 7, "51 tags"),
    (VM + '[vm.tags]\nfine = "1"\n# a remark\n"b;d" = "2"\n', 10, 'tag name "b;d"'),
    (VM + 'tags.fine = "1"\ntags.bad = 2\n', 8, 'tag "bad" = 2'),
    # not TOML
    ('[[vm]]\nname = "a\n', 2, "this is not TOML"),
    ("[[vm]]\nname = 1\nname = 2\n", 3, "this is not TOML"),
    ("[[vm\n", 1, "this is not TOML"),
    ("name = [1,\n", 1, "this is not TOML"),
]


@pytest.mark.parametrize(("text", "line", "words"), MISTAKES)
def test_a_mistake_is_refused_with_its_line_and_what_would_be_right(
    text: str, line: int, words: str
) -> None:
    message = refusal(HEAD + text)

    assert words in message
    assert lines_of(message) == [HEAD_LINES + line]
    assert message.endswith("Nothing of it was applied.")


def test_every_mistake_is_reported_in_the_order_of_the_file() -> None:
    message = refusal(
        HEAD
        + VM.replace("web_0", "a b")
        + "\n# more\n\n"
        + VM.replace('"h1"', '"h9"').replace("= 0", "= -1")
        + "hots = 1\n"
    )

    assert lines_of(message) == [HEAD_LINES + n for n in (2, 13, 14, 15, 16)]


def test_a_long_list_of_mistakes_is_cut_and_counted() -> None:
    message = refusal(HEAD + "[[vm]]\n" * 100)

    assert len(lines_of(message)) == MISTAKES_NAMED_MAX
    assert re.search(r"\.\.\. and \d+ more mistakes\.", message)


OWN = "host = 'h1'\nlisten = '127.0.0.1:1'\n"
BEFORE = {
    "comment": '# [[vm]]\n# name = "x"\n',
    "long text": f"""[[vm]]\nname = "m"\n{OWN}zone = \"\"\"\\\n  [[vm]]\\\n  # no\\\n  \"\"\"\n""",
    "brackets in texts": f"""[[vm]]\nname = 'm'\n{OWN}tags = {{ a = '#[[', "b]" = "}}" }}\n""",
    "long list": (
        "[[scope]]\nname = 'q'\nkind = 'cloud-service'\n"
        "auto_approve = [ # both\n  'reboot',\n\n  'redeploy', # [[vm]]\n]\n"
    ),
    "quoted keys": f"[[ 'vm' ]] # x\n'name' = 'm'\n{OWN}[vm.tags]\n\"a b\" = '1'\n",
    "carriage returns": f"[[vm]]\nname = 'm'\n{OWN}\n".replace("\n", "\r\n"),
    "indented": "\n\t\n   [[vm]]\n\tname='m'\n host   =  'h1'\nlisten='''127.0.0.1:1'''\n",
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE.keys())
def test_lines_are_right_whatever_toml_comes_before(before: str) -> None:
    message = refusal(HEAD + before + VM.replace("= 0", "= -1"))

    assert lines_of(message) == [HEAD_LINES + before.count("\n") + 4], message


def test_lines_are_right_in_an_array_of_inline_tables() -> None:
    text = (
        'host = [{ name = "h1" }]\nvm = [\n  # the first\n'
        '  { name = "a", host = "h1", address = "192.0.2.1" },\n'
        '  { name = "b", host = "h9", address = "192.0.2.2" },\n]\n'
    )

    assert lines_of(refusal(text)) == [5]


def test_a_byte_order_mark_is_no_mistake_and_moves_no_line() -> None:
    assert apply_at_once.parse("\ufeff" + HEAD + VM) == apply_at_once.parse(HEAD + VM)
    assert lines_of(refusal("\ufeff" + HEAD + VM + "hots = 1\n")) == [HEAD_LINES + 7]


@pytest.mark.parametrize("text", ["", "# nothing\n", "vm = []\n", "host = []\n"])
def test_a_file_without_hosts_is_refused_so_that_an_empty_file_empties_no_fleet(text: str) -> None:
    assert "lists no host" in refusal(text)


@pytest.mark.parametrize("text", ["host = 1\n", "[host]\nname = 'h1'\n", "host = ['h1']\n"])
def test_a_single_table_is_refused_with_how_to_write_it(text: str) -> None:
    assert "Write each as [[host]]." in refusal(text)


@pytest.mark.parametrize("name", ["operator", "policy", "Operator"])
def test_a_vm_cannot_have_the_name_of_another_who_approves(name: str) -> None:
    message = refusal(HEAD + VM.replace("web_0", name))

    assert lines_of(message) == [HEAD_LINES + 2]
    assert "but not operator or policy" in message
    assert (
        apply_at_once.parse(HEAD.replace("h1", name) + VM.replace("h1", name)).hosts[0].name == name
    )


def test_a_file_beyond_reason_is_refused() -> None:
    assert str(INVENTORY_BYTES_MAX) in refusal("#" * (INVENTORY_BYTES_MAX + 1))
    assert str(INVENTORY_BYTES_MAX) in refusal("#" + "\u20ac" * (INVENTORY_BYTES_MAX // 2))
    assert "nested too deeply" in refusal(f"host = {'[' * 5_000}")
    assert "line 2" in refusal("\n# \ud800\n")


LONG_KEYS = {
    "bare": "a" + ".a" * 50_000 + " = 1",
    "quoted": '"a"' + ' . \'a\' . "\\""' * 50_000 + " = 1",
    "header": "[" + "a." * 50_000 + "a]",
    "in line": "x = { y = [ { " + "a." * 50_000 + "a = 1 } ] }",
    "one too many": "a" + ".a" * KEY_PARTS_MAX + " = 1",
}


@pytest.mark.parametrize("key", LONG_KEYS.values(), ids=LONG_KEYS)
def test_a_key_of_very_many_parts_is_refused_at_once_with_its_line(key: str) -> None:
    message = refusal(f"{HEAD}{key}\n")

    assert lines_of(message) == [HEAD_LINES + 1]
    assert f"up to {KEY_PARTS_MAX}" in message


@pytest.mark.parametrize("digits", [WORD_CHARS_MAX + 1, 5_000, 500_000])
@pytest.mark.parametrize("number", ["{}", "+{}", "[-{}]", "0x{}", "{{ n = {} }}", "1.{}"])
def test_a_number_of_very_many_digits_is_refused_with_its_line(number: str, digits: int) -> None:
    message = refusal(f"# {'9' * 9_999}\n{HEAD}capacity = {number.format('9' * digits)}\n")

    assert lines_of(message) == [HEAD_LINES + 2]
    assert f"up to {WORD_CHARS_MAX}" in message


def test_a_long_file_is_read_in_linear_time() -> None:
    """Eight times the VMs take eight times the CPU; a look back from each key would be 64 times."""

    def cpu_ns(vms: int) -> int:
        text = "".join(f"{VM}computer_name = 'web_{n}'\n" for n in range(vms))
        begun_ns = time.thread_time_ns()
        read(text)
        return time.thread_time_ns() - begun_ns

    assert cpu_ns(16_000) < 32 * cpu_ns(2_000)


def test_strings_and_comments_may_hold_what_keys_and_numbers_may_not() -> None:
    long = "9." * 9_999 + "9" * 9_999
    quoted = (f'"{long}"', f"'{long}'", f'"""\n\\"""{long}""""', f"'''\n#''{long}''''")
    for text in quoted:
        whole = f"# {long}\nx = [\n{text},\n{text}]  # {long}\n"
        assert read(whole) == tomllib.loads(whole)
        with pytest.raises(NotToml, match="characters"):
            read(f"{whole}y = {'9' * 9_999}\n")


@pytest.mark.parametrize("quote", ['"', "'", '"""', "'''", '"\\"', '""""', "#"])
def test_a_text_of_broken_strings_is_refused_in_linear_time(quote: str) -> None:
    assert "not TOML" in refusal(f"x = {quote * 200_000}")


def test_listeners_on_a_free_port_are_never_the_same() -> None:
    free = VM.replace('address = "192.0.2.1"', 'listen = "127.0.0.1:0"')

    assert len(apply_at_once.parse(HEAD + free + free.replace("web_0", "web_1")).vms) == 2


def test_any_broken_demo_fleet_is_refused_or_parsed_and_never_anything_else() -> None:
    chance = random.Random(7)
    text = settings.demo_inventory()
    for _ in range(400):
        at = chance.randrange(len(text))
        cut = text[:at] + chance.choice(["", "\n", '"', "[", "]]", "=", "\0", "#"])
        broken = cut + text[at + chance.randrange(4) :]
        try:
            apply_at_once.parse(broken)
        except BadInventory as refused:
            line_numbers = lines_of(str(refused))
            assert all(1 <= line <= broken.count("\n") + 1 for line in line_numbers)


def test_every_key_is_in_the_table_of_the_settings_page() -> None:
    page = SETTINGS_PAGE.read_text(encoding="utf-8")
    section = page.partition("\n## Inventory\n")[2].partition("\n## ")[0]
    for kind, table in TABLES.items():
        rows = section.partition(f"| `[[{kind}]]` |")[2].partition("| `[[")[0]
        assert all(f"`{key}`" in rows for key in table.fields), kind
