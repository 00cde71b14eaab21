"""The server's public keys, fetched when a token needs them.

Layer: edges. One question: which key set can judge a token that names this key? It refuses to guess:
without a set, or with an unknown key and no newer set to be had now, there is no answer and the event
stays unsettled (docs/protocol.md, section 2).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from .clock import Clock
from .defaults import LOGGER_NAME
from .errors import BothyError
from .tokens import KeySet
from .wire import KeySetBody

_log = logging.getLogger(LOGGER_NAME)

REFETCH_SECONDS = 60.0
"""An unknown key ID asks the server at most this often: key IDs come from whoever wrote the token."""

FETCH_TIMEOUT_SECONDS = 10.0
"""How long an event's judgement waits for keys; the redelivery comes after the ack timeout."""


class KeySource(Protocol):
    """Where key sets come from (`BothyApi`)."""

    async def get_jwks(self) -> KeySetBody:
        """Fetch the key set; retries until cancelled."""


class KeyRing:
    """The newest key set and when it was fetched.

    Args:
        source: Where key sets come from.
        clock: Time, for the age of the set.
    """

    def __init__(self, source: KeySource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._keys: KeySet | None = None
        self._fetched_at = 0.0
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()

    async def fetch(self) -> KeySet:
        """Fetch the key set now, however long it takes."""
        async with self._lock:
            return await self._fetch()

    async def keys_for(self, key_id: str, arrived_at: float) -> KeySet | None:
        """Return the set that judges a token with this key ID.

        Args:
            key_id: The `kid` of the token.
            arrived_at: When its event arrived, on the monotonic clock.

        Returns:
            A set that has the key, or one fetched after the arrival that lacks it (the token is bad
            then). None when neither can be had now.
        """
        if self._keys is not None and self._keys.has(key_id):
            return self._keys
        async with self._lock:
            if not self._decides(key_id, arrived_at) and self._may_fetch():
                await self._try_fetch()
            return self._keys if self._decides(key_id, arrived_at) else None

    def _decides(self, key_id: str, arrived_at: float) -> bool:
        if self._keys is None:
            return False
        return self._keys.has(key_id) or self._fetched_at >= arrived_at

    def _may_fetch(self) -> bool:
        if self._keys is None or self._tried_at is None:
            return True
        return self._clock.monotonic() - self._tried_at >= REFETCH_SECONDS

    async def _try_fetch(self) -> None:
        try:
            async with asyncio.timeout(FETCH_TIMEOUT_SECONDS):
                await self._fetch()
        except (BothyError, TimeoutError) as error:
            _log.warning("the server's keys could not be fetched: %s", type(error).__name__)

    async def _fetch(self) -> KeySet:
        started = self._clock.monotonic()
        self._tried_at = started
        self._keys = KeySet.from_body(await self._source.get_jwks())
        self._fetched_at = started
        return self._keys
