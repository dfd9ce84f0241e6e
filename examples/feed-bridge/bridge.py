"""Hands each line of the feed to a command, one after the other, and forgets none.

    export FOREWARN_URL=http://127.0.0.1:4100 FOREWARN_TOKEN=...
    python bridge.py PLACE COMMAND [ARGUMENT...]

COMMAND gets one CloudEvent as JSON on its standard input. Only when it ends with 0 does the file
PLACE move on, so a line that could not be delivered is tried again, also after a kill: COMMAND may
see a line twice, under the same id, and never misses one. Standard library only.
"""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

KINDS = os.environ.get("KINDS", "scheduled,started,completed,failed,canceled,held")
WAIT_S = 30
AGAIN_S = 5


def page(after: str) -> Any:
    """The next lines, as soon as there are any."""
    query = f"after={after}&wait={WAIT_S}&kind={KINDS}"
    request = urllib.request.Request(f"{os.environ['FOREWARN_URL']}/v1/feed?{query}")  # noqa: S310 - the operator names it
    request.add_header("Authorization", f"Bearer {os.environ['FOREWARN_TOKEN']}")
    with urllib.request.urlopen(request, timeout=WAIT_S + 30) as answer:  # noqa: S310
        return json.load(answer)


def deliver(command: list[str], event: object) -> None:
    """Have the command take the line, however often that must be tried."""
    while subprocess.run(command, input=json.dumps(event).encode(), check=False).returncode:  # noqa: S603
        time.sleep(AGAIN_S)


def keep(place: Path, after: str) -> None:
    """Have the file say how far we are, whole and on the disk."""
    beside = place.with_name(f"{place.name}.new")
    with beside.open("w") as file:
        file.write(after)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(place)


def main() -> None:
    place, command = Path(sys.argv[1]), sys.argv[2:]
    after = place.read_text().strip() if place.exists() else ""
    while True:
        try:
            found = page(after)
        except urllib.error.HTTPError as refused:
            said = refused.read().decode()
            if refused.code != 503:  # 410: lines are gone, and a person decides where to go on
                sys.exit(f"the feed says {refused.code}: {said}")
            time.sleep(AGAIN_S)
            continue
        except OSError:
            time.sleep(AGAIN_S)  # the service is away; nothing is lost meanwhile
            continue
        for event in found["items"]:
            deliver(command, event)
            keep(place, event["id"])
        after = found["next"]
        keep(place, after)


if __name__ == "__main__":
    main()
