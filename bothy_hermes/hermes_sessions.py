"""Hermes' sessions: which one a thread has, what a session is, and whether it may be bound to a thread.

Layer: hermes. Reads Hermes' session store and its database; what a command did is judged by them, never
by the text that Hermes answers. A reference is taken as an ID of this profile's on this platform or
not at all: Hermes would take titles, list numbers and other platforms' sessions as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .runtime import MAX_ANCESTORS, SessionSwitch

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{7,127}")
"""The shape of an ID; a number alone would be one of a list."""

COMPRESSED = "compression"
"""How a session ended whose conversation goes on in a child of it."""


class HermesSessions:
    """The sessions of one profile, on one platform.

    Args:
        runner: The gateway's runner.
        platform_key: The platform's name in Hermes.
    """

    def __init__(self, runner: Any, platform_key: str) -> None:
        self._runner = runner
        self._platform_key = platform_key

    def of_thread(self, session_key: str) -> str | None:
        """The session that a thread has now, None when its next turn makes one."""
        store = self._runner.session_store
        peek = getattr(store, "peek_session_id", None)
        if callable(peek):
            found = peek(session_key)
        else:
            found = getattr(store._entries.get(session_key), "session_id", None)  # noqa: SLF001  # before 0.19.1
        return str(found) if found else None

    async def fault_of(self, reference: str) -> SessionSwitch | None:
        """Why a reference cannot be continued; None when it names a session made here on this platform."""
        if not _SESSION_ID.fullmatch(reference) or reference.isdigit():
            return SessionSwitch.NO_ID
        row = await self._row(reference)
        if row is None:
            return SessionSwitch.MISSING
        if row.get("id") != reference:
            return SessionSwitch.NO_ID
        return None if row.get("source") == self._platform_key else SessionSwitch.FOREIGN

    async def parent(self, session_id: str) -> str | None:
        """The session out of which a session grew by a compression, None when it did not.

        A session that was begun anew names the one before it too, and does not go on with it.
        """
        row = await self._row(session_id)
        parent_id = row.get("parent_session_id") if row is not None else None
        parent = await self._row(str(parent_id)) if parent_id else None
        if parent is None or parent.get("end_reason") != COMPRESSED:
            return None
        return str(parent_id)

    async def goes_on_with(self, session_id: str | None, ancestor: str) -> bool:
        """Whether a session is another one, or grew out of it."""
        for _ in range(MAX_ANCESTORS):
            if session_id is None or session_id == ancestor:
                return session_id == ancestor
            session_id = await self.parent(session_id)
        return False

    async def title(self, session_id: str) -> str | None:
        """The title that the model gave a session; a title that Hermes derived is none."""
        row = await self._row(session_id)
        # 0.19 derives none and says nothing about where a title is from.
        if row is None or row.get("title_source", "llm") != "llm":
            return None
        title = row.get("title")
        return title if isinstance(title, str) and title.strip() else None

    async def _row(self, session_id: str) -> Mapping[str, Any] | None:
        database = self._runner._session_db  # noqa: SLF001  # the runner has no other way to its database
        return None if database is None else await database.get_session(session_id)
