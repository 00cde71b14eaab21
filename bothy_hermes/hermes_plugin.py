"""The platform as Hermes sees it.

Layer: hermes. Loaded only when Hermes builds the adapter, because its base class is Hermes' own. Every
method keeps Hermes' signature and says where the call goes; what it means is decided in
`hermes_runtime` and below.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, SendResult

from . import hermes_config, hermes_contract, hermes_control, hermes_held, hermes_hooks, hermes_versions
from .bothy_credentials import load_agent_token
from .bothy_loop import AdapterLoop
from .clock import system_clock
from .config import Settings, load_settings
from .defaults import CONTROL_SENDER, LOGGER_NAME
from .errors import BothyError, ConfigError, StateLocked, describe
from .hermes_agents import AgentsAtWork
from .hermes_asks import AsksPeople
from .hermes_contract import Need
from .hermes_control import Command
from .hermes_files import SendsNoFiles
from .hermes_lock import TokenLock
from .hermes_runtime import HermesRuntime
from .hermes_sessions import HermesSessions
from .hermes_threads import REFUSED
from .runtime import BusyMode, TurnRequest

_log = logging.getLogger(LOGGER_NAME)

STOP_SECONDS = 4.5
"""How long `disconnect` waits for the adapter; Hermes gives it 5."""

CANCEL_SECONDS = 0.3
"""How long a task that was cancelled may take to notice."""


class ServerPlatform(AgentsAtWork, AsksPeople, SendsNoFiles, BasePlatformAdapter):  # type: ignore[misc]  # Hermes ships no types
    """A Bothy server as a messaging platform of Hermes.

    Args:
        config: Hermes' `PlatformConfig`.
        platform_key: The platform's name in Hermes.
    """

    supports_status_text = True
    supports_code_blocks = True
    supports_async_delivery = False
    interactive_resume = False
    MAX_MESSAGE_LENGTH = 1_000_000_000
    """Hermes counts characters and splits; the adapter splits, by the server's bytes."""

    def __init__(self, config: Any, platform_key: str) -> None:
        super().__init__(config=config, platform=Platform(platform_key))
        self._key = platform_key
        self._clock = system_clock()
        self._bothy: HermesRuntime | None = None
        self._hooks: hermes_hooks.HookReceiver | None = None
        self._serving: asyncio.Task[None] | None = None
        self._adapter: AdapterLoop | None = None
        self._lock: TokenLock | None = None

    @property
    def enforces_own_access_policy(self) -> bool:
        """The server decides who may speak; Hermes' `dm_policy: allowlist` then trusts us."""
        return True

    # Life.

    async def connect(self, *, is_reconnect: bool = False) -> bool:  # noqa: ARG002  # Hermes' signature
        """Begin to serve; the server is reached once Hermes has finished its startup restore."""
        lacking = hermes_contract.lacking({Need.CONNECT}, {"platform": self})
        if lacking:
            self._set_fatal_error("bothy", f"this Hermes lacks {', '.join(lacking)}", retryable=False)
            return False
        home = hermes_hooks.home_of_context()
        try:
            settings = self._settings()
            self._lock = TokenLock(load_agent_token(settings.token_file), self._key, home)
            self._lock.acquire()
        except BothyError as error:
            self._lock = None
            self._set_fatal_error("bothy", str(error), retryable=isinstance(error, StateLocked))
            return False
        runtime = HermesRuntime(self, self._key, home, self._clock)
        self._bothy = runtime
        threads = runtime.threads
        self._hooks = hermes_hooks.HookReceiver(
            self._key,
            home,
            threads.hear,
            threads.held,
            admit=runtime.admit,
            thread_of_subagent=runtime.thread_of_subagent,
        )
        self._adapter = AdapterLoop(
            settings,
            runtime,
            self._clock,
            Path(home) / self._key,
            opened=self._takes_messages,
            lacking=self._lacking,
        )
        self._serving = asyncio.create_task(self._serve(self._adapter))
        self._mark_connected()
        return True

    def _settings(self) -> Settings:
        settings = load_settings(dict(self.config.extra or {}))
        if settings.platform_key != self._key:
            raise ConfigError("hermes_adapter.platform_key", f"the plugin is installed as {self._key}")
        return settings

    def _takes_messages(self) -> bool:
        """Tell whether Hermes has finished its startup restore: before that, it swallows messages."""
        return not getattr(self.gateway_runner, "_startup_restore_in_progress", False)

    async def _lacking(self) -> Sequence[str]:
        """Find out what Hermes lacks of what a turn needs; beside the loop, because it imports."""
        runner = self.gateway_runner
        named = {
            "platform": self,
            "runner": runner,
            "store": getattr(runner, "session_store", None),
            "database": getattr(runner, "_session_db", None),
        }
        there = {name: one for name, one in named.items() if one is not None}
        return await asyncio.to_thread(hermes_contract.lacking, {Need.SERVE}, there)

    async def _serve(self, adapter: AdapterLoop) -> None:
        """Serve until the end; an end that another start can mend is Hermes' to try again.

        One that only the operator can mend is written where Hermes shows the platform's state, and no
        more: reporting it would have Hermes stop the whole gateway when no other platform is left.
        """
        try:
            await adapter.run()
        except StateLocked as error:
            await self._stopped(str(error), retry=True)
        except BothyError as error:
            await self._stopped(str(error), retry=False)
        except Exception as error:  # noqa: BLE001  # a task that dies in silence is a platform that is gone
            # Without the error's own text and traceback, which could show what somebody wrote.
            await self._stopped(f"a fault of its own: {describe(error)}", retry=True)

    async def _stopped(self, problem: str, *, retry: bool) -> None:
        _log.error("%s: stopped: %s", self._key, problem)
        self._set_fatal_error("bothy", problem, retryable=retry)
        if retry:
            await self._notify_fatal_error()

    async def cancel_background_tasks(self) -> None:
        """Release what turns wait for, before Hermes waits for the turns; it has interrupted them."""
        if self._bothy is not None:
            self._bothy.release_all()
        await super().cancel_background_tasks()

    async def disconnect(self) -> None:
        """Stop serving."""
        serving, self._serving = self._serving, None
        if self._adapter is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._adapter.stop(), STOP_SECONDS)
        if serving is not None and serving is not asyncio.current_task():
            serving.cancel()
            await asyncio.wait({serving}, timeout=CANCEL_SECONDS)
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        self._mark_disconnected()

    async def get_chat_info(self, chat_id: str) -> dict[str, Any]:
        """Describe a chat; Bothy's names are not Hermes' to know."""
        return {"name": chat_id, "type": "dm"}

    # What the runtime needs (`hermes_platform.Platform`).

    @property
    def busy_mode(self) -> BusyMode | None:
        """What Hermes does with a text during a turn of this profile."""
        try:
            source = self.build_source(chat_id=self._key, user_id=CONTROL_SENDER)
            return hermes_config.busy_mode(self.gateway_runner, source)
        except Exception as error:  # noqa: BLE001  # a heartbeat asks, and has to say what Hermes lacks
            _log.error("%s: the busy mode is unknown: %s", self._key, describe(error))
            return None

    @property
    def sessions(self) -> HermesSessions:
        """Hermes' sessions of this profile."""
        return HermesSessions(self.gateway_runner, self._key)

    def turn_event(self, turn: TurnRequest) -> Any:
        """Build Hermes' event of a turn; a direct message, so that the text stays as it is."""
        return self._event(turn, turn.user_text, turn.message_id)

    def text_event(self, turn: TurnRequest, text: str, message_id: UUID) -> Any:
        """Build Hermes' event of a text that comes while the turn runs."""
        return self._event(turn, text, message_id)

    def _event(self, turn: TurnRequest, text: str, message_id: UUID) -> Any:
        source = self._source(turn, str(message_id), str(turn.user_id), turn.user_name)
        return hermes_versions.message_event(
            text=text, source=source, message_id=str(message_id), channel_prompt=turn.system_part
        )

    def turn_source(self, turn: TurnRequest) -> Any:
        """Return Hermes' source of the turn's message."""
        return self._source(turn, str(turn.message_id), str(turn.user_id), turn.user_name)

    def _source(self, turn: TurnRequest, message_id: str, user_id: str, user_name: str | None = None) -> Any:
        return self.build_source(
            chat_id=str(turn.channel_id),
            chat_type="dm",
            user_id=user_id,
            user_name=user_name,
            thread_id=str(turn.thread_id),
            message_id=message_id,
        )

    async def hand_in(self, event: Any) -> bool | None:
        """Give Hermes an event."""
        await self.handle_message(event)
        return hermes_versions.was_accepted(event)

    async def command(
        self, turn: TurnRequest, command: Command, message_id: str, reference: str | None = None
    ) -> None:
        """Give Hermes a command of the adapter's own for a turn's thread."""
        source = self._source(turn, message_id, CONTROL_SENDER)
        await self.handle_message(hermes_control.control_event(command, source, message_id, reference))

    def is_busy(self, turn: TurnRequest) -> bool:
        """Tell whether Hermes still guards the turn's thread."""
        return self.session_key(turn) in self._active_sessions

    def session_key(self, turn: TurnRequest) -> str:
        """Return Hermes' key of the turn's thread."""
        from gateway.session import build_session_key

        event = self.turn_event(turn)
        own = getattr(self, "_event_session_key", None)
        return str(own(event) if own is not None else build_session_key(event.source))

    def release_prompts(self, turn: TurnRequest) -> None:
        """Have nobody answer what the turn's thread waits for any more."""
        hermes_control.release_prompts(self.session_key(turn))

    def drop_held(self, turn: TurnRequest, agent: Any | None, message_ids: Collection[str]) -> None:
        """Take back texts of messages that Hermes still holds."""
        hermes_held.drop(agent, self, self.session_key(turn), message_ids)

    # What Hermes tells.

    def hear(self, name: str, payload: Mapping[str, Any]) -> None:
        """Take a hook call; on whatever thread Hermes is."""
        if self._hooks is not None:
            self._hooks.hear(name, payload)

    def set_status_text(self, chat_id: str, text: str | None) -> None:  # noqa: ARG002  # Hermes' signature
        """Take a status sentence; called on a worker thread, with the thread only in the context."""
        if self._bothy is not None:
            self._bothy.threads.hear_status(hermes_hooks.thread_of_context(), text)

    async def on_processing_start(self, event: Any) -> None:
        """Hermes begins with a message."""
        if self._bothy is not None:
            self._bothy.threads.processing_started(event.message_id)

    async def on_processing_complete(self, event: Any, outcome: Any) -> None:
        """Hermes is done with a message."""
        if self._bothy is not None:
            cancelled = getattr(outcome, "value", None) == "cancelled"
            self._bothy.processing_complete(event.message_id, cancelled=cancelled)

    async def send(
        self,
        chat_id: str,
        content: str,
        reply_to: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Take a text.

        A success as well when it is nobody's to read: what fails Hermes sends again, and again. But a
        text that somebody counts on, of a schedule or for another thread, was not delivered, and Hermes
        is told so.
        """
        if self._bothy is None:
            return SendResult(success=True)
        message_id, refused = await self._bothy.threads.sent(
            str(chat_id), content, reply_to, metadata, speaker=hermes_hooks.thread_of_context()
        )
        if refused and not self._is_home(chat_id):
            return SendResult(success=False, error=REFUSED)
        return SendResult(success=True, message_id=message_id)

    def _is_home(self, chat_id: str) -> bool:
        """Whether a chat is the placeholder to which Hermes speaks by itself."""
        return str(chat_id) == str(getattr(getattr(self.config, "home_channel", None), "chat_id", None))

    def _send_retry_is_final(self, result: Any) -> bool:
        """What was refused is not sent again (asked by Hermes from 0.21 on)."""
        return getattr(result, "error", None) == REFUSED

    async def edit_message(
        self,
        chat_id: str,
        message_id: str,
        content: str,
        *,
        finalize: bool = False,
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Take an edit of a message."""
        if self._bothy is not None:
            await self._bothy.threads.edited(
                str(chat_id), str(message_id), content, metadata, finalize=finalize
            )
        return SendResult(success=True, message_id=message_id)

    def supports_draft_streaming(
        self,
        chat_type: str | None = None,  # noqa: ARG002  # Hermes' signature
        metadata: dict[str, Any] | None = None,  # noqa: ARG002
        chat_id: str | None = None,  # noqa: ARG002
    ) -> bool:
        """Drafts are shown everywhere."""
        return True

    async def send_draft(
        self,
        chat_id: str,
        draft_id: int,  # noqa: ARG002  # Hermes' signature
        content: str,
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Take the text of the current segment so far."""
        active = self._bothy.threads.at(str(chat_id), metadata) if self._bothy is not None else None
        if active is not None:
            active.draft(content)
        return SendResult(success=True)

    async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
        """Nothing: the live box shows that the agent is at work."""
