"""A server, a scripted model and a throwaway Hermes profile with its gateway, brought up and down.

Layer: doors. The demo command and the live tests work in such a world; everything of it lies below one
directory, and nothing of it outlives `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

from .clock import Clock
from .demo_person import Person
from .demo_profile import TOOLSETS, ModelChoice, make_profile
from .gateway_process import GatewayPlace, GatewayProcess
from .install_plan import Entry, Value
from .local_model import CONTEXT_TOKENS, MODEL_NAME, ScriptedModel
from .local_options import ServerOptions
from .local_port import LocalServer


class DemoWorld:
    """The three programs of the demo.

    Args:
        root: The directory; made when it is not there.
        clock: Time and IDs.
        environment: Variables for the gateway beside its own (a test's coverage).

    Attributes:
        server: The embedded server, once `open` was called.
        model: The scripted model, once `open` was called.
        gateway: The gateway's process; `start_gateway` starts it.
    """

    server: LocalServer
    model: ScriptedModel

    def __init__(self, root: Path, clock: Clock, environment: Mapping[str, str] | None = None) -> None:
        self.root = root
        self._clock = clock
        self._stack = ExitStack()
        self.gateway = GatewayProcess(GatewayPlace(root / "gateway"), clock, environment or {})

    def open(
        self,
        *,
        options: ServerOptions | None = None,
        toolsets: tuple[str, ...] = TOOLSETS,
        more: Iterable[Entry] = (),
        adapter_keys: Mapping[str, Value] | None = None,
    ) -> None:
        """Start the server and the model, and place the profile.

        Args:
            options: The server's options.
            toolsets: What the agent can use.
            more: Further keys of Hermes' configuration.
            adapter_keys: Further keys of the adapter.

        Raises:
            StateError: The server's state directory is in use.
        """
        self.server = LocalServer.start(
            self.root / "server", clock=self._clock, options=options or ServerOptions()
        )
        self._stack.callback(self.server.stop)
        self.model = ScriptedModel.start(clock=self._clock)
        self._stack.callback(self.model.stop)
        keys = adapter_keys_of(self.server) | dict(adapter_keys or {})
        choice = ModelChoice(self.model.base_url, MODEL_NAME, CONTEXT_TOKENS)
        make_profile(self.gateway.place, choice, keys, toolsets=toolsets, more=more)

    def start_gateway(self, tell: Callable[[str], None]) -> None:
        """Start Hermes and wait until the server sees its platform.

        Args:
            tell: Takes a line for the person who waits.

        Raises:
            StartFailed: Hermes is missing or does not come up.
        """
        self.gateway.start_until(lambda: self.server.connected, tell)

    @property
    def login_url(self) -> str:
        """The page, for the person whom the server knows first: the agent's owner."""
        return self.server.people[0].login_url

    def person(self) -> Person:
        """The same person as a client."""
        return Person.from_page(self.login_url, self._clock)

    def close(self, tell: Callable[[str], None] = lambda _line: None) -> None:
        """Stop everything that was started, the gateway first: it still has things to report.

        Args:
            tell: Takes a line for the person who waits; must not raise.
        """
        with self._stack:
            self.gateway.stop(tell=tell)


def adapter_keys_of(server: LocalServer) -> dict[str, Value]:
    """The adapter's keys for a server on this machine."""
    keys: dict[str, Value] = {
        "hermes_adapter.server_url": server.api_url,
        "hermes_adapter.instance_id": str(server.instance_id),
        "hermes_adapter.token_file": str(server.agent.token_file),
    }
    if server.agent.dpop_key_file is not None:
        keys["hermes_adapter.dpop_key_file"] = str(server.agent.dpop_key_file)
    return keys
