"""Whose money the next turn would spend, and what it could touch, asked of Hermes now.

Layer: flows. One question to the runtime serves everybody who asks at the same moment; nothing is
kept for later, because the answer may change between two turns. A question that breaks is answered by
what proves nothing: no mode, and the strongest tools.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from .actual_mode import ActualMode, determine
from .defaults import LOGGER_NAME
from .errors import describe
from .runtime import ResolvedCredential, Runtime
from .tool_class import classify, exceeds
from .wire import StartRun
from .wire_words import BillingMode, KeyType, Reason

T = TypeVar("T")

_log = logging.getLogger(LOGGER_NAME)


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found at one moment.

    Attributes:
        actual: The billing mode and its evidence.
        tool_class: The class of the tools that the next turn can use.
    """

    actual: ActualMode
    tool_class: str

    def spends(self, mode: BillingMode) -> bool:
        """Whether the next turn is proven to spend in this mode; an unknown mode never is."""
        return self.actual.matches(mode)

    def stays_within(self, granted: str) -> bool:
        """Whether the tools of the next turn are within a granted class."""
        return not exceeds(self.tool_class, granted)

    def refusal(self, mode: BillingMode, granted: str) -> Reason | None:
        """Why a run of this mode and class may not go on, None when it may."""
        if not self.spends(mode):
            return Reason.BILLING_MODE_MISMATCH
        if not self.stays_within(granted):
            return Reason.TOOL_CLASS_EXCEEDED
        return None

    def start(self, mode: BillingMode) -> StartRun:
        """The evidence for startRun; only for a mode that `spends` has confirmed."""
        return StartRun(billing_mode=mode, billing_evidence=self.actual.evidence, tool_class=self.tool_class)


class Prover:
    """Asks the runtime, once for all who wait.

    Args:
        runtime: Hermes.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._asking: asyncio.Task[Proof] | None = None

    async def now(self) -> Proof:
        """Return what is true now; joins a question that is already under way."""
        return await asyncio.shield(self.asked())

    def asked(self) -> asyncio.Task[Proof]:
        """Ask, and return the answer's task, which others may share: shield it from a cancellation."""
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="bothy-proof")
            self._asking.add_done_callback(self._answered)
        return self._asking

    def _answered(self, _task: asyncio.Task[Proof]) -> None:
        self._asking = None

    async def _ask(self) -> Proof:
        credential, toolsets = await asyncio.gather(
            _or(self._runtime.resolved_credential, ResolvedCredential(None, KeyType.UNKNOWN)),
            _or(self._runtime.loaded_toolsets, None),
        )
        return Proof(determine(credential), classify(toolsets))


async def _or(ask: Callable[[], Awaitable[T]], unproven: T) -> T:
    """The answer, or what stands for none when the question breaks."""
    try:
        return await ask()
    except Exception as error:  # noqa: BLE001  # whatever broke in Hermes, nothing is proven then
        _log.error("Hermes could not be asked what the next turn may do: %s", describe(error))
        return unproven
