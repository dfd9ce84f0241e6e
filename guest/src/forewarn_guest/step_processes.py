"""Steps as processes: begun so that they outlive the agent, found again by the agent after it.

A step runs in a session of its own, below a small shell that does nothing but run it and write
down how it ended (`run_files`). What it says goes through a pipe to a second small process, which
keeps the first OUTPUT_MAX_B bytes in a file and reads the rest away: so the step neither waits
nor dies of what it says, whether or not an agent is there to listen. Nothing of an event is in
the text of a script; commands come as arguments, events as environment and standard input.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from forewarn_guest.run_files import (
    Alive,
    ExitStatus,
    Found,
    NotBegun,
    ProcessIdentity,
    Unknown,
    age_s,
    boot_id,
    group_alive,
    identity_of,
    look,
    reserved,
    write_begun,
    write_ended,
    write_stopped,
)
from forewarn_guest.tracked_event import Run

OUTPUT_MAX_B = 64 * 1024
VALUE_MAX_B = 64 * 1024  # of one environment variable; the kernel refuses 128 KiB (execve(2))
COLLECT_S = 0.5  # how long an ended step is waited for to have its last words written
RUNS_KEPT_MAX = 200  # files of ended runs, for people who look for what a step said
TIDY_EVERY = 50  # begun steps

END_UNKNOWN = -1  # what `poll` says of a step whose end is not recorded
NOT_RUN = 125  # the shell found itself abandoned, or its folder gone

SHELL = "/bin/sh"

# $1 says whether the file of the run is open as descriptor 3, $2 is the folder to run in, the rest
# the command. Open, and not by its name: a shell that comes late finds the file that it was given,
# in which it was abandoned, and not the one of the run that has taken its place. A signal that is
# trapped, other than one that is ignored, has its default action in the command; and the shell
# waits for the command before it acts on it, so it is there to write down the end. Before the trap
# a signal ends the shell, and so the step. From the trap until the subshell has the default action
# back, a signal has no effect on the command: so an agent first writes `stopped` and then sends
# SIGTERM, and the subshell looks for that line once a signal would end it.
RUN_SCRIPT = """
cd -- "$2" || exit 125
forewarn_run=$1
shift 2
if [ -n "$forewarn_run" ]; then
  IFS= read -r forewarn_line </proc/$$/stat
  printf 'running %s\\n' "$forewarn_line" >&3 || exit 125
  { IFS= read -r forewarn_line; IFS= read -r forewarn_line; } </proc/$$/fd/3
  case $forewarn_line in running*) ;; stopped) exit 143 ;; *) exit 125 ;; esac
