"""Attested data is the emulator's alone."""

from __future__ import annotations

from support.endpoint_world import get, running


def test_the_service_has_no_attested_document() -> None:
    with running() as world:
        asked = get("/metadata/attested/document?api-version=2021-02-01", "Metadata: true")
        assert world.client().ask(asked).status == 404
