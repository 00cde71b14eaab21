"""Every difference between the supported versions of Hermes, 0.19 to 0.22, in one place.

Layer: hermes. The other Hermes rooms ask here for what moved, came or went; they hold no version
test of their own. A difference is told by what is there, not by a version number, so that a
repackaged or later Hermes is judged by what it can do.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from dataclasses import fields as dataclass_fields
from importlib import import_module
from pathlib import Path
from typing import Any

_UNTRANSLATED = "display.status_phrase."
"""How a status sentence starts in a build of 0.22 that ships no translations."""

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "request_count")

_ZERO_WIDTH = "\u2060"
"""WORD JOINER: put before what Hermes would read as a sign of its own in a person's text."""

_SEVERAL_MODELS = "__HERMES_MOA_TURN_V1__"
"""How a text begins in which a program of Hermes' own asks several models, and names them."""


def _attribute(*places: tuple[str, str]) -> Any:
    """Return the first attribute that exists among (module, name) places, None when none does."""
    for module, name in places:
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    return None


def hermes_version() -> str | None:
    """Return Hermes' version, None when it cannot be told."""
    version = _attribute(("hermes_cli", "__version__"))
    return version if isinstance(version, str) else None


def read_config() -> Mapping[str, Any]:
    """Return Hermes' configuration as it is now, only to be read: Hermes copies it for those who write.

    A copy takes longer than everything else that is asked of a configuration.
    """
    places = ("hermes_cli.config", "load_config_readonly"), ("hermes_cli.config", "load_config")
    config: Mapping[str, Any] = _attribute(*places)()
    return config


def event_classes() -> tuple[Any, Any]:
    """Return Hermes' `MessageEvent` and `MessageType`; 0.21 moved them out of the base module."""
    event = _attribute(
        ("gateway.platforms.event", "MessageEvent"), ("gateway.platforms.base", "MessageEvent")
    )
    kind = _attribute(("gateway.platforms.event", "MessageType"), ("gateway.platforms.base", "MessageType"))
    return event, kind


def message_event(**fields: Any) -> Any:
    """Build an event that carries a person's text, which must never act as a command.

    Without `allow_gateway_control` (0.19) a leading slash is broken by an invisible character: the
    model reads the text, and Hermes finds no command in it. What stands for a choice of models is broken
    in the same way: whoever writes it would choose who is paid.
    """
    event_class, kind = event_classes()
    fields.setdefault("message_type", kind.TEXT)
    if fields["text"].lstrip().startswith(_SEVERAL_MODELS):
        fields["text"] = f"{_ZERO_WIDTH}{fields['text']}"
    if any(one.name == "allow_gateway_control" for one in dataclass_fields(event_class)):
        return event_class(allow_gateway_control=False, **fields)
    fields["text"] = defused(fields["text"])
    return event_class(**fields)


def control_event(**fields: Any) -> Any:
    """Build an event that carries a command of the adapter's own.

    It is internal: a list of allowed users in the environment holds for the control sender as well,
    and Hermes would then cancel the task and let the agent run on.
    """
    event_class, kind = event_classes()
    fields.setdefault("message_type", kind.TEXT)
    return event_class(internal=True, **fields)


def defused(text: str) -> str:
    """Return a text in which Hermes 0.19 finds no command, for the model the same text."""
    head = text.lstrip()
    return f"{_ZERO_WIDTH}{text}" if head.startswith(("/", "!")) else text


def was_accepted(event: Any) -> bool | None:
    """Tell whether Hermes took the event in, None when this version does not say."""
    accepted = getattr(event, "_gateway_accepted", None)
    return accepted if isinstance(accepted, bool) else None