fi
trap : HUP INT QUIT TERM
(
  trap - HUP INT QUIT TERM
  [ -z "$forewarn_run" ] || while IFS= read -r forewarn_line; do
    [ "$forewarn_line" != stopped ] || exit 143
  done </proc/$$/fd/3
  exec "$@" 3>&-
)
forewarn_line=$?
[ -z "$forewarn_run" ] || printf 'ended %s\\n' "$forewarn_line" >&3
exit "$forewarn_line"
"""

# The limit is in blocks of 512 bytes. cat writes what it has read at once; when the file is full,
# or the disk, the second one reads on, so that the step does not stop.
COLLECT_SCRIPT = f"""
trap '' XFSZ HUP INT QUIT TERM
(ulimit -f {OUTPUT_MAX_B // 512}; exec cat)
exec cat >/dev/null
"""


class Running:
    """A step that was begun, by this agent or by one that died. Any thread may ask."""

    def __init__(
        self, path: Path | None, identity: ProcessIdentity, *, child: bool, collector: int = 0
    ) -> None:
        self.pid = identity.pid
        self.start_ticks = identity.start_ticks
        self.boot_id = identity.boot_id
        self._identity = identity
        self._path = path
        self._child = child
        self._collector = collector
        self._collect_until_s: float | None = None
        self._kill_at_s: float | None = None
        self._killed = False
        self._code: int | None = None
        self._over = False
        self._lock = threading.Lock()

    @property
    def age_s(self) -> float:
        """How long ago it was begun, also if that was by another agent."""
        return age_s(self._identity)

    def poll(self) -> int | None:
        """Its exit status once it has ended, END_UNKNOWN if no record says how, else None.

        A step that was told to stop has ended when everything of its process group has.
        """
        with self._lock:
            self._see()
            if not self._over:
                self._over = self._code is not None and self._group_over() and self._collected()
            return self._code if self._over else None

    def stop(self, grace_s: float) -> None:
        """Ask its process group to end. It returns at once; `poll` ends the group after the grace.

        Asking again can only make the grace shorter.
        """
        kill_at_s = time.monotonic() + grace_s
        with self._lock:
            self._see()
            if self._code is not None and self._kill_at_s is None:
                return  # it has ended by itself; what it left behind is left alone
            if self._kill_at_s is None:
                if self._path is not None:
                    with contextlib.suppress(OSError):  # no room: a command about to begin may not
                        write_stopped(self._path)  # hear it, and is killed after the grace
                self._signal(signal.SIGTERM)
                self._signal(signal.SIGCONT)  # one that stands still could not obey
                self._kill_at_s = kill_at_s
            self._kill_at_s = min(self._kill_at_s, kill_at_s)

    def said(self) -> str:
        """What it has written to standard output and error, the first OUTPUT_MAX_B bytes."""
        if self._path is None:
            return ""
        try:
            with _output_of(self._path).open("rb") as file:
                data = file.read(OUTPUT_MAX_B)
        except OSError:
            return ""
        text = data.decode("utf-8", "replace")
        return (
            text
            if len(data) < OUTPUT_MAX_B
            else text + "\n(what it said after this, if anything, was dropped)"
        )

    def _see(self) -> None:
        if self._code is None:
            self._code = self._reap() if self._child else self._look()

    def _reap(self) -> int | None:
        """The exit status of a child, which is no longer there then."""
        try:
            over = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # it was reaped elsewhere
            return self._look()
        if over is None:
            self._kill_if_due()
            return None
        if over.si_code != os.CLD_EXITED:
            # The shell was killed, and can no longer record how the step ends: so it ends now.
            # The pid is ours until it is reaped.
            self._signal(signal.SIGKILL)
        _, wait_code = os.waitpid(self.pid, 0)
        code = _exit_code(wait_code)
        if over.si_code != os.CLD_EXITED and self._path is not None:
            with contextlib.suppress(OSError):  # then the next agent does not know it
                write_ended(self._path, code)
        return code

    def _look(self) -> int | None:
        """The exit status of a process that is not a child of this one."""
        found = Unknown("") if self._path is None else look(self._path, self._identity)
        if isinstance(found, Alive):
            self._kill_if_due()
            return None
        if isinstance(found, ExitStatus):
            return found.code
        if self._kill_at_s is None:
            return END_UNKNOWN
        return 128 + (signal.SIGKILL if self._killed else signal.SIGTERM)

    def _kill_if_due(self) -> None:
        if self._kill_at_s is None:
            return
        if time.monotonic() >= self._kill_at_s:
            self._signal(signal.SIGKILL)
            self._killed = True
        else:
            self._signal(signal.SIGCONT)  # it may have been made to stand still since it was asked

    def _group_over(self) -> bool:
        """True unless it was told to stop and something of its group has not, yet.

        While the group has members, the kernel gives its pid to no other process: they are its own.
        """
        if self._kill_at_s is None or self._killed or not group_alive(self.pid):
            return True
        self._kill_if_due()
        return self._killed

    def _collected(self) -> bool:
        """True when its last words are written, or something that it left behind keeps talking."""
        if self._collector == 0:
            return True
        if _reaped(self._collector):
            self._collector = 0
            return True
        if self._collect_until_s is None:
            self._collect_until_s = time.monotonic() + COLLECT_S
        if time.monotonic() < self._collect_until_s:
            return False
        _reap_when_over(self._collector)
        self._collector = 0
        return True

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


class Steps:
    """The steps of one agent. Their files are in `folder`, which is made if it is missing.

    `run_in` is the folder that steps are run in.
    """

    def __init__(self, folder: Path, *, run_in: Path = Path("/")) -> None:
        self.folder = folder.absolute()
        self.boot_id = boot_id()
        self._run_in = run_in.absolute()
        self._begun = 0
        self.folder.mkdir(mode=0o700, exist_ok=True)

    def reserve(self, name: str) -> None:
        """Make the file of a run. Called before the journal says that the step is intended.

        Then `look` can say NotBegun of a step that an agent intended and did not come to begin.
        OSError when there is no room.
        """
        write_begun(self._path(name))

    def begin(
        self, name: str, argv: Sequence[str], *, environment: Mapping[str, str], given: bytes
    ) -> Running:
        """Run a command with exactly this environment and with `given` on standard input.

        OSError if it cannot be: no such program, no process to be had. On a full disk it runs all
        the same; then its end is known only to this agent.
        """
        values = _environment(environment)
        command = [_program(argv[0], values), *argv[1:]]
        path: Path | None = self._path(name)
        try:
            if path is not None and not reserved(path):
                write_begun(path)
        except OSError:
            path = None
        with contextlib.ExitStack() as opened:
            kept = () if path is None else (opened.enter_context(_run_file(path)),)
            output, collector = opened.enter_context(_output(path))
            standard_input = opened.enter_context(_input(given))
            run = ["forewarn-step", "yes" if kept else "", str(self._run_in)]
            pid = _spawn(
                [SHELL, "-c", RUN_SCRIPT, *run, *command],
                (standard_input, output, output, *kept),
                values,
            )
        running = Running(path, identity_of(pid), child=True, collector=collector)
        if self._begun % TIDY_EVERY == 0:
            self._tidy()
        self._begun += 1
        return running

    def look(self, name: str, known: ProcessIdentity | None = None) -> Found:
        """What has become of a run that an agent before this one intended (`run_files.look`)."""
        return look(self._path(name), known)

    def find(self, name: str, run: Run) -> Running | int | NotBegun | None:
        """What has become of a run that the journal has: it runs, its exit status, or unknown.

        A run that was not begun never will be after this.
        """
        known = ProcessIdentity(run.pid, run.start_ticks, run.boot_id) if run.pid else None
        found = self.look(name, known)
        if isinstance(found, Alive):
            return self.adopt(name, found.identity)
        if isinstance(found, NotBegun):
            return found
        return found.code if isinstance(found, ExitStatus) else None

    def adopt(self, name: str, identity: ProcessIdentity) -> Running:
        """A run that was found alive, to be asked and stopped like one begun here."""
        return Running(self._path(name), identity, child=False)

    def _path(self, name: str) -> Path:
        if not name or "/" in name or name.startswith("."):
            raise ValueError(f"{name!r} cannot be the name of a run.")
        return self.folder / f"{name}.run"

    def _tidy(self) -> None:
        """Remove the files of the oldest ended runs."""
        aged = []
        for path in self.folder.glob("*.run"):
            with contextlib.suppress(FileNotFoundError):
                aged.append((path.stat().st_mtime, path))
        for _, path in sorted(aged)[: max(0, len(aged) - RUNS_KEPT_MAX)]:
            # One that is about to begin would be abandoned by looking, and can be the oldest if
            # the wall clock was set back.
            if reserved(path) or isinstance(look(path), Alive):
                continue
            for old in (_output_of(path), path):
                with contextlib.suppress(FileNotFoundError):
                    old.unlink()


def _exit_code(wait_code: int) -> int:
    """As a shell says it: 128 and the number of the signal."""
    if os.WIFSIGNALED(wait_code):
        return 128 + os.WTERMSIG(wait_code)
    return os.WEXITSTATUS(wait_code)


def _reaped(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _reap_when_over(pid: int) -> None:
    """Leave no zombie of a child that no other thread waits for, whenever it ends."""
    waiting = threading.Thread(target=os.waitpid, args=(pid, 0), name="reap", daemon=True)
    with contextlib.suppress(RuntimeError):  # no thread to be had: it is reaped with the agent
        waiting.start()


def _output_of(path: Path) -> Path:
    return path.with_suffix(".out")


def _program(name: str, environment: Mapping[bytes, bytes]) -> str:
    """The program with its folder: a bare name could mean a command that the shell has itself."""
    if "/" in name:
        return f"./{name}" if name.startswith("-") else name  # to exec it would be an option
    searched = os.fsdecode(environment.get(b"PATH", os.fsencode(os.defpath)))
    found = shutil.which(name, path=searched)
    if found is None:
        raise FileNotFoundError(f"There is no program {name} in {searched}.")
    return str(Path(found).absolute())


def _environment(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """The environment in bytes. What no process can be given in one is left out of a value."""
    return {_bytes(name): _bytes(value)[:VALUE_MAX_B] for name, value in environment.items()}


def _bytes(text: str) -> bytes:
    text = text.replace("\0", "")
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can say
        return text.encode("utf-8", "replace")


@contextlib.contextmanager
def _run_file(path: Path) -> Iterator[int]:
    """The file of a run, for its process to read and to add to."""
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
    with _closing(file):
        yield file


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[tuple[int, int]]:
    """A descriptor for the output of a step, and the pid of what keeps it; 0 if nothing does.

    The collector is there before the step: whenever the agent dies, the pipe has a reader.
    """
    if path is None:
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        with _closing(nowhere):
            yield nowhere, 0
        return
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        kept = os.open(_output_of(path), flags, 0o600)
    except OSError:  # a disk that has no room for it
        kept = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    with _closing(kept):
        reading, writing = os.pipe()
        with _closing(writing):
            with _closing(reading):
                path_only = {b"PATH": os.fsencode(os.defpath)}
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                with _closing(nowhere):
                    collect = [SHELL, "-c", COLLECT_SCRIPT]
                    collector = _spawn(collect, (reading, kept, nowhere), path_only)
            try:
                yield writing, collector
            except BaseException:
                _reap_when_over(collector)
                raise


@contextlib.contextmanager
def _input(given: bytes) -> Iterator[int]:
    """A descriptor to read these bytes from, in memory: it needs no disk and no agent."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("forewarn-step", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    with _closing(file):
        rest = memoryview(given)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.lseek(file, 0, os.SEEK_SET)
        yield file


@contextlib.contextmanager
def _closing(file: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(file)


def _spawn(argv: Sequence[str], given: tuple[int, ...], environment: Mapping[bytes, bytes]) -> int:
    """A process in a session of its own, with these descriptors, from 0 on, and no other.

    All signals have their default action in it and none is blocked, whatever the agent does with
    them. It is there with its session when this returns, so its group can be signalled.
    """
    with contextlib.ExitStack() as lifted:
        actions: list[tuple[int, ...]] = []
        for number, file in enumerate(given):
            # Above those that are given: an agent may have been started without some of them.
            above = fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, len(given))
            lifted.callback(os.close, above)
            actions.append((os.POSIX_SPAWN_DUP2, above, number))
        actions += [(os.POSIX_SPAWN_CLOSE, file) for file in _inheritable() if file >= len(given)]
        return os.posix_spawn(
            argv[0],
            list(argv),
            environment,
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=_SIGNALS,
        )


_SIGNALS = frozenset(int(number) for number in signal.valid_signals()) - {
    signal.SIGKILL,
    signal.SIGSTOP,
}


def _inheritable() -> list[int]:
    """Descriptors that a child would get; Python makes none, but the agent may have been given."""
    found = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - just the numbers
        with contextlib.suppress(OSError):  # the listing's own is closed already
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
    return found
