"""The live box: what people watch of a turn, built from what Hermes reports.

Layer: rules. Keeps the steps, the status line and the last text of one run, within the document's
limits (section 7 of docs/protocol.md). What a patch must say to bring the server's document there is
`box_diff`'s subject; when it is sent is the flow's.

Hermes tells the end of a tool twice at most: it clears the sentence that the tool set, and it reports
the call's end with its result. Tools of one batch overlap, a cleared sentence does not say whose it
was, and either report may be missing or come first. So a clearing closes the step that was opened
first, a result closes the step with its title, and neither closes what the other has already closed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from .box_diff import BoxContent, diff
from .plain_text import one_line, repair
from .redaction import redact
from .runtime import ToolEnd
from .wire import Step
from .wire_words import (
    MAX_EXCERPT_CHARS,
    MAX_STATUS_CHARS,
    MAX_STEP_TITLE_CHARS,
    MAX_STEPS,
    StepKind,
    StepState,
)

__all__ = ["BoxContent", "LiveBox", "diff"]

MILLISECOND = 1000
"""Microseconds. Times are kept in whole milliseconds: a server that stores no finer ones would
otherwise return a document that differs from the wanted one for ever."""


MAX_RUNNING = 50
"""Steps that run at once. More than any batch of tools has: beyond it nobody reports their ends, and
the oldest is taken to have ended."""


@dataclass(slots=True, eq=False)
class _Open:
    """A step while it can still change."""

    id: str
    title: str = field(repr=False)
    started_at: datetime
    state: StepState = StepState.RUNNING
    finished_at: datetime | None = None

    def close(self, state: StepState, moment: datetime) -> None:
        self.state = state
        self.finished_at = moment

    def as_step(self) -> Step:
        return Step(
            id=self.id,
            kind=StepKind.TOOL_CALL,
            title=self.title,
            state=self.state,
            started_at=self.started_at,
            finished_at=self.finished_at,
        )


@dataclass(slots=True)
class _Folded:
    """The oldest finished steps as one, so that a long run keeps to the limit."""

    id: str
    started_at: datetime
    finished_at: datetime
    count: int = 0
    failed: int = 0

    def add(self, step: _Open) -> None:
        self.count += 1
        self.failed += step.state is StepState.FAILED
        self.started_at = min(self.started_at, step.started_at)
        self.finished_at = max(self.finished_at, step.finished_at or step.started_at)

    def as_step(self) -> Step:
        failures = f", {self.failed} failed" if self.failed else ""
        return Step(
            id=self.id,
            kind=StepKind.TOOL_CALL,
            title=f"{self.count} earlier steps{failures}",
            state=StepState.COMPLETED,
            started_at=self.started_at,
            finished_at=self.finished_at,
        )


class LiveBox:
    """The live box of one run.

    Args:
        now: The wall time.
        new_step_id: Makes an ID that no other step of the run has.
    """

    def __init__(self, now: Callable[[], datetime], new_step_id: Callable[[], str]) -> None:
        self._now = now
        self._new_step_id = new_step_id
        self._steps: list[_Open] = []
        self._running: dict[str, _Open] = {}
        self._folded: _Folded | None = None
        self._excerpt: str | None = None
        self._note: str | None = None
        self._waiting: str | None = None
        self._ended = False
        self._forget_signals()

    def _forget_signals(self) -> None:
        self._clears_owed = 0
        """Clearings still to come for steps that their results have closed."""
        self._cleared: deque[_Open] = deque(maxlen=MAX_RUNNING)
        """Steps that a clearing closed and whose results may still come."""
        self._guessed: deque[_Open] = deque(maxlen=MAX_RUNNING)
        """Steps closed by something that named no step; their own results correct them."""

    # What Hermes reports --------------------------------------------------------------------------

    def status(self, text: str | None) -> None:
        """A tool started, with a sentence about it; None or nothing readable clears a sentence."""
        if self._ended:
            return
        title = _title(text)
        if title:
            self._open(title)
        else:
            self._clear()

    def tool_end(self, end: ToolEnd) -> None:
        """A tool call ended with a result.

        A call that nobody announced becomes a step that has already ended, if it has a title.
        """
        if self._ended:
            return
        title = _title(end.title)
        state = StepState.FAILED if end.failed else StepState.COMPLETED
        step = self._ended_step(title)
        if step is not None:
            self._close(step, state)
        elif title:
            self._add(_Open(self._new_step_id(), title, self._moment()), state)

    def draft(self, text: str) -> None:
        """The model's text so far; its end is shown."""
        if not self._ended:
            self._excerpt = repair(text[-MAX_EXCERPT_CHARS:]) or None

    def interim(self) -> None:
        """The text so far became a message of its own; the tools it speaks of may be running."""
        if not self._ended:
            self._excerpt = None

    def answer(self) -> None:
        """The text so far became the answer; a model that answers waits for no tool."""
        self.interim()
        running = list(self._running.values())
        for step in running:
            self._close(step, StepState.COMPLETED)
        self._forget_signals()
        self._guessed.extend(running)

    def prompt(self, title: str) -> None:
        """Hermes asked for something that nobody can answer: a step that failed."""
        line = _title(title)
        if line and not self._ended:
            self._add(_Open(self._new_step_id(), line, self._moment()), StepState.FAILED)

    # What the adapter itself says -----------------------------------------------------------------

    def note(self, line: str) -> None:
        """Something people should know of the run; shown while no tool has more to say, and after."""
        self._note = one_line(line, MAX_STATUS_CHARS) or None

    def waiting(self, line: str | None) -> None:
        """What the run waits for, None when it goes on; goes before everything else.

        A run that is over waits for nothing, whatever card of it is still being closed.
        """
        if not self._ended:
            self._waiting = one_line(line, MAX_STATUS_CHARS) or None if line else None

    def end(self, *, failed: bool) -> None:
        """The turn ended: what is still running ends with it, and nothing changes any more but notes."""
        for step in list(self._running.values()):
            self._close(step, StepState.FAILED if failed else StepState.COMPLETED)
        self._waiting = None
        self._ended = True

    # What people see ------------------------------------------------------------------------------

    @property
    def content(self) -> BoxContent:
        """The document as it should be now."""
        folded = () if self._folded is None else (self._folded.as_step(),)
        steps = (*folded, *(step.as_step() for step in self._steps))
        return BoxContent(self._status_line(), steps, self._excerpt)

    def _status_line(self) -> str | None:
        """What the run waits for, else the youngest running tool, else the last note."""
        if self._waiting is not None or not self._running:
            return self._waiting or self._note
        return next(reversed(self._running.values())).title

    # Steps ----------------------------------------------------------------------------------------

    def _open(self, title: str) -> None:
        if len(self._running) >= MAX_RUNNING:
            self._close_oldest()
        step = _Open(self._new_step_id(), title, self._moment())
        self._running[step.id] = step
        self._add(step, StepState.RUNNING)

    def _add(self, step: _Open, state: StepState) -> None:
        if state is not StepState.RUNNING:
            step.close(state, step.started_at)
        self._steps.append(step)
        self._fold()

    def _fold(self) -> None:
        """Keep to the limit: the oldest finished step joins the others that were folded."""
        while len(self._steps) + (self._folded is not None) > MAX_STEPS:
            oldest = next(one for one in self._steps if one.id not in self._running)
            self._steps.remove(oldest)
            if self._folded is None:
                self._folded = _Folded(self._new_step_id(), oldest.started_at, oldest.started_at)
            self._folded.add(oldest)

    def _clear(self) -> None:
        if self._clears_owed:
            self._clears_owed -= 1
        elif self._running:
            self._cleared.append(self._close_oldest())

    def _close_oldest(self) -> _Open:
        """Close the step that was opened first, for want of a better guess."""
        step = next(iter(self._running.values()))
        self._close(step, StepState.COMPLETED)
        self._guessed.append(step)
        return step

    def _ended_step(self, title: str) -> _Open | None:
        """The step that a result belongs to, None when nobody announced it."""
        guessed = _titled(self._guessed, title)
        if guessed is not None:
            self._settle(guessed)
            return guessed
        named = _titled(self._running.values(), title)
        if named is not None:
            self._clears_owed += 1
            return named
        if self._cleared:
            oldest = self._cleared[0]
            self._settle(oldest)
            return oldest
        if self._running:
            oldest = next(iter(self._running.values()))
            self._clears_owed += 1
            self._guessed.append(oldest)
            return oldest
        return None

    def _settle(self, step: _Open) -> None:
        """A step's own result is here: nothing else may correct it."""
        for guesses in (self._cleared, self._guessed):
            if step in guesses:
                guesses.remove(step)

    def _close(self, step: _Open, state: StepState) -> None:
        self._running.pop(step.id, None)
        step.close(state, self._moment())

    def _moment(self) -> datetime:
        moment = self._now()
        return moment.replace(microsecond=moment.microsecond // MILLISECOND * MILLISECOND)


def _title(text: str | None) -> str:
    """A sentence of Hermes as a step's title: it may name a command, and everybody reads it."""
    return one_line(redact(text), MAX_STEP_TITLE_CHARS) if text else ""


def _titled(steps: Iterable[_Open], title: str) -> _Open | None:
    """The first of the steps with a title."""
    return next((step for step in steps if step.title == title), None)
