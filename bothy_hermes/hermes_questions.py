"""What Hermes is asked about the next turn: whose money it spends and which tools it has.

Layer: hermes. Each question is asked on a thread, in a copy of the context that `connect` had, because
the profile's home is a context variable; one of a kind at a time, and never for longer than a deadline.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from . import hermes_config, hermes_credential, hermes_versions
from .clock import Clock, within
from .defaults import LOGGER_NAME
from .runtime import ResolvedCredential
from .turn_facts import Payee

_log = logging.getLogger(LOGGER_NAME)

T = TypeVar("T")

ANSWER_SECONDS = 3.0
"""How long Hermes may think about credentials and toolsets; later is unknown."""


class ProfileQuestions:
    """The questions about one profile; made in the context of `connect`.

    Args:
        platform_key: The platform's name in Hermes.
        home: The home of the profile.
        clock: Time.
    """

    def __init__(self, platform_key: str, home: str, clock: Clock) -> None:
        self._platform_key = platform_key
        self._home = home
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._asking: dict[str, asyncio.Task[Any]] = {}
        self._told: dict[str, str | None] = {}

    async def resolved_credential(self) -> ResolvedCredential:
        """Tell which kind of credential the next turn spends with."""
        found = await self._ask("credential", hermes_credential.resolve_credential)
        if found is None:
            return hermes_credential.UNKNOWN_CREDENTIAL
        self._tell("mode", found.problem)
        return found.credential

    def credential_of(self, payee: Payee) -> Future[ResolvedCredential]:
        """Begin to find out with which kind of credential a request would pay; on whatever thread."""
        answer: Future[ResolvedCredential] = Future()

        def ask() -> None:
            try:
                found = self._in_profile(lambda: hermes_credential.credential_of(payee))
            except BaseException as error:  # noqa: BLE001  # whatever ends this thread, somebody waits
                answer.set_exception(error)
            else:
                answer.set_result(found)

        # A thread of its own: one that Hermes keeps waiting must keep nobody else waiting.
        context = self._context.copy()
        threading.Thread(target=context.run, args=(ask,), name="bothy-payee", daemon=True).start()
        return answer

    async def loaded_toolsets(self) -> frozenset[str] | None:
        """Tell which toolsets and MCP servers the next turn can use."""
        return await self._ask("toolsets", lambda: hermes_config.load_toolsets(self._platform_key))

    async def _ask(self, what: str, question: Callable[[], T]) -> T | None:
        task = self._asking.get(what)
        if task is None or task.done():
            # The task inherits the context in which it is made, and the thread that of the task.
            asking = asyncio.to_thread(self._in_profile, question)
            task = self._context.copy().run(self._loop.create_task, asking)
            self._asking[what] = task
        try:
            if not await within(self._clock, asyncio.shield(task), ANSWER_SECONDS):
                self._tell(what, f"no answer within {ANSWER_SECONDS:.0f} s")
                return None
            answer: T = task.result()
        except Exception as error:  # noqa: BLE001  # whatever Hermes raises, the answer is unknown
            self._tell(what, f"Hermes raised {type(error).__name__}")
            return None
        self._tell(what, None)
        return answer

    def _in_profile(self, question: Callable[[], T]) -> T:
        with hermes_versions.profile_scope(self._home):
            return question()

    def _tell(self, what: str, problem: str | None) -> None:
        """Log why something is unknown, once until it changes: it is asked for at every heartbeat."""
        if problem is not None and self._told.get(what) != problem:
            _log.warning("%s: %s unknown: %s", self._platform_key, what, problem)
        self._told[what] = problem
