"""The platform as Hermes sees it.

Layer: hermes. Loaded only when Hermes builds the adapter, because its base class is Hermes' own. Every
method keeps Hermes' signature and says where the call goes; what it means is decided in
`hermes_runtime` and below.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.config import Platform
from gateway.platforms.base import BasePlatformAdapter, SendResult

from . import hermes_config, hermes_control, hermes_hooks, hermes_prompts, hermes_versions
from .bothy_credentials import load_agent_token
from .bothy_loop import AdapterLoop
from .clock import system_clock
from .config import Settings, load_settings
from .defaults import CONTROL_SENDER, LOGGER_NAME
from .errors import BothyError, ConfigError, StateLocked
from .hermes_lock import TokenLock
from .hermes_runtime import HermesRuntime
from .runtime import BusyMode, TurnRequest
from .turn import Notice

_log = logging.getLogger(LOGGER_NAME)

STOP_SECONDS = 4.5
"""How long `disconnect` waits for the adapter; Hermes gives it 5."""

CANCEL_SECONDS = 0.3
"""How long a task that was cancelled may take to notice."""


class ServerPlatform(BasePlatformAdapter):  # type: ignore[misc]  # Hermes ships no types
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
        self._hooks = hermes_hooks.HookReceiver(self._key, home, runtime.hear)
        self._adapter = AdapterLoop(
            settings, runtime, self._clock, Path(home) / self._key, opened=self._takes_messages
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
            _log.exception("%s: stopped by a fault of its own", self._key)
            await self._stopped(type(error).__name__, retry=True)

    async def _stopped(self, problem: str, *, retry: bool) -> None:
        _log.error("%s: stopped: %s", self._key, problem)
        self._set_fatal_error("bothy", problem, retryable=retry)
        if retry:
            await self._notify_fatal_error()

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

    # What the runtime needs.

    @property
    def busy_mode(self) -> BusyMode | None:
        """What Hermes does with a text during a turn of this profile."""
        source = self.build_source(chat_id=self._key, user_id=CONTROL_SENDER)
        return hermes_config.busy_mode(self.gateway_runner, source)

    def turn_event(self, turn: TurnRequest) -> Any:
        """Build Hermes' event of a turn; a direct message, so that the text stays as it is."""
        return hermes_versions.message_event(
            text=turn.user_text,
            source=self._source(turn, str(turn.user_id), turn.user_name),
            message_id=str(turn.message_id),
            channel_prompt=turn.system_part,
        )

    def _source(self, turn: TurnRequest, user_id: str, user_name: str) -> Any:
        return self.build_source(
            chat_id=str(turn.channel_id),
            chat_type="dm",
            user_id=user_id,
            user_name=user_name,
            thread_id=str(turn.thread_id),
            message_id=str(turn.message_id),
        )

    async def hand_in(self, event: Any) -> bool | None:
        """Give Hermes an event."""
        await self.handle_message(event)
        return hermes_versions.was_accepted(event)

    def is_busy(self, event: Any) -> bool:
        """Tell whether Hermes still guards the event's thread."""
        return self._session_key(event) in self._active_sessions

    def _session_key(self, event: Any) -> str:
        from gateway.session import build_session_key

        own = getattr(self, "_event_session_key", None)
        return str(own(event) if own is not None else build_session_key(event.source))

    async def stop(self, event: Any, message_id: str) -> None:
        """Interrupt the turn of an event's thread, then release what it is blocked on."""
        source = event.source
        key = self._session_key(event)
        control = self.build_source(
            chat_id=source.chat_id,
            chat_type="dm",
            user_id=CONTROL_SENDER,
            thread_id=source.thread_id,
            message_id=message_id,
        )
        await self.handle_message(hermes_control.stop_event(control, message_id))
        hermes_control.release_clarifies(key)

    # What Hermes tells.

    def hear(self, name: str, payload: Mapping[str, Any]) -> None:
        """Take a hook call; on whatever thread Hermes is."""
        if self._hooks is not None:
            self._hooks.hear(name, payload)

    def set_status_text(self, chat_id: str, text: str | None) -> None:  # noqa: ARG002  # Hermes' signature
        """Take a status sentence; called on a worker thread, with the thread only in the context."""
        if self._bothy is not None:
            self._bothy.hear_status(hermes_hooks.thread_of_context(), text)

    async def on_processing_start(self, event: Any) -> None:
        """Hermes begins with a message."""
        if self._bothy is not None:
            self._bothy.processing_started(event.message_id)

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
        """Take a text. Always a success: what failed here Hermes would send again, and again."""
        if self._bothy is None:
            return SendResult(success=True)
        message_id = await self._bothy.sent(str(chat_id), content, reply_to, metadata)
        return SendResult(success=True, message_id=message_id)

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
            await self._bothy.edited(str(chat_id), str(message_id), content, metadata, finalize=finalize)
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
        active = self._bothy.turn_at(str(chat_id), metadata) if self._bothy is not None else None
        if active is not None:
            active.draft(content)
        return SendResult(success=True)

    async def send_typing(self, chat_id: str, metadata: Any = None) -> None:
        """Nothing: the live box shows that the agent is at work."""

    # What Hermes asks.

    async def send_clarify(  # noqa: PLR0917  # Hermes' signature
        self,
        chat_id: str,
        question: str,
        choices: list[str] | None,  # noqa: ARG002  # Hermes' signature
        clarify_id: str,
        session_key: str,  # noqa: ARG002
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Refuse a question."""
        self._prompted(chat_id, metadata, hermes_prompts.refuse_clarify(clarify_id, question))
        return SendResult(success=True)

    async def _send_exec_approval_prompt(self, prompt: Any) -> Any:
        """Refuse an approval; Hermes shows it here only because the class has this method."""
        title = hermes_prompts.refuse_approval(prompt.session_key, prompt.command, prompt.description)
        self._prompted(prompt.chat_id, prompt.metadata, title)
        return SendResult(success=True)

    if not hermes_versions.asks_with_prompt(BasePlatformAdapter):

        async def send_exec_approval(
            self,
            chat_id: str,
            command: str,
            session_key: str,
            description: str | None = None,
            metadata: dict[str, Any] | None = None,
            **_choices: Any,
        ) -> Any:
            """Refuse an approval, where Hermes asks without a prompt object (0.19, 0.20)."""
            title = hermes_prompts.refuse_approval(session_key, command, description)
            self._prompted(chat_id, metadata, title)
            return SendResult(success=True)

    async def send_slash_confirm(  # noqa: PLR0917  # Hermes' signature
        self,
        chat_id: str,
        title: str,
        message: str,  # noqa: ARG002  # Hermes' signature
        session_key: str,
        confirm_id: str,
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Refuse a confirmation."""
        shown = await hermes_prompts.refuse_confirm(session_key, confirm_id, title)
        self._prompted(chat_id, metadata, shown)
        return SendResult(success=True)

    def _prompted(self, chat_id: str, metadata: Mapping[str, Any] | None, title: str) -> None:
        active = self._bothy.turn_at(str(chat_id), metadata) if self._bothy is not None else None
        if active is not None:
            active.prompt(title)

    # Files, which version 1 of the protocol does not carry out.

    @staticmethod
    def extract_images(content: str) -> tuple[list[tuple[str, str]], str]:
        """Leave images in the text: a link that people can read beats a file that nobody gets."""
        return [], content

    @staticmethod
    def extract_local_files(content: str) -> tuple[list[str], str]:
        """Leave paths in the text."""
        return [], content

    async def _drop_file(self) -> Any:
        if self._bothy is not None:
            self._bothy.drop(Notice.FILE)
        return SendResult(success=True)

    async def send_image(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop an image."""
        return await self._drop_file()

    async def send_animation(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop an animation."""
        return await self._drop_file()

    async def send_image_file(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop an image."""
        return await self._drop_file()

    async def send_multiple_images(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop images."""
        return await self._drop_file()

    async def send_voice(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop a voice message."""
        return await self._drop_file()

    async def play_tts(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop a spoken answer; its text is sent as well."""
        return await self._drop_file()

    async def send_video(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop a video."""
        return await self._drop_file()

    async def send_document(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop a document."""
        return await self._drop_file()
