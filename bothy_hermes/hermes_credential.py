"""Which kind of credential Hermes would spend with, and whether anything beside it would spend otherwise.

Layer: hermes. Blocking; asked on a thread. A key is looked at for its shape and dropped: no value
leaves this module, and no log line holds one. What Hermes would have to refresh to answer, the login
of another tool, is judged by the kind of the entry that is stored, because asking would write to that
tool's file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from . import hermes_versions
from .actual_mode import ANTHROPIC, determine
from .runtime import ResolvedCredential, Spending
from .turn_facts import Payee
from .wire_words import KeyType

UNKNOWN_CREDENTIAL = ResolvedCredential(None, KeyType.UNKNOWN)
"""What is not known for certain."""

KEYLESS = frozenset({"no-key-required", "dummy-lm-api-key", "dummy-actual-local-api-key"})
"""What Hermes puts where a server wants no key; it proves nothing."""

ACCOUNT_PROVIDERS = frozenset({"copilot", "copilot-acp", "moa"})
"""Providers that spend under an account although Hermes lists some of them as keyed."""

OWN_LOGIN_MODES = frozenset({"codex_app_server"})
"""Ways to ask a model that use a login of their own and not the key that was resolved."""

CUSTOM = "custom"
"""The provider's name of every server of one's own: the address alone says which one is meant."""

_NO_ROUTE = frozenset({"", "auto", "main", "none"})


@dataclass(frozen=True, slots=True)
class Route:
    """A place of the configuration that can send a request elsewhere than the main model.

    Attributes:
        key: The name of the configuration key.
        provider: The provider it names.
        base_url: The server it names, if any.
        api_key: The key it states, if any.
    """

    key: str
    provider: str
    base_url: str | None
    api_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found.

    Attributes:
        credential: The kind of credential.
        problem: Why it is unknown although there is one, with the key's name; for the log.
    """

    credential: ResolvedCredential
    problem: str | None = None


class _Mixed(Exception):
    """A pool holds keys and logins."""


def resolve_credential() -> Finding:
    """Ask which kind of credential the next turn spends with.

    Returns:
        The kind; unknown as well when a fallback or an auxiliary model would spend in another mode.

    Raises:
        Exception: Whatever Hermes raises; the caller takes it for unknown.
    """
    try:
        main = _kind_of_main()
    except _Mixed as mixed:
        return Finding(UNKNOWN_CREDENTIAL, str(mixed))
    if determine(main).mode is None:
        return Finding(UNKNOWN_CREDENTIAL)
    for route in other_routes(hermes_versions.read_config()):
        problem = _difference(main, route)
        if problem is not None:
            return Finding(UNKNOWN_CREDENTIAL, f"{route.key}: {problem}")
    return Finding(main)


def kind_in_use(provider: str, key: object) -> KeyType | None:
    """Judge the key that an agent holds; None for what is none, which proves nothing either way.

    Args:
        provider: Hermes' name of the provider that it is for.
        key: The agent's key; looked at for its shape and dropped.
    """
    kind = kind_of_answer({"provider": provider, "api_key": key}).key_type
    return None if kind is KeyType.UNKNOWN else kind


def pays_same(payee: Payee, spends: Spending) -> bool:
    """Tell whether a model request pays whom a run's evidence names; a comparison, nobody is asked."""
    if payee.api_mode in OWN_LOGIN_MODES or payee.provider not in {spends.provider, *_NO_ROUTE}:
        return False
    if spends.base_url is None:
        return payee.provider == spends.provider != CUSTOM
    return same_server(payee.base_url, spends.base_url)


def same_server(one: str, other: str) -> bool:
    """Tell whether two addresses mean the same server."""
    return _address(one) == _address(other)


def _address(url: str) -> tuple[str, str, str]:
    parts = urlsplit(url.strip())
    return parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/")


def credential_of(payee: Payee) -> ResolvedCredential:
    """Judge with which kind of credential a model request would pay, as Hermes would resolve it now.

    Where the configuration names the payee it may also state a key; with several such places all have
    to prove the same.

    Raises:
        Exception: Whatever Hermes raises, and what makes the kind ambiguous; the caller takes it for
            unknown.
    """
    if not payee.provider or payee.api_mode in OWN_LOGIN_MODES:
        return UNKNOWN_CREDENTIAL
    provider = hermes_versions.canonical_provider(payee.provider)
    routes = other_routes(hermes_versions.read_config())
    named = [one for one in routes if _leads_to(one, provider, payee)]
    kinds = {_kind_of(payee.provider, route) for route in named or [_plain_route(payee)]}
    modes = {determine(kind).mode for kind in kinds}
    return kinds.pop() if len(modes) == 1 else UNKNOWN_CREDENTIAL


def _leads_to(route: Route, provider: str, payee: Payee) -> bool:
    if hermes_versions.canonical_provider(route.provider) != provider:
        return False
    return route.base_url is None or same_server(route.base_url, payee.base_url)


def _plain_route(payee: Payee) -> Route:
    """The way to somebody whom the configuration does not name: by the provider, or by an address alone."""
    custom = payee.provider in _NO_ROUTE or payee.provider == CUSTOM
    return Route("request", CUSTOM if custom else payee.provider, payee.base_url if custom else None)


