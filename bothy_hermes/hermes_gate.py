"""Whether a model request may leave: judged on the thread on which Hermes is about to send it.

Layer: hermes. Hermes waits for its hooks before it sends, so this room blocks that thread, for a
bounded time, until it is known whose money the request spends. A request that pays whom the run's
evidence names costs a comparison and asks nobody. What proves nothing is refused: another mode, an
unknown one, an error, an answer that comes too late. A gate that has refused stays shut.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import final
from uuid import UUID

from . import hermes_versions
from .actual_mode import determine
from .defaults import LOGGER_NAME
from .errors import describe
from .hermes_credential import pays_same
from .runtime import ResolvedCredential, Spending
from .turn_facts import Payee

_log = logging.getLogger(LOGGER_NAME)

GATE_SECONDS = 3.0
"""How long a request waits to be judged; as long as Hermes may think about any credential."""

Ask = Callable[[Payee], "Future[ResolvedCredential]"]
"""Begins to find out with which kind of credential somebody is paid; must not block."""


@final
class RequestGate:
    """Judges the model requests of one turn: its own, its subagents' and Hermes' own beside it.

    Args:
        run_id: The run, for the log.
        spends: What the run's evidence says; without it nothing may leave.
        ask: Who is asked about everybody else, once per turn and payee.
        halt: Interrupts the turn's agents; done when a refusal is given, on the same thread.
        seconds: How long a request may wait.
    """

    def __init__(
        self,
        run_id: UUID,
        spends: Spending | None,
        ask: Ask,
        halt: Callable[[], None],
        seconds: float = GATE_SECONDS,
    ) -> None:
        self._run_id = run_id
        self._spends = spends
        self._ask = ask
        self._halt = halt
        self._seconds = seconds
        self._lock = threading.Lock()
        self._asked: dict[Payee, Future[ResolvedCredential]] = {}
        self._shut = False

    def covers(self, payee: Payee) -> bool:
        """Tell whether somebody may be paid; when not, nobody is any more."""
        if not self._shut and self._is_covered(payee):
            return True
        self._shut = True
        return False

    def admits(self, payee: Payee) -> bool:
        """Tell whether a request may leave; when it may not, the turn has been interrupted."""
        again = self._shut
        if self.covers(payee):
            return True
        try:
            self._halt()
        except Exception as error:  # noqa: BLE001  # whatever Hermes raises, the run still ends
            # A second time the agent may be gone: Hermes asks for a title all the same.
            level = logging.DEBUG if again else logging.ERROR
            _log.log(
                level, "run %s: the agent was not interrupted at once: %s", self._run_id, describe(error)
            )
        return False

    def _is_covered(self, payee: Payee) -> bool:
        try:
            covered = self._spends is not None and self._pays_alike(payee, self._spends)
            why = "it is not proven to spend in the run's mode"
        except Exception as error:  # noqa: BLE001  # an error, or no answer in time: nothing is proven
            covered, why = False, f"whose money it spends cannot be told ({describe(error)})"
        if not covered:
            _log.warning("run %s: a request to %s is stopped: %s", self._run_id, payee.provider, why)
        return covered

    def _pays_alike(self, payee: Payee, spends: Spending) -> bool:
        if payee.key_type is not None:
            # Hermes may change to another key of the same provider, in the middle of a turn.
            held = ResolvedCredential(payee.provider, payee.key_type)
            if not determine(held).matches(spends.mode):
                return False
        if pays_same(payee, spends):
            return True
        return determine(self._asking(payee).result(self._seconds)).matches(spends.mode)

    def _asking(self, payee: Payee) -> Future[ResolvedCredential]:
        with self._lock:
            if payee not in self._asked:
                self._asked[payee] = self._ask(payee)
            return self._asked[payee]


def gate_seconds() -> float:
    """How long a request may wait here: well below the time after which Hermes gives a hook up and sends."""
    patience = hermes_versions.hook_seconds()
    return GATE_SECONDS if patience is None else min(GATE_SECONDS, patience / 2)
