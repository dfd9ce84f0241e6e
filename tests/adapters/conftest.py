"""What the tests of adapters share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.libvirt_world import LibvirtWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[LibvirtWorld]:
    """Two hosts on libvirt's test driver."""
    made = LibvirtWorld(tmp_path)
    try:
        yield made
    finally:
        made.close()
