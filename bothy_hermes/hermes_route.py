"""Whom Hermes would pay in one thread, when that is not whom the configuration's main model pays.

Layer: hermes. A session may be locked onto a model (`/model`), a channel may have one of its own
(`channel_overrides`). Both are known before a turn, so that nothing is sent for one that may not spend
so: not even the requests that Hermes makes beside a turn's first one, which no hook holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import hermes_versions
from .turn_facts import Payee


def bound_payee(runner: Any, session_key: str, source: Any) -> Payee | None:
    """Return whom a thread's turns pay, None when it is the main model's provider.

    Args:
        runner: The gateway's runner.
        session_key: Hermes' key of the thread.
        source: The thread's source.
    """
    lock = _session_lock(runner, session_key)
    if lock is not None:
        return Payee(str(lock["provider"]), str(lock.get("base_url") or ""))
    override = hermes_versions.channel_override(getattr(runner, "config", None), source)
    provider = getattr(override, "provider", None)
    return Payee(str(provider)) if provider else None


def _session_lock(runner: Any, session_key: str) -> Mapping[str, Any] | None:
    """What /model chose for a session, now or before the last start; None when it named no provider."""
    store = getattr(runner, "session_store", None)
    chosen = getattr(runner, "_session_model_overrides", {}).get(session_key)
    read = getattr(store, "get_model_override", None)
    chosen = chosen or (read(session_key) if read is not None else None)
    return chosen if isinstance(chosen, Mapping) and chosen.get("provider") else None
