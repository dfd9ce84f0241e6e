"""What mypy says to `msgspec.structs.replace` with the plugin of this repository."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PLUGIN = Path(__file__).parents[2] / "tools/mypy_structs.py"

CALLS = """
from typing import Generic, TypeVar
from msgspec import Struct
from msgspec.structs import replace

T = TypeVar("T")

class Vm(Struct, frozen=True, kw_only=True):
    name: str
    domain: int = 0

class Plain:
    name: str

class Box(Struct, Generic[T]):
    held: T

def calls(vm: Vm, box: Box[int]) -> Vm:
    replace(vm, domian=1)
    replace(vm, domain="1")
    replace(box, held="1")
    replace(Plain(), name="a")
    replace(box, held=1)
    return replace(vm, name="a", domain=1)
"""


def test_a_field_that_is_not_there_or_of_another_type_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "calls.py").write_text(CALLS)
    (tmp_path / "mypy.ini").write_text(f"[mypy]\nplugins = {PLUGIN}\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "calls.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    errors = [line.partition("error: ")[2] for line in checked.stdout.splitlines()[:-1]]
    assert [error for error in errors if error] == [
        'Unexpected keyword argument "domian" for "replace"; did you mean "domain"?  [call-arg]',
        'Argument "domain" to "replace" has incompatible type "str"; expected "int"  [arg-type]',
        'Argument "held" to "replace" has incompatible type "str"; expected "int"  [arg-type]',
        'Value of type variable "_S" of "replace" cannot be "Plain"  [type-var]',
    ]
