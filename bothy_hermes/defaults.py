"""Names and limits that every room may need, in a module that imports nothing.

The plugin entry reads them while Hermes is still starting, so this file stays free of
imports. Every limit says its unit and why it has this value; limits of the protocol live in
`wire`, keys of the configuration in `config`.
"""

VERSION = "0.1.0"
"""The one place of the version; packaging, plugin.yaml's test and the heartbeat read it."""

ADAPTER_NAME = "bothy-hermes"
"""How the adapter names itself to a server, in `identify` and in every heartbeat."""

RUNTIME_NAME = "hermes-agent"
"""How the adapter names Hermes to a server."""

LOGGER_NAME = "bothy_hermes"
"""Fixed, because Hermes loads the package under a name of its own choice."""

DEFAULT_PLATFORM_KEY = "bothy"
"""The platform's name in Hermes unless the operator chose another."""

DEFAULT_CONSUMER = "default"
"""The name under which the adapter reads events unless the operator chose another."""

DEFAULT_MAX_MESSAGE_BYTES = 262_144
"""Longest answer in bytes of UTF-8: the content limit of the protocol."""

DEFAULT_ATTACHMENT_TEXT_MAX_BYTES = 32_768
"""Bytes of a text attachment that enter a turn: about 8,000 tokens, a page the model can hold."""

CONTROL_SENDER = "bothy-adapter-control"
"""The user under which the adapter itself gives Hermes commands; the only admin of the platform."""