def _difference(main: ResolvedCredential, route: Route) -> str | None:
    """Say how a route would spend otherwise than the main model, None when it would not."""
    try:
        other = determine(_kind_of(route.provider, route))
    except Exception as error:  # noqa: BLE001  # whatever Hermes raises, this route proves nothing
        return f"its credential cannot be told ({type(error).__name__})"
    if other.mode is determine(main).mode:
        return None
    return "would spend in another mode than the main model, or in none that is proven"


def other_routes(config: Mapping[str, Any]) -> Iterator[Route]:
    """Yield the places of a configuration that name a provider beside the main one.

    Args:
        config: Hermes' loaded configuration.
    """
    for key in ("fallback_providers", "fallback_model"):
        yield from _routes_in_list(key, config.get(key))
    delegation = config.get("delegation")
    if isinstance(delegation, Mapping):
        yield from _route_in("delegation", delegation)
        yield from _routes_in_list("delegation.fallback_providers", delegation.get("fallback_providers"))
    auxiliary = config.get("auxiliary")
    for task, block in auxiliary.items() if isinstance(auxiliary, Mapping) else ():
        if isinstance(block, Mapping):
            yield from _route_in(f"auxiliary.{task}", block)
            yield from _routes_in_list(f"auxiliary.{task}.fallback_chain", block.get("fallback_chain"))


def _routes_in_list(key: str, value: Any) -> Iterator[Route]:
    if isinstance(value, Mapping):
        yield from _route_in(key, value)
    elif isinstance(value, list):
        for index, entry in enumerate(value):
            if isinstance(entry, Mapping):
                yield from _route_in(f"{key}[{index}]", entry)


def _route_in(key: str, block: Mapping[str, Any]) -> Iterator[Route]:
    provider = str(block.get("provider") or "").strip().lower()
    base_url = str(block.get("base_url") or "").strip() or None
    api_key = str(block.get("api_key") or "").strip() or None
    if base_url is not None and provider in _NO_ROUTE:
        provider = CUSTOM
    if provider not in _NO_ROUTE:
        yield Route(key, provider, base_url, api_key)


def _kind_of_main() -> ResolvedCredential:
    from hermes_cli.runtime_provider import resolve_requested_provider

    return _kind_of(resolve_requested_provider(None), None)


def _kind_of(requested: str, route: Route | None) -> ResolvedCredential:
    provider = hermes_versions.canonical_provider(requested)
    if provider in ACCOUNT_PROVIDERS or not hermes_versions.is_keyed_provider(provider):
        return UNKNOWN_CREDENTIAL
    stored = _kinds_stored(provider)
    if stored is not None and (route is None or route.api_key is None):
        return stored
    from hermes_cli.runtime_provider import resolve_runtime_provider

    if route is None:
        # By its name, for the answer to be of the very provider that was looked at above.
        return kind_of_answer(resolve_runtime_provider(requested=requested))
    return kind_of_answer(
        resolve_runtime_provider(
            requested=requested, explicit_api_key=route.api_key, explicit_base_url=route.base_url
        )
    )


def _kinds_stored(provider: str) -> ResolvedCredential | None:
    """Judge a provider's stored credentials, None when Hermes is to be asked.

    Hermes changes to the next one when one is refused, in the middle of a turn.

    Raises:
        _Mixed: It could change to one of the other kind.
    """
    entries = hermes_versions.stored_credentials(provider)
    kinds = {kind_of_key(provider, entry.key, entry.oauth) for entry in entries}
    if len(kinds) > 1 and not all(entry.from_variable for entry in entries):
        raise _Mixed(f"credential_pool.{provider}: holds keys and logins, a turn could spend with either")
    return ResolvedCredential(provider, KeyType.OAUTH) if kinds == {KeyType.OAUTH} else None


def kind_of_answer(answer: Mapping[str, Any]) -> ResolvedCredential:
    """Judge what Hermes resolved; everything that is no plain key is unknown.

    Args:
        answer: The provider, its API mode and its key, as Hermes' resolution gives them.
    """
    provider, key = answer.get("provider"), answer.get("api_key")
    plain = isinstance(provider, str) and isinstance(key, str) and bool(key.strip())
    if not plain or answer.get("auth_error") or answer.get("api_mode") in OWN_LOGIN_MODES:
        return UNKNOWN_CREDENTIAL
    if key in KEYLESS or key == provider or not hermes_versions.is_usable_key(str(key)):
        return UNKNOWN_CREDENTIAL
    kind = kind_of_key(str(provider), str(key), oauth=False)
    return ResolvedCredential(provider, kind, str(answer.get("base_url") or "") or None)


def kind_of_key(provider: str, key: str, oauth: bool) -> KeyType:
    """Judge one key by its shape; the name of the variable it came from proves nothing.

    Args:
        provider: Hermes' name of the provider.
        key: The key.
        oauth: What the store says of it; for Anthropic the shape decides.
    """
    if provider == ANTHROPIC:
        return KeyType.OAUTH if hermes_versions.is_oauth_token(key) else KeyType.API_KEY
    # A login of Anthropic's that is sent to another server is a login all the same.
    other_login = key.startswith("sk-ant-") and hermes_versions.is_oauth_token(key)
    return KeyType.OAUTH if oauth or other_login else KeyType.API_KEY
