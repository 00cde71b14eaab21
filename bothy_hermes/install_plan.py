"""What a Hermes profile's configuration says about the platform, and the text of a new one.

Layer: rules. Pure: `platform_entries` is the list of keys, each with its reason; `new_config` writes a
configuration of them for a profile that has none. Nothing here reads or writes a file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Value = bool | int | str | Sequence[str]
"""What a key is set to: the kinds of values that Hermes' configuration needs of us."""

HOME_CHANNEL_ID = "00000000-0000-0000-0000-000000000000"
"""A channel that no server has. Hermes nags in every new session until a home channel is named."""

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_NO_STRING_IN_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_YAML_BREAKS = str.maketrans({one: f"\\u{ord(one):04x}" for one in "\x7f\x85\u2028\u2029\ufeff"})
_INDENT = "  "


@dataclass(frozen=True, slots=True)
class Entry:
    """One key of the configuration.

    Attributes:
        path: The names from the top down to the key; a dot inside a name is part of it.
        value: What it is set to.
        reason: Why, as one line for the person who reads the file.
    """

    path: tuple[str, ...]
    value: Value
    reason: str = ""


@dataclass(frozen=True, slots=True)
class InstallRequest:
    """What the installation of the platform in a profile depends on.

    Attributes:
        platform_key: The platform's name in Hermes.
        adapter_keys: The adapter's own keys with their full dotted names, see `config`.
        toolsets: What people in Bothy can make the agent use; None keeps Hermes' default.
        control_user: Under which user ID the adapter itself may give Hermes commands.
        busy_mode: What Hermes does with a message that comes while a turn runs.
    """

    platform_key: str
    adapter_keys: Mapping[str, Value]
    toolsets: tuple[str, ...] | None
    control_user: str
    busy_mode: str = "steer"


def platform_entries(request: InstallRequest) -> tuple[Entry, ...]:
    """Every key that the platform needs in a profile's configuration, in the order of the file."""
    key = request.platform_key
    return (
        Entry(("plugins", "enabled"), [key], "Hermes loads no plugin that is not named here."),
        *_block(request),
        *_toolsets(request),
        *_display(key, request.busy_mode),
        Entry(("streaming", "enabled"), True, "People watch the answer grow."),
        Entry(("onboarding", "profile_build"), "off", "No offer to build a profile in an answer."),
        Entry(
            ("auxiliary", "background_review", "enabled"),
            False,
            "A review after a turn would be paid by nobody's run.",
        ),
        Entry(
            ("agent", "gateway_auto_continue_freshness"),
            1,
            "A turn that a restart cut off is not resumed without a run (seconds).",
        ),
    )


def _block(request: InstallRequest) -> Iterable[Entry]:
    """The platform's own block. All four supported versions read the keys under `extra`."""
    top = ("platforms", request.platform_key)
    home = (*top, "home_channel")
    extra = (*top, "extra")
    yield Entry((*top, "enabled"), True)
    yield Entry((*top, "gateway_restart_notification"), False, "No notice at a restart.")
    yield Entry((*home, "platform"), request.platform_key)
    yield Entry((*home, "chat_id"), HOME_CHANNEL_ID, "A placeholder, so that Hermes does not ask for one.")
    yield Entry((*home, "name"), "none")
    yield Entry((*extra, "dm_policy"), "allowlist", "Bothy's own allow list decides who gets through.")
    yield Entry((*extra, "allow_admin_from"), [request.control_user], "Only the adapter gives commands.")
    for name, value in request.adapter_keys.items():
        yield Entry((*extra, name), value)


def _toolsets(request: InstallRequest) -> Iterable[Entry]:
    if request.toolsets is not None:
        yield Entry(
            ("platform_toolsets", request.platform_key),
            request.toolsets,
            "What people in Bothy can make the agent use.",
        )


def _display(key: str, busy_mode: str) -> Iterable[Entry]:
    """What Hermes would post on its own: the live box shows it instead, or nobody needs it."""
    platform = ("display", "platforms", key)
    yield Entry(("display", "busy_input_mode"), busy_mode, "What becomes of a message during a turn.")
    yield Entry(("display", "busy_ack_enabled"), False, "No messages about Hermes being busy.")
    yield Entry(("display", "background_process_notifications"), "off", "No turns without a run.")
    yield Entry((*platform, "tool_progress"), "off", "Tools are steps of the live box, no messages.")
    yield Entry((*platform, "busy_steer_ack_enabled"), False)
    yield Entry((*platform, "long_running_notifications"), False)
    yield Entry((*platform, "show_reasoning"), False, "What is shown in a terminal is no part of an answer.")
    yield Entry((*platform, "runtime_footer", "enabled"), False, "It names a directory of this machine.")


def new_config(entries: Iterable[Entry]) -> str:
    """Write a whole configuration of these keys.

    Args:
        entries: The keys; two with one path are a mistake of the caller.

    Returns:
        YAML, block style, each string quoted, with the reasons as comments.

    Raises:
        ValueError: Two entries have the same path, or one's path goes through another.
    """
    tree: _Tree = {}
    for entry in entries:
        _put(tree, entry, entry.path)
    return "\n".join(_lines(tree, "")) + "\n"


_Tree = dict[str, "Entry | _Tree"]


def _put(tree: _Tree, entry: Entry, path: tuple[str, ...]) -> None:
    name, *below = path
    found = tree.setdefault(name, {} if below else entry)
    if below and isinstance(found, dict):
        _put(found, entry, tuple(below))
    elif found is not entry:
        raise ValueError(f"two entries want {'.'.join(entry.path)}")


def _lines(tree: _Tree, indent: str) -> Iterable[str]:
    for name, node in tree.items():
        if isinstance(node, Entry):
            if node.reason:
                yield f"{indent}# {node.reason}"
            yield f"{indent}{_key(name)}: {_scalar_or_list(node.value)}"
        else:
            yield f"{indent}{_key(name)}:"
            yield from _lines(node, indent + _INDENT)


def _key(name: str) -> str:
    plain = _PLAIN_KEY.fullmatch(name) and name.lower() not in _NO_STRING_IN_YAML
    return name if plain else _scalar_or_list(name)


def _scalar_or_list(value: Value) -> str:
    """A value as YAML: JSON is YAML, and a quoted "off" stays a string in every version of it."""
    plain = value if isinstance(value, bool | int | str) else list(value)
    return json.dumps(plain, ensure_ascii=False).translate(_YAML_BREAKS)
