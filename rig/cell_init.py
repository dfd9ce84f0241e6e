"""The first process of a cell: gives it mounts of its own, then reaps whatever ends in it.

Run by `cells.Cell` inside fresh namespaces, as a file, with `python -I`. Its arguments are pairs
`SOURCE:TARGET` of folders and files to bind. It says `ready` on its output when everything is in
place; when it ends, everything in the cell ends with it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path


def mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True, timeout=10)


def prepare(name: str, binds: list[str]) -> None:
    socket.sethostname(name)
    mount("-t", "proc", "proc", "/proc")
    # Anew, so that it shows the interfaces of this network namespace; cgroups are not in it.
    mount("-t", "sysfs", "sysfs", "/sys")
    mount("-t", "tmpfs", "tmpfs", "/run")
    for pair in binds:
        source, _, target = pair.partition(":")
        at = Path(target)
        if at.is_relative_to("/run") and Path(source).is_dir():
            at.mkdir(parents=True, exist_ok=True)
        mount("--bind", source, target)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=10)


def reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    prepare(sys.argv[1], sys.argv[2:])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        signal.sigwait({signal.SIGCHLD})
        reap()


if __name__ == "__main__":
    main()
