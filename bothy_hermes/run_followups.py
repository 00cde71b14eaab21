"""What becomes of a person's text that comes while a run works.

Layer: flows. A text is handed into the turn only where the turn is certain to take it; everything else
stays at the server, which opens the next run from it. A text counts as absorbed when the model was
shown it, never because it was handed over (docs/protocol.md, section 7).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from .bothy_credentials import TokenSource
from .defaults import LOGGER_NAME
from .run_calls import followup_call
from .run_outbox import RunOutbox
from .services import Services
from .store import Change
from .wire_words import FollowupState

_log = logging.getLogger(LOGGER_NAME)


class RunFollowups:
    """The texts of one run.

    Args:
        services: The rooms.
        run_id: The run.
        token: The run's token.
        outbox: Where the reports go.
    """

    def __init__(self, services: Services, run_id: UUID, token: TokenSource, outbox: RunOutbox) -> None:
        self._services = services
        self._run_id = run_id
        self._token = token
        self._outbox = outbox
        self._handed: set[UUID] = set()
        self._absorbed: set[UUID] = set()
        self._reported: set[UUID] = set()

    async def text_of(self, message_id: UUID) -> str | None:
        """Read a person's text, None when the thread does not show it."""
        return await self._services.context.message(self._run_id, message_id, self._token)

    async def hand_in(self, message_id: UUID, text: str) -> bool:
        """Hand a text into the running turn; returns whether Hermes took it."""
        if not await self._services.runtime.steer(self._run_id, text, message_id):
            return False
        self._handed.add(message_id)
        if message_id in self._reported:
            return True  # the answer to it was faster than we are: nothing comes before the last word
        await self._outbox.put(followup_call(self._run_id, message_id, FollowupState.DELIVERED))
        return True

    def seen(self, message_id: UUID) -> None:
        """The model was shown a text."""
        self._absorbed.add(message_id)

    def absorbed_changes(self) -> Sequence[Change]:
        """The reports of texts that the model was shown, each once.

        They belong into the commit of the answer that takes the texts up: after a crash between the two the
        server would have them answered again.
        """
        fresh = sorted(self._absorbed - self._reported)
        self._reported.update(fresh)
        return [followup_call(self._run_id, message_id, FollowupState.ABSORBED) for message_id in fresh]

    def closing_changes(self) -> Sequence[Change]:
        """The reports that must reach the server before the run's end."""
        lost = self._handed - self._absorbed
        if lost:
            _log.info("run %s: %d texts were not taken and open the next run", self._run_id, len(lost))
        return self.absorbed_changes()
