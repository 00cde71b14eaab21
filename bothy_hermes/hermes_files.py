"""The methods with which Hermes sends files, which version 1 of the protocol does not carry out.

Layer: hermes. A part of the platform class. A file of an answer becomes one line of it that names the
file, so that nobody waits for it; where the file lies is nobody's to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from gateway.platforms.base import SendResult

from .hermes_hooks import thread_of_context
from .hermes_runtime import HermesRuntime
from .hermes_threads import REFUSED
from .plain_text import one_line
from .turn import Notice

MAX_NAME_CHARS = 120
"""Characters of a file's name in its line."""


class SendsNoFiles:
    """Hermes' files."""

    _bothy: HermesRuntime | None

    @staticmethod
    def extract_images(content: str) -> tuple[list[tuple[str, str]], str]:
        """Leave links to images in the text: one that people can follow beats a file that nobody gets."""
        return [], content

    async def _name(
        self, chat_id: Any, place: str, metadata: Mapping[str, Any] | None, name: str | None = None
    ) -> Any:
        """Put a line about a file into the answer that it belongs to."""
        shown = one_line(name or PurePath(place.partition("?")[0]).name, MAX_NAME_CHARS)
        if self._bothy is None:
            return SendResult(success=True)
        speaker = thread_of_context()
        if await self._bothy.threads.file(str(chat_id), shown, metadata, speaker=speaker):
            return SendResult(success=True)
        return SendResult(success=False, error=REFUSED)

    async def send_image(  # Hermes' signature
        self,
        chat_id: str,
        image_url: str,
        caption: str | None = None,  # noqa: ARG002  # Hermes' signature
        reply_to: str | None = None,  # noqa: ARG002  # Hermes' signature
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Name an image."""
        return await self._name(chat_id, image_url, metadata)

    async def send_animation(  # Hermes' signature
        self,
        chat_id: str,
        animation_url: str,
        caption: str | None = None,  # noqa: ARG002  # Hermes' signature
        reply_to: str | None = None,  # noqa: ARG002  # Hermes' signature
        metadata: dict[str, Any] | None = None,
    ) -> Any:
        """Name an animation."""
        return await self._name(chat_id, animation_url, metadata)

    async def send_multiple_images(
        self,
        chat_id: str,
        images: list[tuple[str, str]],
        metadata: dict[str, Any] | None = None,
        **_more: Any,
    ) -> Any:
        """Name images, each by itself."""
        result = SendResult(success=True)
        for place, *_caption in images:
            result = await self._name(chat_id, place, metadata)
        return result

    async def send_image_file(self, chat_id: str, image_path: str, *_args: Any, **kwargs: Any) -> Any:
        """Name an image."""
        return await self._name(chat_id, image_path, kwargs.get("metadata"))

    async def send_voice(self, chat_id: str, audio_path: str, *_args: Any, **kwargs: Any) -> Any:
        """Name a voice message."""
        return await self._name(chat_id, audio_path, kwargs.get("metadata"))

    async def send_video(self, chat_id: str, video_path: str, *_args: Any, **kwargs: Any) -> Any:
        """Name a video."""
        return await self._name(chat_id, video_path, kwargs.get("metadata"))

    async def send_document(self, chat_id: str, file_path: str, *_args: Any, **kwargs: Any) -> Any:
        """Name a document."""
        return await self._name(chat_id, file_path, kwargs.get("metadata"), kwargs.get("file_name"))

    async def play_tts(self, *_args: Any, **_kwargs: Any) -> Any:
        """Drop a spoken answer: its text is sent as well."""
        if self._bothy is not None:
            self._bothy.threads.drop(Notice.FILE)
        return SendResult(success=True)
