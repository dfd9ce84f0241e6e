"""`forewarn control` as the rig runs it: the same service, on the rig's clock."""

from __future__ import annotations

import sys
from pathlib import Path

from forewarn.cli.logs import log_to_stderr
from forewarn.cli.serve import run_to_end
from forewarn.settings import load
from forewarn.wiring.control import open_control
from rig.clock import FollowedClock


def main(clock: str, settings: str) -> None:
    log_to_stderr()
    chosen = load(file=Path(settings), environment={}, options={})

    async def everything() -> None:
        service = open_control(chosen, clock=FollowedClock(Path(clock)))
        await service.run(lambda where: print(where.operator_url, flush=True))

    run_to_end(everything())


if __name__ == "__main__":
    main(*sys.argv[1:])
