"""Which Hermes session a run's turn uses, and what the server is told about it.

Layer: flows. Before the turn the thread is brought onto the session that the server wants; after it
the session that the turn really ran on is reported, and a title that the model found is passed on.
A guest's session is its run's own: nothing of it is reported (docs/protocol.md, section 8).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from .clock import Clock
from .defaults import LOGGER_NAME
from .plain_text import one_line
from .run_calls import session_call, title_call
from .runtime import MAX_ANCESTORS, Runtime, SessionSwitch, TurnRequest
from .store import Change, Store, ThreadSession
from .wire import ReportAgentSession, ThreadView
from .wire_events import Invocation
from .wire_words import MAX_TITLE_CHARS, BindFailure, RunKind, SessionMode, TitleSource

_log = logging.getLogger(LOGGER_NAME)

TITLE_SECONDS = 2.0
"""How long the end of a first run waits for the model's title; it is asked for beside the turn."""

TITLE_POLL_SECONDS = 0.1
"""Between two looks for the title: Hermes announces it to nobody."""

SESSION_SENTENCES: Mapping[SessionSwitch, str] = {
    SessionSwitch.MISSING: "The session that was named does not exist (any more): a new one was begun.",
    SessionSwitch.NO_ID: "A session is named by its ID, not by a title or a number: a new one was begun.",
    SessionSwitch.FOREIGN: "The session that was named belongs to another platform: a new one was begun.",
    SessionSwitch.NOT_TAKEN: "Hermes did not go on with the session that was named: a new one was begun.",
}
"""What people read when the session that they named could not be continued."""

REFUSED_SENTENCE = (
    "Hermes kept the thread's old session although the run was not to go on with it: nothing was done."
)
"""What people read when a run ends because of that."""


class RunSession:
    """The session side of one run.

    Args:
        runtime: Hermes.
        store: Where a thread's session is remembered.
        clock: Waiting, for the title.
        invocation: What the server wants.
        thread: The thread as the context showed it.
    """

    def __init__(
        self, runtime: Runtime, store: Store, clock: Clock, invocation: Invocation, thread: ThreadView
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._clock = clock
        self._run = invocation.run
        self._wanted = invocation.agent_session
        self._mode = SessionMode(invocation.session_mode)
        self._thread = thread
        self._switch = SessionSwitch.KEPT

    async def prepare(self, turn: TurnRequest) -> str | None:
        """Bring the thread onto the wanted session; returns what people should know about it.

        Raises:
            SessionRefused: The turn must not take place (`REFUSED_SENTENCE`).
        """
        if self._run.kind is RunKind.OPERATOR:
            self._switch = await self._runtime.use_session(
                turn, self._mode, self._wanted.external_session_ref
            )
        return SESSION_SENTENCES.get(self._switch)

    async def closing_changes(self, session_id: str | None, *, completed: bool) -> Sequence[Change]:
        """What is to be stored with the run's end: the report, the title, the thread's session.

        Args:
            session_id: The session that the turn ran on, None when no turn ran.
            completed: Whether the run completed; only then the conversation is titled.
        """
        if self._run.kind is not RunKind.OPERATOR or session_id is None:
            return ()
        parent = await self._runtime.session_parent(session_id)
        changes: list[Change] = [ThreadSession(self._run.thread_id, session_id, parent)]
        report = await self._report(session_id, parent)
        if report is not None:
            changes.append(session_call(self._run.id, self._run.thread_id, self._wanted.version, report))
        title = await self._title(session_id) if completed else None
        if title is not None:
            changes.append(title_call(self._run.id, self._run.thread_id, self._thread.version, title))
        return changes

    async def _report(self, session_id: str, parent: str | None) -> ReportAgentSession | None:
        """The report, None when the server knows already what there is to say."""
        missing = self._switch.in_vain
        started = missing or self._switch is SessionSwitch.NEW or await self._is_fresh(session_id, parent)
        # A session that a person named is the thread's once it is reported, not before.
        known = session_id == self._wanted.external_session_ref and self._mode is not SessionMode.BIND
        if known and not started:
            return None
        return ReportAgentSession(
            external_session_ref=session_id,
            started=started,
            bind_failed=BindFailure.SESSION_MISSING if missing and self._mode is SessionMode.BIND else None,
        )

    async def _is_fresh(self, session_id: str, parent: str | None) -> bool:
        """Whether the turn began a session, rather than going on with one or with its descendant."""
        if self._switch is SessionSwitch.BOUND:
            return False
        before = await self._store.get_session(self._run.thread_id)
        known = {self._wanted.external_session_ref, before.session_id if before else None}
        ancestor: str | None = session_id
        for _ in range(MAX_ANCESTORS):
            if ancestor is None or ancestor in known:
                return ancestor is None
            ancestor = parent if ancestor == session_id else await self._runtime.session_parent(ancestor)
        return True

    async def _title(self, session_id: str) -> str | None:
        """The model's title of a conversation that this run began, if it comes in time."""
        if self._mode is not SessionMode.NEW or self._thread.title_source is not TitleSource.AUTO:
            return None
        if not self._runtime.capabilities.title:
            return None
        end = self._clock.monotonic() + TITLE_SECONDS
        while True:
            title = await self._runtime.session_title(session_id)
            if title or self._clock.monotonic() >= end:
                return one_line(title, MAX_TITLE_CHARS) if title else None
            await self._clock.sleep(TITLE_POLL_SECONDS)
