"""Hooks that cannot run, and files that everybody can change, are refused at start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from forewarn_guest import config_file
from forewarn_guest.config_file import CONFIG_BYTES_MAX
from forewarn_guest.errors import ConfigError
from forewarn_guest.hook_files import find_program

SCRIPT = "#!/bin/sh\nexit 0\n"


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    path = tmp_path / "drain"
    path.write_text(SCRIPT)
    path.chmod(0o755)
    return path


def refusal_of(name: str) -> str:
    with pytest.raises(ValueError, match=r"^names ") as refusal:
        find_program(name)
    return str(refusal.value)


def mistakes_of(path: Path) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as refusal:
        config_file.read(path)
    return refusal.value.mistakes


def test_a_program_is_run_by_its_path(hook: Path) -> None:
    assert find_program(str(hook)) == str(hook)
    assert find_program(sys.executable) == sys.executable


def test_a_name_is_looked_up_on_the_path_of_the_agent(
    hook: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(hook.parent))
    assert find_program("drain") == str(hook)
    says = refusal_of("undrain")
    assert "undrain" in says
    assert f"PATH of the agent, {hook.parent}" in says


def test_a_link_keeps_its_name(hook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link = hook.parent / "undrain"
    link.symlink_to(hook)
    monkeypatch.setenv("PATH", str(hook.parent))
    assert find_program("undrain") == str(link)


def test_a_program_that_is_missing_or_cannot_be_run_is_refused(hook: Path) -> None:
    assert "no such file" in refusal_of(f"{hook}-not")
    assert "is no file" in refusal_of(str(hook.parent))
    assert "must begin with /" in refusal_of("./drain")
    hook.chmod(0o644)
    assert f"chmod +x {hook}" in refusal_of(str(hook))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("exit 0\n", "does not begin with #!"),
        ("", "does not begin with #!"),
        ("#!/no/such/shell\n", "a script for /no/such/shell: there is none"),
        ("#!\n", "a script for nothing"),
        ("#!/bin/sh\r\nexit 0\r\n", "carriage return"),
    ],
)
def test_a_script_that_the_kernel_would_refuse_is_refused(
    hook: Path, content: str, says: str
) -> None:
    hook.write_bytes(content.encode())
    assert says in refusal_of(str(hook))


def test_a_hook_that_everybody_can_change_is_refused_with_the_remedy(hook: Path) -> None:
    link = hook.parent / "link"
    link.symlink_to(hook)
    hook.chmod(0o777)
    assert f"chmod o-w {hook}" in refusal_of(str(hook))
    assert f"chmod o-w {hook}" in refusal_of(str(link))
    hook.chmod(0o775)
    assert find_program(str(hook))


def test_a_hook_that_everybody_can_replace_is_refused_with_the_remedy(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    inner = folder / "inner"
    inner.mkdir(parents=True)
    hook = inner / "drain"
    hook.write_text(SCRIPT)
    hook.chmod(0o755)
    folder.chmod(0o777)
    assert f"chmod o-w {folder}" in refusal_of(str(hook))
    folder.chmod(0o1777)  # as /tmp: only the owner can replace what is in it
    assert find_program(str(hook))


def test_a_hook_is_refused_with_the_line_that_names_it(hook: Path, tmp_path: Path) -> None:
    path = tmp_path / "forewarn.toml"
    hook.chmod(0o644)
    path.write_text(f'[[rule]]\n\n[[rule.prepare]]\nrun = ["{hook}"]\n')
    (mistake,) = mistakes_of(path)
    assert mistake.startswith(f"{path}:4: run names {hook}, which is not executable")


def test_a_kubectl_that_is_named_and_cannot_be_run_is_refused_like_a_hook(
    hook: Path, tmp_path: Path
) -> None:
    path = tmp_path / "forewarn.toml"
    hook.chmod(0o644)
    step = f'kubernetes = {{ action = "drain", program = "{hook}" }}'
    path.write_text(f"[[rule]]\n[[rule.prepare]]\n{step}\n")
    (mistake,) = mistakes_of(path)
    says = f"{path}:3: program of kubernetes names {hook}, which is not executable"
    assert mistake.startswith(says)
    hook.chmod(0o755)
    assert config_file.read(path).warnings == ()


def test_what_built_in_steps_would_not_find_on_this_machine_is_warned_about(
    hook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "forewarn.toml"
    monkeypatch.setenv("PATH", "/nowhere")
    there = tmp_path / "token"
    there.write_text("secret")
    steps = [
        'systemd = { action = "stop", units = "app.service" }',
        'kubernetes = { action = "drain", kubeconfig = "/nowhere/config" }',
        f'kubernetes = {{ action = "uncordon", program = "{hook}" }}\nname = "named"',
        f'webhook = {{ url = "https://example.org", secret_file = "{there}" }}',
        'email = { from = "a@b.org", to = "c@d.org", tls = "starttls", login_file = "/nowhere/l" }',
        'haproxy = { action = "drain", servers = "b/s", sockets = ["/nowhere/s", "10.0.0.1:99"] }',
        'haproxy = { action = "ready", servers = "b/s", sockets = "10.0.0.1:99" }\nname = "ready"',
    ]
    listed = "".join(f"[[rule.recover]]\n{step}\n" for step in steps)
    path.write_text(f'[[rule]]\napprove = "never"\n{listed}')
    missing = "no such file or directory."
    assert config_file.read(path).warnings == (
        f"{path}:3: Step systemd needs systemctl, which is not on PATH, /nowhere.",
        f"{path}:5: Step kubernetes cannot read its kubeconfig /nowhere/config: {missing}",
        f"{path}:5: Step kubernetes needs kubectl, which is not on PATH, /nowhere.",
        f"{path}:12: Step email cannot read its login_file /nowhere/l: {missing}",
        f"{path}:14: Step haproxy cannot use the socket /nowhere/s now: {missing}",
    )


def test_a_textfile_without_a_folder_is_warned_about(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.toml"
    path.write_text('[agent]\nmetrics_file = "/nowhere/a.prom"\n[[rule]]\nignore = true\n')
    (warning,) = config_file.read(path).warnings
    assert "The folder of metrics_file, /nowhere, cannot be used: no such file" in warning


def test_a_configuration_that_everybody_can_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.toml"
    path.write_text('[[rule]]\napprove = "never"\n')
    path.chmod(0o666)
    (mistake,) = mistakes_of(path)
    assert f"chmod o-w {path}" in mistake
    path.chmod(0o640)
    assert config_file.read(path).rules


def test_what_is_no_readable_file_is_refused(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "This is no file." in mistakes_of(pipe)[0]
    assert "This is no file." in mistakes_of(tmp_path)[0]
    missing = mistakes_of(tmp_path / "none")[0]
    assert missing.startswith(f"{tmp_path / 'none'}: There is no such file.")
    assert "--config FILE" in missing
    assert "forewarn-guest install" in missing


def test_a_file_that_is_too_long_or_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "forewarn.toml"
    path.write_bytes(b"#" * (CONFIG_BYTES_MAX + 1))
    assert "more than" in mistakes_of(path)[0]
    path.write_bytes(b"[[rule]]\n\nname = '\xff'\n")
    assert mistakes_of(path) == (f"{path}:3: This is not UTF-8.",)
