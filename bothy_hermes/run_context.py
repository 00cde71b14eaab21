"""Reading what a turn may know: context, channel configuration, text files.

Layer: flows. It fetches and hands over; what the texts look like is `context`'s subject.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from uuid import UUID

from . import context
from .bothy_api import BothyApi
from .bothy_credentials import TokenSource
from .clock import Clock
from .config import Settings
from .context import FileText
from .context_render import SECRET_BYTES
from .defaults import LOGGER_NAME
from .errors import ProblemAnswer
from .runtime import TurnRequest
from .wire import RunContext, ServedChannelConfig, ThreadView
from .wire_events import Invocation
from .wire_words import RunKind

_log = logging.getLogger(LOGGER_NAME)


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a run starts from.

    Attributes:
        turn: What Hermes is to do.
        thread: The thread as the context showed it.
    """

    turn: TurnRequest
    thread: ThreadView


class ContextReader:
    """Builds the turn's request from what the server knows.

    Args:
        api: The server.
        settings: The configuration (the limit of inlined files).
        clock: Randomness for the secret that data blocks are marked with.
    """

    def __init__(self, api: BothyApi, settings: Settings, clock: Clock) -> None:
        self._api = api
        self._settings = settings
        self._secret = clock.random_bytes(SECRET_BYTES)
        self._channels: dict[UUID, ServedChannelConfig] = {}

    def forget_channels(self) -> None:
        """The server's settings changed: read channel configurations again when they are needed."""
        self._channels.clear()

    async def read(self, invocation: Invocation, token: TokenSource) -> Prepared:
        """Fetch everything and build the turn.

        Raises:
            ProblemAnswer: The server refuses the context.
            TriggerMissing: The context does not hold the message that triggered the run.
        """
        run = invocation.run
        found = await self._api.get_run_context(run.id, token)
        texts = context.build_texts(
            found,
            trigger_id=invocation.message_id,
            channel=await self._channel(invocation, token),
            files=await self._files(found, invocation.message_id, token),
            secret=self._secret,
        )
        turn = TurnRequest(
            run_id=run.id,
            # A guest's session is the run's own: fresh by construction, the operator's survives.
            thread_id=run.thread_id if run.kind is RunKind.OPERATOR else run.id,
            channel_id=run.channel_id,
            user_id=run.run_starter,
            user_name=found.starter.display_name,
            message_id=invocation.message_id,
            user_text=texts.user_text,
            system_part=texts.system_part,
        )
        return Prepared(turn, found.thread)

    async def message(self, run_id: UUID, message_id: UUID, token: TokenSource) -> str | None:
        """Fetch what one message of a run's thread says, None when the thread does not show it.

        Raises:
            ProblemAnswer: The server refuses the context.
        """
        found = await self._api.get_run_context(run_id, token)
        return context.message_text(found, message_id, secret=self._secret)

    async def _channel(self, invocation: Invocation, token: TokenSource) -> ServedChannelConfig | None:
        run = invocation.run
        if run.kind is not RunKind.OPERATOR:
            return None
        known = self._channels.get(run.channel_id)
        if known is None or known.settings_version < invocation.settings_version:
            known = await self._api.get_served_channel_config(run.channel_id, token)
            self._channels[run.channel_id] = known
        return known

    async def _files(self, found: RunContext, trigger_id: UUID, token: TokenSource) -> dict[UUID, FileText]:
        limit = self._settings.attachment_text_max_bytes
        texts: dict[UUID, FileText] = {}
        for file_id in context.files_to_fetch(found, trigger_id, limit_bytes=limit):
            try:
                # One byte more than the limit tells whether the file is longer.
                data = await self._api.download_file(file_id, token, limit + 1)
            except ProblemAnswer as problem:
                _log.info("file %s is not inlined: %s", file_id, problem.code or problem.status)
            else:
                texts[file_id] = context.decode_file(data, limit)
        return texts