def profile_scope(home: str) -> AbstractContextManager[object]:
    """Return the scope in which a profile's own variables are read, as they are at this moment.

    With several profiles in one gateway Hermes refuses to read a secret outside of such a scope. A
    scope is a copy of the variables at the time it was made, so each question enters a new one.
    """
    several = _attribute(("agent.secret_scope", "is_multiplex_active"))
    if several is None or not several():
        return nullcontext()
    scope: Callable[[Path], AbstractContextManager[object]] | None = _attribute(
        ("gateway.run", "_profile_runtime_scope")
    )
    return nullcontext() if scope is None else scope(Path(home))


def hook_seconds() -> float | None:
    """Return how long Hermes waits for a hook before it goes on, None when it waits for ever (0.19, 0.20)."""
    timeout = _attribute(("hermes_cli.plugins", "_resolve_hook_callback_timeout"))
    seconds = float(timeout()) if timeout is not None else 0.0
    return seconds if seconds > 0 else None


def channel_override(config: Any, source: Any) -> Any | None:
    """Return what the configuration sets for a source's channel alone, None when it sets nothing."""
    find = _attribute(("gateway.run", "_get_channel_override"))
    if find is None or config is None:
        return None
    return find(config, source.platform, str(source.chat_id), thread_id=str(source.thread_id))


def is_oauth_token(key: str) -> bool:
    """Tell whether a key has the shape of an Anthropic login, as Hermes itself judges it."""
    judge: Callable[[str], bool] | None = _attribute(
        ("agent.anthropic_credentials", "_is_oauth_token"), ("agent.anthropic_adapter", "_is_oauth_token")
    )
    if judge is not None:
        return bool(judge(key))
    return not key.startswith("sk-ant-api") and key.startswith(("sk-ant-", "eyJ", "cc-"))


def canonical_provider(name: str) -> str:
    """Return Hermes' own name for a provider; one that it does not know keeps its name."""
    resolve = _attribute(("hermes_cli.auth", "resolve_provider"))
    try:
        return str(resolve(name))
    except Exception:  # noqa: BLE001  # no credential, no such provider: the resolution says so itself
        return name


def is_keyed_provider(provider: str) -> bool:
    """Tell whether a provider is asked with a key, and not by a cloud's or another program's login."""
    registry = _attribute(("hermes_cli.auth", "PROVIDER_REGISTRY"))
    entry = registry.get(provider) if registry is not None else None
    return getattr(entry, "auth_type", "api_key") == "api_key"


def is_usable_key(key: str) -> bool:
    """Tell whether a key is one, as Hermes judges it: no example from a documentation."""
    judge = _attribute(("hermes_cli.auth", "has_usable_secret"))
    return bool(judge(key)) if judge is not None else bool(key.strip())


@dataclass(frozen=True, slots=True)
class StoredCredential:
    """One entry of a provider's pool.

    Attributes:
        key: The key; looked at for its shape only.
        oauth: What the store says of it.
        from_variable: It came from the environment and stands in the pool only as a copy.
    """

    key: str = field(repr=False)
    oauth: bool
    from_variable: bool


def stored_credentials(provider: str) -> tuple[StoredCredential, ...]:
    """Return a provider's pool, without choosing from it: choosing refreshes what is old."""
    load = _attribute(("agent.credential_pool", "load_pool"))
    entries = load(provider).entries() if load is not None else ()
    return tuple(
        StoredCredential(
            key=str(entry.access_token or ""),
            oauth=str(entry.auth_type).startswith("oauth"),
            from_variable=str(entry.source).startswith("env:"),
        )
        for entry in entries
    )


def open_approvals(session_key: str) -> list[dict[str, Any]] | None:
    """Return the approvals that wait in a session, the oldest first; None when it cannot be told.

    In 0.19 they have no ID of Hermes; the place of the waiting entry in memory serves as one.
    """
    listing = _attribute(("tools.approval", "list_gateway_approvals"))
    if listing is not None:
        return list(listing(session_key))
    queues = _attribute(("tools.approval", "_gateway_queues"))
    if queues is None:
        return None
    return [{**entry.data, "request_id": _place(entry)} for entry in list(queues.get(session_key, ()))]


