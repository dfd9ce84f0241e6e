"""One rig for a whole run of tests; a machine that cannot have one skips them and says why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rig.building import Rig
from rig.needs import CannotBuild


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    try:
        whole = Rig()
    except CannotBuild as why:
        pytest.skip(str(why))
    with whole:
        yield whole
