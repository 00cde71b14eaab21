"""The demo command: Bothy, a scripted model and the real Hermes, and what one message does in them.

Layer: doors. `demo_world` brings the programs up and down; here are the stages, the signals and the
exit status. A run is watched through the people's interface, as a person sees it.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from .clock import Clock, system_clock
from .demo_acts import POLL_SECONDS, Actor, Acts
from .demo_person import RunFeed
from .demo_show import Show
from .demo_world import DemoWorld
from .errors import BothyError, ConfigError, WatchLost
from .gateway_process import TELL_SECONDS, check_hermes, stop_signals
from .wire_words import ENDED_STATES, RunState

RUN_SECONDS = 600.0
"""How long `--once` waits for its run: the server lets a run wait no longer than that."""

QUIET_SECONDS = 10.0
"""After which a run that shows nothing counts as at work: the first turn of a new Hermes can take as long."""

EXIT_FAILED = 1
"""Exit status when the run did not complete."""


def run_demo(
    once: str | None,
    *,
    as_json: bool,
    keep: Path | None,
    out: TextIO,
    clock: Clock | None = None,
    acts: Acts | None = None,
) -> int:
    """Run the demo command.

    Args:
        once: The message to post; None waits for people and Ctrl-C.
        as_json: One JSON object a line.
        keep: The directory that is kept; None deletes everything at the end.
        out: Where the lines go.
        clock: Time and IDs.
        acts: What the person does after the message.

    Returns:
        The exit status: 0 completed, 1 not completed, 128 and the signal's number when stopped.

    Raises:
        WatchLost: Everything came up, but not to its end.
        BothyError: Something did not come up.
    """
    clock = clock or system_clock()
    show = Show(out, as_json=as_json)
    check_hermes()
    with _signals() as came, _directory(keep) as root:
        world = DemoWorld(root, clock)
        try:
            _start(world, show, clock)
            return _work(world, show, once, clock, acts or Acts())
        except KeyboardInterrupt:
            return 128 + came[0]
        finally:
            _ignore_signals()
            _farewell(show, "Stopping everything")
            world.close(lambda line: _farewell(show, line))
            if keep is not None:
                _farewell(show, f"Everything is kept in {keep}")


def _farewell(show: Show, line: str) -> None:
    with suppress(OSError):  # whoever read the lines may be gone
        show.farewell(line)


def _start(world: DemoWorld, show: Show, clock: Clock) -> None:
    show.stage("Starting a Bothy server, a scripted model and a throwaway Hermes profile")
    world.open()
    show.stage(f"The server is at {world.server.api_url}; Hermes is starting")
    began = clock.monotonic()
    world.start_gateway(show.stage)
    restarts = len(world.gateway.restarts)
    again = f", at start {restarts + 1}" if restarts else ""
    show.stage(f"Hermes is connected after {clock.monotonic() - began:.1f} s{again}")


def _work(world: DemoWorld, show: Show, once: str | None, clock: Clock, acts: Acts) -> int:
    """Do what the demo is for; whatever fails from here on did not fail to start."""
    try:
        return _serve_people(world, show) if once is None else _post_once(world, show, once, clock, acts)
    except BothyError as error:
        raise WatchLost(str(error)) from error


def _serve_people(world: DemoWorld, show: Show) -> int:
    show.stage(f"Open {world.login_url} and write to the agent; Ctrl-C ends everything")
    world.gateway.wait()
    raise _gateway_gone(world, show)


def _post_once(world: DemoWorld, show: Show, text: str, clock: Clock, acts: Acts) -> int:
    """Post one message, do the acts, and show the run until it has ended."""
    person = world.person()
    with closing(person.watch()) as feed:
        thread_id = person.open_thread()
        run_id = person.post(thread_id, text)
        if run_id is None:
            raise WatchLost("the message started no run")
        show.stage("Posted the message")
        actor = Actor(person, show, thread_id, run_id, acts)
        view = _watch(world, show, feed, run_id, clock=clock, actor=actor)
    actor.tell_undone()
    show.result(view, person.answer(thread_id, run_id))
    return 0 if view["run"]["state"] == RunState.COMPLETED else EXIT_FAILED


def _watch(
    world: DemoWorld, show: Show, feed: RunFeed, run_id: str, *, clock: Clock, actor: Actor
) -> dict[str, Any]:
    """Show a run as it changes and return its last view."""
    began = told = clock.monotonic()
    started = running = None
    waits = False
    while (now := clock.monotonic()) - began < RUN_SECONDS:
        change = feed.next(POLL_SECONDS)
        if started is None and running is not None and now - running > QUIET_SECONDS:
            started = running
        if started is not None:
            actor.due(now - started)
        if change is None:
            if now - told > TELL_SECONDS:
                told = now
                _still_working(world, show, now - began, unanswered=waits and actor.out_of_answers)
            continue
        told = now
        if change[0] == "message":
            actor.message(change[1])
        elif change[0] == "run" and change[1]["run"]["id"] == run_id:
            show.run(change[1])
            waits = change[1]["run"]["state"] == RunState.WAITING_INPUT
            running = running or (now if change[1]["run"]["state"] == RunState.RUNNING else None)
            started = started or (now if _shows_work(change[1]["document"]) else None)
            if change[1]["run"]["state"] in ENDED_STATES:
                return change[1]
    raise WatchLost(f"the run has not ended in {RUN_SECONDS:.0f} s")


def _shows_work(box: dict[str, Any]) -> bool:
    return bool(box["steps"] or box["last_text_excerpt"])


def _still_working(world: DemoWorld, show: Show, seconds: float, *, unanswered: bool) -> None:
    if not world.gateway.alive:
        raise _gateway_gone(world, show)
    what = "The run waits for an answer, which --answer LABEL would give" if unanswered else "The run goes on"
    show.stage(f"{what} ({seconds:.0f} s)")


def _gateway_gone(world: DemoWorld, show: Show) -> WatchLost:
    world.gateway.tell_last_words(show.stage)
    return WatchLost("hermes: the gateway ended by itself; its last words were told")


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """The directory of the demo: a temporary one, or the one that is to be kept."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="bothy-demo-", ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    _make_empty(keep)
    yield keep.absolute()


def _make_empty(keep: Path) -> None:
    """Make the directory that is to be kept; one that is there may hold nothing yet.

    Raises:
        ConfigError: It cannot be used.
    """
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if any(keep.iterdir()):
            raise ConfigError("--keep", "the directory is not empty; name a new one")
    except FileExistsError:
        raise ConfigError("--keep", "is no directory; name a new one") from None
    except OSError as error:
        raise ConfigError("--keep", f"the directory cannot be made ({error.strerror})") from None
    if not os.access(keep, os.W_OK | os.X_OK):
        raise ConfigError("--keep", "the directory cannot be written to; name another one")


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Turn whatever asks us to end into what Ctrl-C is, and remember which of them came."""
    came: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = [(number, signal.signal(number, stop)) for number in stop_signals()]
    try:
        yield came
    finally:
        for held, handler in before:
            signal.signal(held, handler)


def _ignore_signals() -> None:
    """Let nothing interrupt the end: it is bounded, and what it leaves out would go on running."""
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
