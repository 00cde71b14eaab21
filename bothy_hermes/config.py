"""The adapter's configuration: reading its values by the table of keys.

Layer: values. `config_keys` has the table. Hermes hands a platform its section as `extra`: the
adapter's keys stand there flat with their dotted names, or without their prefix under a mapping
`hermes_adapter:`. A dotted name that the table lacks is refused, since a typing error must not fall
back to a default; names without a dot are Hermes' own. Errors name the key and never the value. Files
are not opened here, and the process environment is never read.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit
from uuid import UUID

from .config_keys import DEFAULT_API_MAX_ACTIVE_RUNS, KEYS, Key, KeyType
from .errors import ConfigError

__all__ = ["KEYS", "HermesApiSettings", "Settings", "is_loopback", "load_document", "load_settings"]

NESTED_KEY = "hermes_adapter"
"""The mapping under which the adapter's own keys may stand without their prefix."""

_BY_NAME: Mapping[str, Key] = {key.name: key for key in KEYS}


@dataclass(frozen=True, slots=True)
class HermesApiSettings:
    """How to reach Hermes' API server; without `url` the adapter runs inside Hermes.

    Attributes:
        url: `hermes_api.url`, without a trailing slash.
        key_file: `hermes_api.key_file`.
        profile_home: `hermes_api.profile_home`.
        python: `hermes_api.python`.
        model: `hermes_api.model`.
        deadline_seconds: `hermes_api.deadline_seconds`.
        stop_timeout_seconds: `hermes_api.stop_timeout_seconds`.
        approval_timeout_seconds: `hermes_api.approval_timeout_seconds`.
    """

    url: str | None
    key_file: Path | None
    profile_home: Path | None
    python: Path | None
    model: str | None
    deadline_seconds: float
    stop_timeout_seconds: float
    approval_timeout_seconds: float


@dataclass(frozen=True, slots=True)
class Settings:
    """The validated configuration of one profile's adapter.

    Attributes:
        platform_key: `hermes_adapter.platform_key`.
        consumer: `hermes_adapter.consumer`.
        server_url: `hermes_adapter.server_url`, normalised, without a trailing slash.
        instance_id: `hermes_adapter.instance_id`.
        token_file: `hermes_adapter.token_file`.
        dpop_key_file: `hermes_adapter.dpop_key_file`, None without DPoP.
        max_message_bytes: `hermes_adapter.max_message_bytes`.
        attachment_text_max_bytes: `hermes_adapter.attachment_text_max_bytes`.
        max_active_runs: `hermes_adapter.max_active_runs`.
        restore_wait_seconds: `hermes_adapter.restore_wait_seconds`.
        ca_file: `hermes_adapter.ca_file`, None for the system's certificates.
        proxy: `hermes_adapter.proxy`, None for none; may hold a password.
        run_update_min_interval: `adapter.run_update_min_interval`, in seconds.
        request_timeout_seconds: `adapter.request_timeout_seconds`.
        hermes_api: The keys under `hermes_api.`.
    """

    platform_key: str
    consumer: str
    server_url: str
    instance_id: UUID
    token_file: Path
    dpop_key_file: Path | None
    max_message_bytes: int
    attachment_text_max_bytes: int
    max_active_runs: int
    restore_wait_seconds: float
    ca_file: Path | None
    proxy: str | None = field(repr=False)
    run_update_min_interval: float
    request_timeout_seconds: float
    hermes_api: HermesApiSettings


def load_settings(extra: Mapping[str, Any]) -> Settings:
    """Read the adapter's keys of a platform's section.

    Args:
        extra: The section as Hermes hands it over. Dotted names and the mapping `hermes_adapter` are
            the adapter's, every other name is left alone.

    Raises:
        ConfigError: A key is missing, unknown, there twice, or has an unusable value.
    """
    given = _collect(extra)
    values = {key.name: _value(key, given) for key in KEYS}
    if "hermes_adapter.max_active_runs" not in given and values["hermes_api.url"] is not None:
        values["hermes_adapter.max_active_runs"] = DEFAULT_API_MAX_ACTIVE_RUNS
    inner = {name.split(".")[1]: value for name, value in values.items() if name.startswith("hermes_api.")}
    outer = {
        name.split(".")[1]: value for name, value in values.items() if not name.startswith("hermes_api.")
    }
    return Settings(**outer, hermes_api=HermesApiSettings(**inner))


def load_document(document: Mapping[str, Any]) -> Settings:
    """Read a configuration file of the serve command, in which every name is the adapter's.

    Args:
        document: The parsed TOML: tables by prefix, or dotted names in quotes.

    Raises:
        ConfigError: As `load_settings`, and for a name that is no key at all.
    """
    flat: dict[str, Any] = {}
    for name, value in document.items():
        inner = value if isinstance(value, Mapping) else {"": value}
        for last, one in inner.items():
            full = f"{name}.{last}" if last else name
            if full in flat:
                raise ConfigError(full, "is there twice")
            if full not in _BY_NAME:
                raise _unknown(full)
            flat[full] = one
    return load_settings(flat)


