"""What the work on every run needs, as one value for the life of the loop, and what the server asks for.

Layer: flows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from .bothy_api import BothyApi
from .clock import Clock
from .config import Settings
from .message_split import LEAST_LIMIT
from .proof import Prover
from .run_context import ContextReader
from .runtime import Runtime
from .store import Store
from .wire_events import Hello, HelloSettings
from .wire_words import MAX_CONTENT_BYTES

FIRST_HEARTBEAT_SECONDS = 30.0
"""The interval until the server named its own."""

FIRST_LIMITS = HelloSettings(
    run_update_min_interval_ms=1000, max_content_bytes=MAX_CONTENT_BYTES, costs_enabled=False
)
"""The limits until the server named its own."""

SHORTEST_HEARTBEAT_SECONDS = 0.1
"""The shortest interval that is kept: one of a millisecond would leave both sides time for nothing else."""


class Terms:
    """What the server's last hello asked for."""

    def __init__(self) -> None:
        self._limits = FIRST_LIMITS
        self._heartbeat_seconds = FIRST_HEARTBEAT_SECONDS

    def take(self, hello: Hello) -> None:
        """A new connection says what holds from now on, within what can be worked with."""
        said = hello.settings
        self._limits = replace(said, max_content_bytes=max(said.max_content_bytes, LEAST_LIMIT))
        self._heartbeat_seconds = max(hello.heartbeat_interval_ms / 1000, SHORTEST_HEARTBEAT_SECONDS)

    def limits(self) -> HelloSettings:
        """The server's limits."""
        return self._limits

    def heartbeat_seconds(self) -> float:
        """Seconds between two heartbeats."""
        return self._heartbeat_seconds


@dataclass(frozen=True, slots=True)
class Services:
    """The rooms that a run's work uses.

    Attributes:
        settings: The configuration.
        api: The server.
        store: The disk.
        runtime: Hermes.
        prover: Mode and class at this moment.
        context: Reads contexts and channel configurations.
        clock: Time, waiting, IDs.
        limits: The server's settings of the current connection.
    """

    settings: Settings
    api: BothyApi
    store: Store
    runtime: Runtime
    prover: Prover
    context: ContextReader
    clock: Clock
    limits: Callable[[], HelloSettings]
