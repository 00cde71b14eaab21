"""The end of a run's wait on a card: with the evidence of this moment, or not at all.

Layer: flows. A person's answer lets the turn go on and spend, so what it would spend and touch is asked
anew; a run that may not go on is ended instead (docs/protocol.md, sections 10 and 11).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import final
from uuid import UUID

from .bothy_credentials import TokenSource
from .defaults import LOGGER_NAME
from .errors import BothyError, ProblemAnswer, RunEnded
from .run_outbox import MEND_SECONDS, can_be_mended
from .run_stages import START_REFUSALS
from .services import Services
from .wire import ResumeRun, Run
from .wire_words import Reason, ResumeCause

_log = logging.getLogger(LOGGER_NAME)


@final
class RunWait:
    """The waits of one run.

    Args:
        services: The rooms.
        run: The run.
        token: The run's token.
        end_run: Ends the run as failed, when it may not go on.

    Attributes:
        over: Whether the run ends, so that nobody need answer anything any more.
    """

    def __init__(
        self, services: Services, run: Run, token: TokenSource, end_run: Callable[[Reason], None]
    ) -> None:
        self._services = services
        self._run = run
        self._token = token
        self._end_run = end_run
        self.over = False

    async def end(self, card_id: str, cause: ResumeCause, followup: UUID | None = None) -> bool:
        """End the wait on a card; returns whether the run may go on.

        A call that only an operator can help along is made again, with the evidence of that moment.

        Args:
            card_id: The card's `client_msg_id`; one that people never had is nobody's to wait on.
            cause: Why the wait is over.
            followup: The message that answered the card, when one did.
        """
        while (ended := await self._try(card_id, cause, followup)) is None:
            await self._services.clock.sleep(MEND_SECONDS)
        return ended

    async def _try(self, card_id: str, cause: ResumeCause, followup: UUID | None) -> bool | None:
        """Do it once; None when it may succeed later as it is."""
        stored = await self._services.store.card(card_id)
        if stored is None or stored.message_id is None:
            return False
        proof = await self._services.prover.now()
        reason = proof.refusal(self._run.billing_mode, self._run.tool_class)
        if reason is not None:
            self._stop(reason)
            return False
        start = proof.start(self._run.billing_mode)
        body = ResumeRun(
            cause=cause,
            message_id=stored.message_id,
            followup_message_id=followup,
            billing_mode=start.billing_mode,
            billing_evidence=start.billing_evidence,
            tool_class=start.tool_class,
        )
        return await self._resume(body)

    async def _resume(self, body: ResumeRun) -> bool | None:
        try:
            await self._services.api.resume_run(self._run.id, self._token, body)
        except RunEnded:
            self.over = True
        except BothyError as error:
            _log.warning("run %s: a card's wait was not ended: %s", self._run.id, error)
            if can_be_mended(error):
                return None
            reason = START_REFUSALS.get(error.code) if isinstance(error, ProblemAnswer) else None
            if reason is not None:
                self._stop(reason)
        else:
            return True
        return False

    def _stop(self, reason: Reason) -> None:
        self.over = True
        self._end_run(reason)
