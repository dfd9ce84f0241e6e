"""What comes with a package is found in a folder and in one zipped file."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from forewarn.text.packaged import packaged_names, packaged_text

FILES = {"shop/__init__.py": "", "shop/sql/0002_two.sql": "two", "shop/sql/0001_one.sql": "one"}


@pytest.mark.parametrize("zipped", [False, True])
def test_the_files_of_a_package_are_listed_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, zipped: bool
) -> None:
    place = tmp_path / ("shop.zip" if zipped else "folder")
    if zipped:
        with zipfile.ZipFile(place, "w") as archive:
            for name, text in FILES.items():
                archive.writestr(name, text)
    else:
        for name, text in FILES.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(place))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    __import__("shop")
    try:
        assert packaged_names("shop", "sql") == ["0001_one.sql", "0002_two.sql"]
        assert packaged_text("shop", "sql/0001_one.sql") == "one"
    finally:
        del sys.modules["shop"]
