"""A PostgreSQL of the tests: one for all workers of a run, on a Unix socket and a loopback port.

It is made by `initdb` in a folder of its own and ends with the last worker. Every test gets a
database of its own, copied from one that has the schema. Its texts are sorted as a language sorts
them, so that what must be sorted byte by byte says so. No test lives here.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg

from forewarn.adapters.postgres.session import DatabaseSession
from forewarn.adapters.postgres.store import PostgresStore, migrate
from forewarn.ports import Batch, Fence
from programs import program
from support.waiting import wait_until

STARTS_S = 60  # only ends a hang
USER = "forewarn"
TEMPLATE = "forewarn_template"

_STARTED: dict[int, subprocess.Popen[bytes]] = {}  # by this worker


class Running(msgspec.Struct):
    """What workers tell each other of the server."""

    folder: str
    pid: int
    port: int
    users: int = 0


class PostgresServer:
    """A server that runs."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self._made = 0

    def address(self, database: str, **more: Any) -> str:
        """A connection string, over the socket unless `host` says otherwise."""
        given = {"host": str(self.folder), "port": self.port, "user": USER, "dbname": database}
        return " ".join(f"{key}={value}" for key, value in {**given, **more}.items())

    def ask(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement on a session of its own."""
        with closing(psycopg.connect(self.address(database), autocommit=True)) as session:
            cursor = session.execute(statement)
            return cursor.fetchall() if cursor.description is not None else []

    @contextmanager
    def database(self, *, of: str = TEMPLATE) -> Iterator[str]:
        """A database of its own for a test; its name."""
        self._made += 1
        name = f"test_{os.getpid()}_{self._made}"
        self.ask(f"CREATE DATABASE {name} TEMPLATE {of}")
        try:
            yield name
        finally:
            self.ask(f"DROP DATABASE {name} WITH (FORCE)")


def as_nobody_special() -> list[str]:
    """What to put before a command, as PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    return [program("setpriv"), "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


def start(folder: Path, port: int, **settings: str) -> subprocess.Popen[bytes]:
    """Make a cluster in a folder, and start its server. Skips the test where there is none."""
    data = folder / "data"
    initdb, postgres = program("initdb"), program("postgres")
    if os.geteuid() == 0:
        shutil.chown(folder, "nobody", "nogroup")
    how = ["--auth=trust", "--encoding=UTF8", "--locale-provider=icu", "--icu-locale=en-US"]
    made = [*as_nobody_special(), initdb, "-D", str(data), "-U", USER, "--no-sync", *how]
    subprocess.run(made, check=True, capture_output=True, cwd=folder, timeout=STARTS_S)
    given = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": str(folder),
        "max_connections": "60",
        **settings,
    }
    said = [word for name, value in given.items() for word in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*as_nobody_special(), postgres, "-D", str(data), *said],
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
        )
    _STARTED[process.pid] = process
    return process


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def wait_for(server: PostgresServer) -> None:
    """Until it answers."""

    def answers() -> bool:
        try:
            server.ask("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    wait_until(answers)


@contextmanager
def shared_server(meeting: Path) -> Iterator[PostgresServer]:
    """The server of this run. The first worker starts it, the last one ends it."""
    known, lock = meeting / "postgres.json", meeting / "postgres.lock"
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        running = msgspec.json.decode(known.read_bytes(), type=Running) if known.exists() else None
        if running is None:
            folder, port = Path(tempfile.mkdtemp(prefix="forewarn-pg-")), free_port()
            process = start(folder, port, fsync="off", full_page_writes="off")
            running = Running(str(folder), process.pid, port)
            server = PostgresServer(folder, port)
            wait_for(server)
            server.ask(f"CREATE DATABASE {TEMPLATE}")
            with closing(DatabaseSession(server.address(TEMPLATE), doing="opens")) as session:
                migrate(session)
        running.users += 1
        known.write_bytes(msgspec.json.encode(running))
    try:
        yield PostgresServer(Path(running.folder), running.port)
    finally:
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            running = msgspec.json.decode(known.read_bytes(), type=Running)
            running.users -= 1
            known.write_bytes(msgspec.json.encode(running))
            if running.users == 0:
                known.unlink()
                end(running.pid)
                shutil.rmtree(running.folder, ignore_errors=True)


def end(pid: int) -> None:
    """End a server that a worker has started, and wait until it is gone."""
    os.kill(pid, signal.SIGINT)  # a fast shutdown
    process = _STARTED.pop(pid, None)
    if process is not None:
        process.wait(STARTS_S)
        return

    def gone() -> bool:
        """Another worker has started it, and may not have looked after it yet."""
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        return state == "Z"

    wait_until(gone)


class LeadingStore(PostgresStore):
    """A store that leads; what is committed without a fence is committed under its own."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.fence = self.lead("test", "https://control.example.com")

    def commit(self, batch: Batch, fence: Fence | None = None) -> None:
        super().commit(batch, fence or self.fence)


@contextmanager
def leading_store(server: PostgresServer) -> Iterator[LeadingStore]:
    """An empty store in a database of its own."""
    with server.database() as name, closing(LeadingStore(server.address(name))) as store:
        yield store
