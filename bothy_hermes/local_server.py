"""The command `local-server`: start the embedded server, say how to get in, stop cleanly.

Layer: default. Another address than this machine's own needs a word of consent, because the server
speaks plain HTTP.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import re
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .dpop import target_uri
from .errors import ConfigError
from .local_options import ServerOptions
from .local_port import LocalServer
from .wire_words import BillingMode, ToolClass

REMOTE_SENTENCE = (
    "This server speaks plain HTTP and listens beyond this machine: put a proxy with TLS in front of it, "
    "name its address with --public-url, or everyone on the way reads along.\n"
)


MAX_PORT = 65_535

_PRINTABLE = re.compile(r"[\x21-\x7e]+")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options to a parser."""
    defaults = ServerOptions()
    add = parser.add_argument
    parser.description = "Start the embedded Bothy server and print how to get in."
    add("--state", metavar="DIR", type=Path, help="where the server keeps its state (gone with it without)")
    add("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    add("--port", type=int, default=0, help="port to listen on (a free one)")
    add("--allow-remote", action="store_true", help="consent to an address beyond this machine")
    add("--public-url", metavar="URL", help="the agent API's base as adapters know it (behind a proxy)")
    add("--json", action="store_true", help="print exactly one line of JSON when the server is ready")
    add(
        "--tool-class",
        choices=[str(one) for one in ToolClass],
        default=str(defaults.tool_class),
        help="the strongest tools that new runs may use (%(default)s)",
    )
    add(
        "--billing-mode",
        choices=[str(one) for one in BillingMode],
        default=str(defaults.billing_mode),
        help="whose money new runs spend (%(default)s)",
    )
    add("--dpop", action="store_true", help="bind the agent's tokens to a key (when the state is new)")
    add("--no-costs", action="store_true", help="book no costs")


def serve(options: argparse.Namespace) -> int:
    """Run the server until SIGTERM, Ctrl-C, or the end of its terminal (unless under `nohup`).

    Args:
        options: What `add_arguments` reads.

    Raises:
        ConfigError: An option cannot be used.
        StateError: The state directory or the port cannot be used.
    """
    if not options.host:
        raise ConfigError("--host", "expected an address")
    remote = not is_loopback(options.host)
    if remote and not options.allow_remote:
        raise ConfigError("--host", "is not an address of this machine alone; add --allow-remote to consent")
    if not 0 <= options.port <= MAX_PORT:
        raise ConfigError("--port", f"expected 0 to {MAX_PORT}")
    if options.public_url is not None:
        options.public_url = read_public_url(options.public_url)
    stop = threading.Event()
    with contextlib.ExitStack() as stack:
        for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            before = signal.getsignal(name)
            if name == signal.SIGHUP and before is signal.SIG_IGN:
                continue
            signal.signal(name, lambda _number, _frame: stop.set())
            stack.callback(signal.signal, name, before)
        state = options.state or stack.enter_context(tempfile.TemporaryDirectory(prefix="bothy-server-"))
        server = _start(options, Path(state))
        stack.callback(server.stop)
        if options.dpop and server.agent.dpop_key_file is None:
            raise ConfigError("--dpop", "is for a new state; this one was made without a key")
        if remote:
            sys.stderr.write(REMOTE_SENTENCE)
        sys.stdout.write(json.dumps(ready(server)) + "\n" if options.json else _sentences(server))
        sys.stdout.flush()
        stop.wait()
    return 0


def _start(options: argparse.Namespace, state: Path) -> LocalServer:
    return LocalServer.start(
        state,
        host=options.host,
        port=options.port,
        options=ServerOptions(
            tool_class=ToolClass(options.tool_class),
            billing_mode=BillingMode(options.billing_mode),
            dpop=options.dpop,
            costs_enabled=not options.no_costs,
            public_url=options.public_url,
        ),
    )


def read_public_url(text: str) -> str:
    """Return the API's base as adapters have it, without a slash at its end.

    Raises:
        ConfigError: No adapter could use it.
    """
    try:
        target_uri(text)
    except ValueError as error:
        raise ConfigError("--public-url", str(error)) from None
    parts = urlsplit(text)
    if "?" in text or "#" in text or not _PRINTABLE.fullmatch(text):
        raise ConfigError("--public-url", "expected a URL without query, fragment and blanks")
    if parts.scheme.lower() != "https" and not is_loopback(parts.hostname or ""):
        raise ConfigError("--public-url", "expected https: adapters take http on their own machine only")
    return text.rstrip("/")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def ready(server: LocalServer) -> dict[str, Any]:
    """Return what another program has to know of a running server."""
    agent = server.agent
    return {
        "api_url": server.api_url,
        "page_url": server.page_url,
        "instance_id": str(server.instance_id),
        "agent": {
            "id": str(agent.id),
            "token_file": str(agent.token_file),
            "dpop_key_file": None if agent.dpop_key_file is None else str(agent.dpop_key_file),
        },
        "people": [
            {
                "id": str(one.id),
                "name": one.name,
                "role": one.role,
                "token": one.token,
                "login_url": one.login_url,
            }
            for one in server.people
        ],
    }


def _sentences(server: LocalServer) -> str:
    agent = server.agent
    lines = ["The server is ready.", "", "People open:"]
    lines += [f"  {one.name} ({one.role}): {one.login_url}" for one in server.people]
    lines += [
        "",
        "The adapter needs:",
        f"  hermes_adapter.server_url: {server.api_url}",
        f"  hermes_adapter.instance_id: {server.instance_id}",
        f"  hermes_adapter.token_file: {agent.token_file}",
    ]
    if agent.dpop_key_file is not None:
        lines.append(f"  hermes_adapter.dpop_key_file: {agent.dpop_key_file}")
    return "\n".join([*lines, "", "Ctrl-C stops it.", ""])
