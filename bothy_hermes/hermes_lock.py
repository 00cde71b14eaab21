"""One agent token, one process, one profile: Hermes' own machine-wide lock.

Layer: hermes. Two adapters with one token would take each other's connection away for ever. Hermes'
record names the holder by process only, and several profiles can live in one; so the record carries
the home as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import StateLocked
from .secret import Secret

SCOPE = "bothy-agent-token"
"""The name of the lock; together with the hash of the token it names the file."""


class TokenLock:
    """The lock of one token; Hermes stores its hash.

    Args:
        token: The agent token.
        platform_key: The platform, for the record.
        home: The home of the profile that wants it.
    """

    def __init__(self, token: Secret, platform_key: str, home: str) -> None:
        self._token = token
        self._record = {"platform": platform_key, "home": home}

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StateLocked: Another process, or another profile of this one, has it.
        """
        from gateway.status import acquire_scoped_lock

        taken, before = acquire_scoped_lock(SCOPE, self._token.reveal(), metadata=dict(self._record))
        if not taken:
            raise StateLocked(
                "agent token", f"another gateway uses it ({_holder(before)}); stop that one first"
            )
        other = _home_in(before)
        if other is not None and other != self._record["home"]:
            # The record was ours to write because the process is the same; give it back.
            acquire_scoped_lock(SCOPE, self._token.reveal(), metadata=dict(_metadata_of(before)))
            raise StateLocked(
                "agent token", "another profile of this gateway uses it; give each its own agent"
            )

    def release(self) -> None:
        """Give the lock back; nothing happens when somebody else has it."""
        from gateway.status import release_scoped_lock

        release_scoped_lock(SCOPE, self._token.reveal())


def _metadata_of(record: Any) -> Mapping[str, Any]:
    metadata = record.get("metadata") if isinstance(record, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}


def _home_in(record: Any) -> str | None:
    home = _metadata_of(record).get("home")
    return home if isinstance(home, str) else None


def _holder(record: Any) -> str:
    pid = record.get("pid") if isinstance(record, Mapping) else None
    return f"process {pid}" if isinstance(pid, int) else "process unknown"
