"""Starting, pinning, watching and stopping the processes that are measured.

What they are asked for lives in `guests` and `load`; what it should cost in the measuring modules.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_LIMIT_S = 180.0  # ends a hang: a first start with 100,000 VMs on a busy machine
STOP_LIMIT_S = 15.0
LOOK_EVERY_S = 0.005
OPEN_FILES_WANTED = 12_000
LOG_LINES_SHOWN = 20
REQUESTS_PER_S_RAISED = 1_000_000

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE = CORES[0]
CLIENT_CORE = CORES[1] if len(CORES) > 1 else CORES[0]


class Failed(Exception):  # noqa: N818 - says what is the case
    """A measurement could not be made. The message says why."""


def program(name: str) -> str | None:
    """Where a program of the system is, None if it is not installed.

    nginx is often where only an administrator's PATH leads.
    """
    folders = [os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin"]
    return shutil.which(name, path=os.pathsep.join(folders))


def take_client_core() -> None:
    """Keep this process, and the load generators it starts, off the core of the server."""
    os.sched_setaffinity(0, {CLIENT_CORE})


@contextmanager
def every_core() -> Iterator[None]:
    """What is started inside runs wherever the kernel likes."""
    os.sched_setaffinity(0, set(CORES))
    try:
        yield
    finally:
        take_client_core()


def raise_open_files() -> None:
    """Let this process and those it starts have a socket for every parked request."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < OPEN_FILES_WANTED:
        raise Failed(
            f"Only {most} open files are allowed; {OPEN_FILES_WANTED} are needed. "
            "Raise the limit (ulimit -Hn) and run again."
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES_WANTED, most))


@contextmanager
def _on_core(core: int) -> Iterator[None]:
    """What is started inside runs on that core, with all its threads and children."""
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        take_client_core()


def free_port() -> int:
    """A port of loopback that was free a moment ago."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def children(pid: int) -> list[int]:
    """The processes that a process has started, from any of its threads, and that go on."""
    try:
        files = [task / "children" for task in Path(f"/proc/{pid}/task").iterdir()]
        texts = [file.read_text(encoding="ascii") for file in files]
    except OSError:
        return []
    return [int(word) for text in texts for word in text.split()]


def cpu_s(pid: int) -> float:
    """CPU time of a process and its children so far, all threads, user and system."""
    total_ns = 0
    for one in (pid, *children(pid)):
        for task in Path(f"/proc/{one}/task").iterdir():
            # In nanoseconds; /proc/PID/stat counts in hundredths of a second.
            total_ns += int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return total_ns / 1e9


def waited_s(pid: int) -> float:
    """How long the main thread of a process has waited for a core so far, though it could run."""
    text = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii")
    return int(text.split()[1]) / 1e9


def resident_mib(pid: int) -> float:
    """Resident memory of a process now."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1_024
    raise Failed(f"process {pid} says nothing of its memory")


@dataclass(frozen=True, slots=True)
class Server:
    """A running server. `pid` is its own, also when a launcher runs it."""

    pid: int
    guest_port: int


@dataclass(frozen=True, slots=True)
class Forewarn(Server):
    """A running `forewarn serve`.

    `first_answer_s` is from its exec to the first 200 to a guest, `started_s` until it said that
    everything runs.
    """

    operator_port: int
    token: str
    first_answer_s: float
    started_s: float


def forewarn_program() -> str:
    """The program that is measured. Raises Failed if it is not installed."""
    found = shutil.which("forewarn", path=Path(sys.executable).parent)
    if found is None:
        raise Failed("There is no forewarn beside this Python. Run `make install`.")
    return found


def clean_environment() -> dict[str, str]:
    """The environment without what would set anything of the program."""
    return {k: v for k, v in os.environ.items() if not k.startswith("FOREWARN_")}


