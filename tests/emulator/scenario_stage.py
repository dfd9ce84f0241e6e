"""An emulator as scenarios need it in tests: operators and guests, all of them over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from forewarn.emulator.fleet import inventory_text
from forewarn.settings import SIMULATE_DEFAULTS, Settings
from forewarn.testing.background import Background
from forewarn.wiring.simulate import EmulationPlan, Emulator
from support.system_world import Answer, Guest, request


class Stage:
    """One running emulator."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self.url, self.token = background.operator()
        parts = urlsplit(self.url)
        self._where = (parts.hostname or "", parts.port or 0)

    @property
    def environment(self) -> dict[str, str]:
        """What leads the command line here."""
        return {"FOREWARN_URL": self.url, "FOREWARN_TOKEN": self.token}

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """The operator API, whatever it answers."""
        sent = {"Authorization": f"Bearer {self.token}"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        content = None if body is None else json.dumps(body).encode()
        return request(method, self._where, path, body=content, headers=sent)

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, answer
        return answer.json()

    def order(self, path: str, body: object = None) -> Any:
        answer = self.ask("POST", path, {} if body is None else body)
        assert answer.status == 200, answer
        return answer.json()

    def run(self, name: str | None = None, **words: object) -> Any:
        """Run a scenario, or with `toml` a script."""
        return self.order("/v1/scenarios/runs", {"name": name, **words})

    def script(self, *steps: str, **words: Any) -> Any:
        """Run a script of these steps."""
        text = 'title = "t"\n' + "".join(f"[[step]]\n{step}\n" for step in steps)
        return self.run(toml=text, **words)

    def look(self, run: Any) -> Any:
        """A run as it is now."""
        return self.get(f"/v1/scenarios/runs/{run['run_id']}")

    def now_ms(self) -> int:
        at = datetime.fromisoformat(self.get("/v1/clock")["now"])
        return round(at.timestamp() * 1_000)

    def advance(self, ms: int) -> None:
        self.order("/v1/clock/advance", {"by": f"{ms}ms"})

    def next(self) -> None:
        self.order("/v1/clock/next")

    def guest(self, vm: str) -> Guest:
        """The software in a VM."""

        async def urls(emulator: Emulator) -> dict[str, str]:
            return emulator.urls()

        parts = urlsplit(self._background.call(urls)[vm])
        return Guest((parts.hostname or "", parts.port or 0))


@contextmanager
def stage(
    *,
    vms: Sequence[str] = (),
    scopes: Sequence[str] = (),
    inventory: str | None = None,
    seed: int = 1,
    speed: int = 0,
) -> Iterator[Stage]:
    """An emulator for the length of the block."""
    settings = Settings(data=Path("unused"), **SIMULATE_DEFAULTS)
    text = inventory or inventory_text(vms=vms, scopes=scopes, spot=True)
    background = Background(
        EmulationPlan(settings=settings, inventory=text, seed=seed, speed=speed)
    )
    try:
        yield Stage(background)
    finally:
        background.close()
