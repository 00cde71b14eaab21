"""What a turn's tools can touch: one class from the names of the toolsets that Hermes enables.

Layer: rules. Fails upwards: a class that is too high only keeps a run from starting, one that is too
low would hide access to the machine. So a toolset is `chat` only when it is named here with a reason,
and every other name, an MCP server's or one from a later Hermes, is `host`. No toolset is `scoped`: that
class needs tools with credentials of their own whose effects ask for an approval, and Hermes has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from .wire_words import ToolClass

CHAT, HOST = ToolClass.CHAT, ToolClass.HOST

_CONVERSATION = "stays inside the conversation"
_MACHINE = "acts on the machine, its files or its programs"
_SERVICE = "sends what it is given to an outside service"
_ACCOUNT = "acts under an account on another service"
_DEVICES = "acts on devices"
_SHARED = "reads or writes what other threads share"
_MANY = "gathers other toolsets, those of the machine among them"
_UNSEEN = "its tools are known only at run time"

TOOLSET_CLASSES: Mapping[str, tuple[ToolClass, str]] = {
    "clarify": (CHAT, _CONVERSATION),
    "todo": (CHAT, _CONVERSATION),
    "bfl": (HOST, _SERVICE),
    "bot_room": (HOST, "takes part in a group chat of agents"),
    "browser": (HOST, _MACHINE),
    "catalog": (HOST, "installs what it finds in a catalogue"),
    "code_execution": (HOST, _MACHINE),
    "coding": (HOST, _MANY),
    "computer_use": (HOST, _MACHINE),
    "connections": (HOST, _ACCOUNT),
    "context_engine": (HOST, _UNSEEN),
    "cronjob": (HOST, "plans work that runs outside the thread"),
    "debugging": (HOST, _MANY),
    "delegation": (HOST, "starts subagents with tools of their own"),
    "desktop_ui": (HOST, _MACHINE),
    "discord": (HOST, _ACCOUNT),
    "discord_admin": (HOST, _ACCOUNT),
    "feishu_doc": (HOST, _ACCOUNT),
    "feishu_drive": (HOST, _ACCOUNT),
    "file": (HOST, _MACHINE),
    "hermes-acp": (HOST, _MANY),
    "hermes-api-server": (HOST, _MANY),
    "hermes-bluebubbles": (HOST, _MANY),
    "hermes-cli": (HOST, _MANY),
    "hermes-cron": (HOST, _MANY),
    "hermes-dingtalk": (HOST, _MANY),
    "hermes-discord": (HOST, _MANY),
    "hermes-email": (HOST, _MANY),
    "hermes-feishu": (HOST, _MANY),
    "hermes-gateway": (HOST, _MANY),
    "hermes-homeassistant": (HOST, _MANY),
    "hermes-matrix": (HOST, _MANY),
    "hermes-mattermost": (HOST, _MANY),
    "hermes-qqbot": (HOST, _MANY),
    "hermes-signal": (HOST, _MANY),
    "hermes-slack": (HOST, _MANY),
    "hermes-sms": (HOST, _MANY),
    "hermes-telegram": (HOST, _MANY),
    "hermes-webhook": (HOST, _SERVICE),
    "hermes-wecom": (HOST, _MANY),
    "hermes-wecom-callback": (HOST, _MANY),
    "hermes-weixin": (HOST, _MANY),
    "hermes-whatsapp": (HOST, _MANY),
    "hermes-yuanbao": (HOST, _MANY),
    "homeassistant": (HOST, _DEVICES),
    "image_gen": (HOST, _SERVICE),
    "kanban": (HOST, _SHARED),
    "memory": (HOST, _SHARED),
    "mqtt": (HOST, _DEVICES),
    "onboarding": (HOST, "changes how the profile is set up"),
    "project": (HOST, _MACHINE),
    "safe": (HOST, "gathers web, vision and image generation"),
    "search": (HOST, _SERVICE),
    "session_search": (HOST, _SHARED),
    "setup": (HOST, "changes how the profile is set up"),
    "skills": (HOST, _SHARED),
    "spotify": (HOST, _ACCOUNT),
    "terminal": (HOST, _MACHINE),
    "tts": (HOST, _SERVICE),
    "video": (HOST, _SERVICE),
    "video_gen": (HOST, _SERVICE),
    "vision": (HOST, _SERVICE),
    "web": (HOST, _SERVICE),
    "x_search": (HOST, _SERVICE),
    "yuanbao": (HOST, _ACCOUNT),
}
"""Every toolset of the supported versions of Hermes: its class and why."""

_ORDER = (ToolClass.CHAT, ToolClass.SCOPED, ToolClass.HOST)


def classify(toolsets: frozenset[str] | None) -> str:
    """Return the class of a set of toolsets: the highest of its members, `chat` for none.

    Args:
        toolsets: The names of toolsets and MCP servers, None when they cannot be told.

    Examples:
        >>> classify(frozenset({"clarify", "todo"}))
        'chat'
        >>> classify(frozenset({"todo", "an-mcp-server"}))
        'host'
    """
    if toolsets is None:
        return ToolClass.HOST.value
    classes = [TOOLSET_CLASSES.get(name, (HOST, ""))[0] for name in toolsets]
    return max(classes, key=_ORDER.index, default=CHAT).value


def exceeds(actual: str, granted: str) -> bool:
    """Tell whether a class is above a granted one.

    A word that nobody knows is above everything when it is ours, and below everything when it was
    granted: either way nothing starts.

    Examples:
        >>> exceeds("host", "chat")
        True
        >>> exceeds("chat", "scoped")
        False
    """
    try:
        return _ORDER.index(ToolClass(actual)) > _ORDER.index(ToolClass(granted))
    except ValueError:
        return True