def resolve_approval(session_key: str, choice: str, request_id: str) -> bool:
    """Answer exactly one approval; returns whether it was still waiting."""
    module = import_module("tools.approval")
    resolve = module.resolve_gateway_approval
    if "request_id" in inspect.signature(resolve).parameters:
        return int(resolve(session_key, choice, request_id=request_id)) > 0
    return _resolve_in_queue(module, session_key, choice, request_id)


def _resolve_in_queue(module: Any, session_key: str, choice: str, request_id: str) -> bool:
    """Do what the resolver of 0.19 does, for the entry that is meant instead of the oldest one."""
    with module._lock:  # noqa: SLF001  # the resolver of this version can only take the oldest
        queue = module._gateway_queues.get(session_key, [])  # noqa: SLF001
        entry = next((one for one in queue if _place(one) == request_id), None)
        if entry is None:
            return False
        queue.remove(entry)
        if not queue:
            module._gateway_queues.pop(session_key, None)  # noqa: SLF001
        entry.result = choice
    entry.event.set()
    return True


def _place(entry: Any) -> str:
    return f"{id(entry):x}"


def withdraw_approvals(session_key: str) -> int:
    """Have nobody answer the approvals of a session any more; returns how many there were.

    Before 0.21 Hermes knows no withdrawal: an interrupted turn gives them up by itself within a second.
    """
    withdraw = _attribute(("tools.approval", "withdraw_gateway_approval"))
    waiting = open_approvals(session_key) if withdraw is not None else None
    return sum(bool(withdraw(session_key, entry["request_id"], "the turn ended")) for entry in waiting or ())


def shown_command(command: str) -> str:
    """Return a command as Hermes shows it in a prompt: without what looks like a secret."""
    redact = _attribute(("gateway.run", "_redact_approval_command"))
    return str(redact(command)) if redact is not None else command


def estimated_micros(
    model: str, usage: Mapping[str, Any], provider: str | None, base_url: str | None
) -> int | None:
    """Return what Hermes estimates a request to cost, in millionths of a dollar; None when it cannot tell.

    Only prices that Hermes ships count: for others it would ask a server, in the middle of a turn.
    """
    route_of = _attribute(("agent.usage_pricing", "resolve_billing_route"))
    estimate = _attribute(("agent.usage_pricing", "estimate_usage_cost"))
    canonical = _attribute(("agent.usage_pricing", "CanonicalUsage"))
    shipped = _attribute(("agent.usage_pricing", "_lookup_official_docs_pricing"))
    if route_of is None or estimate is None or canonical is None or shipped is None:
        return None
    try:
        if shipped(route_of(model, provider=provider, base_url=base_url)) is None:
            return None
        counts = {name: int(usage.get(name) or 0) for name in _COUNTS}
        amount = estimate(model, canonical(**counts), provider=provider, base_url=base_url).amount_usd
        return None if amount is None else int(amount * 1_000_000)
    except Exception:  # noqa: BLE001  # whatever Hermes raises, the amount is unknown
        return None


def asks_with_prompt(base: type) -> bool:
    """Tell whether Hermes hands an approval over as a prompt object (0.21 on)."""
    return hasattr(base, "_send_exec_approval_prompt")


def status_sentences(tool: str, args: Any) -> tuple[str, ...]:
    """Return the sentences that Hermes may show for a tool call, the longer one first."""
    phrase = _attribute(("agent.display", "build_status_phrase"))
    if phrase is None or not tool:
        return ()
    found = (phrase(tool, args if isinstance(args, dict) else None), phrase(tool, None))
    return tuple(dict.fromkeys(text for text in found if isinstance(text, str) and text))


def readable_sentence(sentence: str, tool: str | None) -> str:
    """Return a status sentence that people can read: an untranslated one names the tool instead."""
    if not sentence.startswith(_UNTRANSLATED):
        return sentence
    return f"is using {tool}…" if tool else "is using a tool…"
