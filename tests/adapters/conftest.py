"""What the tests of adapters share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from libvirt_world import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two hosts on libvirt's test driver."""
    made = World(tmp_path)
    try:
        yield made
    finally:
        made.close()