def _collect(extra: Mapping[str, Any]) -> dict[str, Any]:
    """The adapter's keys under their full names, flat and nested ones together."""
    given = {name: value for name, value in extra.items() if isinstance(name, str) and "." in name}
    nested = extra.get(NESTED_KEY, {})
    if not isinstance(nested, Mapping):
        raise ConfigError(NESTED_KEY, "expected a mapping of keys")
    for name, value in nested.items():
        full = f"{NESTED_KEY}.{name}"
        if full in given:
            raise ConfigError(full, "is there twice, flat and under hermes_adapter")
        given[full] = value
    for name in given:
        if name not in _BY_NAME:
            raise _unknown(name)
    return given


def _unknown(name: str) -> ConfigError:
    near = difflib.get_close_matches(name, _BY_NAME, n=1)
    return ConfigError(name, "is not a known key" + (f", did you mean {near[0]}?" if near else ""))


def _value(key: Key, given: Mapping[str, Any]) -> Any:
    value = given.get(key.name)
    if value is None:
        if key.required or (key.name in given and key.default is not None):
            raise ConfigError(key.name, "is missing" if key.name not in given else "has no value")
        return key.default
    return _READERS[key.type](key, value)


def _read_text(key: Key, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(key.name, "expected a text")
    if key.pattern is not None and not re.fullmatch(key.pattern, value):
        raise ConfigError(key.name, f"does not match {key.pattern}")
    return value


def _read_uuid(key: Key, value: Any) -> UUID:
    try:
        return value if isinstance(value, UUID) else UUID(_read_text(key, value))
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(key.name, "expected a UUID") from None


def _read_path(key: Key, value: Any) -> Path:
    path = value if isinstance(value, Path) else Path(_read_text(key, value))
    if "\0" in str(path) or not path.is_absolute() or not _can_be_a_name(str(path)):
        raise ConfigError(key.name, "expected an absolute path")
    return path


def _can_be_a_name(text: str) -> bool:
    """Whether the system has bytes for a text: half of a pair, which YAML can write, has none."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True


def _read_integer(key: Key, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(key.name, "expected a whole number")
    return int(_within(key, value))


def _read_number(key: Key, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(key.name, "expected a number")
    return float(_within(key, value))


def _within(key: Key, value: float) -> float:
    if not (key.minimum or 0) <= value <= (key.maximum or 0):  # which is so of nothing that is no number
        raise ConfigError(key.name, f"is not within {key.range} {key.unit}".rstrip())
    return value


def _read_url(key: Key, value: Any) -> str:
    text = _read_text(key, value)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ConfigError(key.name, "expected a URL") from None
    if not _is_host(parts.hostname or "") or not text.isascii() or re.search(r"[\s\x00-\x1f\x7f]", text):
        raise ConfigError(key.name, "expected a URL with a host, in ASCII")
    if key.name == "hermes_adapter.proxy":
        return _check_proxy(key, parts, port)
    if {"?", "#", "@"} & set(text):
        raise ConfigError(key.name, "has credentials, a query or a fragment")
    if {".", ".."} & set(unquote(parts.path).split("/")):
        raise ConfigError(key.name, "has a path with dots for names")
    return _check_server(key, parts, port)


def _is_host(name: str) -> bool:
    """Whether a name can be looked up at all: labels of 1 to 63 characters, or an IPv6 address."""
    return ":" in name or all(0 < len(label) < 64 for label in name.removesuffix(".").split("."))  # noqa: PLR2004  # RFC 1035


def _check_proxy(key: Key, parts: SplitResult, port: int | None) -> str:
    if parts.scheme.lower() != "http" or port is None:
        raise ConfigError(key.name, "expected http://host:port")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(key.name, "has more than a host and a port")
    return parts._replace(scheme="http", path="").geturl()


def _check_server(key: Key, parts: SplitResult, port: int | None) -> str:
    scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    if scheme not in _DEFAULT_PORTS:
        raise ConfigError(key.name, "expected https, or http to this machine")
    if scheme == "http" and not is_loopback(host):
        raise ConfigError(key.name, "plain http is for this machine only, use https")
    shown = f"[{host}]" if ":" in host else host
    suffix = "" if port in (None, _DEFAULT_PORTS[scheme]) else f":{port}"
    return f"{scheme}://{shown}{suffix}{parts.path.rstrip('/')}"


_DEFAULT_PORTS: Mapping[str, int] = {"http": 80, "https": 443}


def is_loopback(host: str) -> bool:
    """Whether a URL's host is this machine by its name or address alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


_READERS: Mapping[KeyType, Callable[[Key, Any], Any]] = {
    KeyType.TEXT: _read_text,
    KeyType.URL: _read_url,
    KeyType.UUID: _read_uuid,
    KeyType.PATH: _read_path,
    KeyType.INTEGER: _read_integer,
    KeyType.NUMBER: _read_number,
}
