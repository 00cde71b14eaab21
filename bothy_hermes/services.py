"""What the work on every run needs, as one value for the life of the loop.

Layer: flows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .bothy_api import BothyApi
from .clock import Clock
from .config import Settings
from .proof import Prover
from .run_context import ContextReader
from .runtime import Runtime
from .store import Store
from .wire_events import HelloSettings


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
