"""The table of configuration keys.

Layer: values. What each key means, which values it takes and why its default is what it is: `config`
reads values by it, the README's table and the check command print it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from .defaults import (
    DEFAULT_ATTACHMENT_TEXT_MAX_BYTES,
    DEFAULT_CONSUMER,
    DEFAULT_MAX_MESSAGE_BYTES,
    DEFAULT_PLATFORM_KEY,
)
from .wire_words import MAX_CONTENT_BYTES

MIN_MESSAGE_BYTES = 1_024
"""Below this a message could not hold one part of an answer with its mark."""


class KeyType(StrEnum):
    """The type of a key's value, as documentation names it."""

    TEXT = "text"
    URL = "url"
    UUID = "uuid"
    PATH = "path"
    INTEGER = "integer"
    NUMBER = "number"


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key.

    Attributes:
        name: The full dotted name.
        type: The type of the value.
        unit: What a number counts, empty for others.
        default: The value without the key; None for none.
        required: Whether the key must be there.
        minimum: Smallest number, None for texts.
        maximum: Largest number, None for texts.
        pattern: What a text must match as a whole, None for any.
        reason: What the key is for and why its default is what it is.
    """

    name: str
    type: KeyType
    reason: str
    unit: str = ""
    default: str | int | float | None = None
    required: bool = False
    minimum: float | None = None
    maximum: float | None = None
    pattern: str | None = None

    @property
    def range(self) -> str:
        """The allowed values in words."""
        if self.minimum is not None:
            return f"{self.minimum:g} to {self.maximum:g}" if self.type is KeyType.NUMBER else self._whole()
        if self.pattern is not None:
            return self.pattern
        return _RANGE_WORDS[self.type]

    def _whole(self) -> str:
        return f"{self.minimum:.0f} to {self.maximum:.0f}"


_RANGE_WORDS: Mapping[KeyType, str] = {
    KeyType.TEXT: "any text",
    KeyType.URL: "https, or http to this machine",
    KeyType.UUID: "a UUID",
    KeyType.PATH: "an absolute path",
}


def _text(name: str, default: str | None, pattern: str | None, reason: str) -> Key:
    return Key(name, KeyType.TEXT, reason, default=default, pattern=pattern)


def _path(name: str, reason: str, *, required: bool = False) -> Key:
    return Key(name, KeyType.PATH, reason, required=required)


def _whole(name: str, unit: str, default: int, limits: tuple[int, int], reason: str) -> Key:
    return Key(
        name, KeyType.INTEGER, reason, unit=unit, default=default, minimum=limits[0], maximum=limits[1]
    )


def _seconds(name: str, default: float, limits: tuple[float, float], reason: str) -> Key:
    return Key(
        name, KeyType.NUMBER, reason, unit="seconds", default=default, minimum=limits[0], maximum=limits[1]
    )


DEFAULT_MAX_ACTIVE_RUNS = 8
"""Two less than Hermes' turn workers, which other platforms need as well."""

DEFAULT_API_MAX_ACTIVE_RUNS = 4
"""With Hermes' Runs API: its server refuses more at once than it was started for."""

KEYS: tuple[Key, ...] = (
    _text(
        "hermes_adapter.platform_key",
        DEFAULT_PLATFORM_KEY,
        r"[a-z][a-z0-9_-]{0,31}",
        "The platform's name in Hermes and of its state directory.",
    ),
    _text(
        "hermes_adapter.consumer",
        DEFAULT_CONSUMER,
        r"[A-Za-z0-9._-]{1,100}",
        "The name under which events are read; one live connection each.",
    ),
    Key(
        "hermes_adapter.server_url",
        KeyType.URL,
        "The API base of the Bothy server; plain http only to this machine.",
        required=True,
    ),
    Key(
        "hermes_adapter.instance_id",
        KeyType.UUID,
        "The instance that run tokens must come from.",
        required=True,
    ),
    _path("hermes_adapter.token_file", "The file with the agent's token, mode 0600.", required=True),
    _path("hermes_adapter.dpop_key_file", "The P-256 key that binds the tokens (PEM, mode 0600)."),
    _whole(
        "hermes_adapter.max_message_bytes",
        "bytes of UTF-8",
        DEFAULT_MAX_MESSAGE_BYTES,
        (MIN_MESSAGE_BYTES, MAX_CONTENT_BYTES),
        "Longest message; a longer answer goes out in parts. The default is the protocol's limit.",
    ),
    _whole(
        "hermes_adapter.attachment_text_max_bytes",
        "bytes",
        DEFAULT_ATTACHMENT_TEXT_MAX_BYTES,
        (0, 1_048_576),
        "Bytes of a text file that enter a turn; 0 names files only. The default is a page a model can hold.",
    ),
    _whole(
        "hermes_adapter.max_active_runs",
        "runs",
        DEFAULT_MAX_ACTIVE_RUNS,
        (1, 100),
        "Runs at the same time; 4 with hermes_api.url. The default leaves two of Hermes' ten workers free.",
    ),
    _seconds(
        "hermes_adapter.restore_wait_seconds",
        120.0,
        (0.0, 3_600.0),
        "How long Hermes may restore sessions before the adapter reports itself degraded.",
    ),
    _path("hermes_adapter.ca_file", "Certificates (PEM) trusted instead of the system's."),
    Key(
        "hermes_adapter.proxy",
        KeyType.URL,
        "An HTTP proxy, http://host:port; the process environment is not read.",
    ),
    _seconds(
        "adapter.run_update_min_interval",
        1.0,
        (0.0, 60.0),
        "Shortest time between two updates of a live box; the server's own limit counts when longer.",
    ),
    _seconds(
        "adapter.request_timeout_seconds",
        30.0,
        (1.0, 600.0),
        "Longest time of one HTTP attempt, from its first byte to the answer's last.",
    ),
    Key("hermes_api.url", KeyType.URL, "Hermes' API server, for the serve command only."),
    _path("hermes_api.key_file", "The file with that server's key, mode 0600."),
    _path("hermes_api.profile_home", "The home of the profile it serves, when it is on this machine."),
    _path("hermes_api.python", "The Python of that Hermes, to ask which credential it uses."),
    _text("hermes_api.model", None, r"\S(.{0,198}\S)?", "The model to ask for; without it Hermes' own."),
    _seconds(
        "hermes_api.deadline_seconds",
        1_800.0,
        (1.0, 86_400.0),
        "Longest turn; half an hour is longer than any turn that still makes progress.",
    ),
    _seconds(
        "hermes_api.stop_timeout_seconds",
        5.0,
        (0.1, 60.0),
        "How long a stopped turn may take to end before it is given up.",
    ),
    _seconds(
        "hermes_api.approval_timeout_seconds",
        300.0,
        (1.0, 86_400.0),
        "How long an approval may wait for its answer; Hermes' own default.",
    ),
)
"""Every key, in the order in which documentation lists them."""