@contextmanager
def forewarn(
    folder: Path,
    inventory: str,
    *,
    settings: Mapping[str, str] | None = None,
    launcher: Sequence[str] = (),
) -> Iterator[Forewarn]:
    """Run `forewarn serve` on a data folder inside `folder`, pinned to the server's core.

    The inventory has a VM whose address is 127.0.0.1; its poll shows that the service answers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "inventory.toml"
    file.write_text(inventory, encoding="utf-8")
    guest_port, operator_port = free_port(), free_port()
    command = [*launcher, forewarn_program(), "serve", "--data", str(folder / "data")]
    command += ["--inventory", str(file)]
    command += ["--guest", f"127.0.0.1:{guest_port}", "--operator", f"127.0.0.1:{operator_port}"]
    environment = clean_environment()
    environment["FOREWARN_GUEST_REQUESTS_PER_SECOND"] = str(REQUESTS_PER_S_RAISED)
    environment.update(settings or {})
    log = folder / "serve.log"
    began_s = time.perf_counter()
    with running(command, log, environment) as process:
        wait(process, log, lambda: _answers(guest_port))
        first_answer_s = time.perf_counter() - began_s
        wait(process, log, lambda: "guest endpoint" in log.read_text(encoding="utf-8"))
        started_s = time.perf_counter() - began_s
        pid = children(process.pid)[0] if launcher else process.pid
        try:
            yield Forewarn(
                pid=pid,
                guest_port=guest_port,
                operator_port=operator_port,
                token=(folder / "data" / "operator.token").read_text(encoding="ascii").strip(),
                first_answer_s=first_answer_s,
                started_s=started_s,
            )
        finally:
            if launcher:
                _stop_child(process, pid)


@contextmanager
def nginx(folder: Path, body: bytes) -> Iterator[Server]:
    """Run nginx with one worker that answers every request with `body` from its memory."""
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    text = body.decode("utf-8")
    if "'" in text or "\\" in text or "$" in text:
        raise Failed("the document holds characters that would need quoting for nginx")
    (folder / "nginx.conf").write_text(
        f"""
worker_processes 1;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    keepalive_timeout 120s;
    keepalive_requests 1000000000;
    server {{
        listen 127.0.0.1:{port} backlog=4096;
        default_type "application/json; charset=utf-8";
        location / {{ return 200 '{text}'; }}
    }}
}}
""",
        encoding="utf-8",
    )
    command = [program("nginx") or "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf")]
    with running(command, folder / "nginx.log", dict(os.environ)) as process:
        wait(process, folder / "nginx.log", lambda: _answers(port))
        yield Server(pid=process.pid, guest_port=port)


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: dict[str, str], *, core: int = SERVER_CORE
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command, pinned to a core; it is stopped at the end."""
    with log.open("wb") as output, _on_core(core):
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stop_child(launcher: subprocess.Popen[bytes], pid: int) -> None:
    """Stop what a launcher runs; the launcher ends with it."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if launcher.poll() is not None:
            return
        os.kill(pid, number)
        try:
            launcher.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            continue


def _answers(port: int) -> bool:
    """Whether a GET of the document is answered 200 now."""
    request = b"GET /metadata/scheduledevents?api-version=2020-07-01 HTTP/1.1\r\n"
    with socket.socket() as sock:
        sock.settimeout(START_LIMIT_S)
        if sock.connect_ex(("127.0.0.1", port)) != 0:
            return False
        sock.sendall(request + b"Host: 127.0.0.1\r\nMetadata: true\r\nConnection: close\r\n\r\n")
        return sock.recv(1_024).startswith(b"HTTP/1.1 200 ")


def wait(process: subprocess.Popen[bytes], log: Path, ready: Callable[[], bool]) -> None:
    """Wait until a process that was started is ready. Raises Failed with the end of its log."""
    until_s = time.perf_counter() + START_LIMIT_S
    while not ready():
        if process.poll() is not None or time.perf_counter() > until_s:
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            told = "\n".join(lines[-LOG_LINES_SHOWN:])
            raise Failed(f"{process.args!r} did not start:\n{told}")
        time.sleep(LOOK_EVERY_S)
