"""An adapter with a fake Hermes on a real embedded server, as one world for a flow test.

Everything that passes between the two is held to the frozen protocol, and the server counts violations.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from bothy_hermes.bothy_http import HttpTransport
from bothy_hermes.bothy_loop import AdapterLoop
from bothy_hermes.bothy_socket import SocketConnector
from bothy_hermes.clock import Clock, system_clock
from bothy_hermes.config import Settings, load_settings
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer
from bothy_hermes.wire import RunView
from bothy_hermes.wire_words import RunState
from tests.fakes.judged import Judge, JudgedConnector, JudgedTransport
from tests.fakes.runtime import FakeRuntime

PATIENCE = 20.0
"""Seconds until a test gives up waiting; nothing that works takes one of them."""

OPTIONS = ServerOptions(run_update_min_interval_ms=50, heartbeat_interval_ms=30_000)


@dataclass
class World:
    """One server, one adapter, one fake Hermes.

    Attributes:
        server: The server.
        runtime: Hermes.
        state_dir: The adapter's state directory.
        keys: Configuration keys beside the usual.
        clock: The adapter's time.
        judge: Sees what passes between adapter and server.
        loop: The adapter, while it was started.
        task: Its run.
        provoked: Violations that the test itself brings about.
    """

    server: LocalServer
    runtime: FakeRuntime
    state_dir: Path
    keys: dict[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=system_clock)
    judge: Judge = field(default_factory=Judge)
    loop: AdapterLoop | None = None
    task: asyncio.Task[None] | None = None
    provoked: frozenset[str] = frozenset()

    @property
    def instance(self):
        """The server's domain, to act as a person or to look."""
        return self.server.instance

    @property
    def ada(self) -> UUID:
        """The agent's owner."""
        return self.server.people[0].id

    async def start_adapter(self) -> None:
        """Start the adapter and wait until the server has its heartbeat."""
        self.loop = self.new_loop(self.settings())
        self.task = asyncio.ensure_future(self.loop.run())
        # The server may not have noticed yet that the adapter before it is gone, and show that one's link.
        await self.until(lambda: self.task.done() or (self.loop._handler is not None and self.connected()))
        if self.task.done():
            await self.task

    def settings(self) -> Settings:
        """The adapter's configuration."""
        server = self.server
        return load_settings(
            adapter_keys(server.api_url, server.instance_id, server.agent.token_file) | self.keys
        )

    def new_loop(self, settings: Settings) -> AdapterLoop:
        """An adapter whose requests, answers and frames the judge sees."""
        return AdapterLoop(
            settings,
            self.runtime,
            self.clock,
            self.state_dir,
            JudgedTransport(HttpTransport(settings.server_url, clock=self.clock), self.judge),
            connector=JudgedConnector(SocketConnector(None, None), self.judge),
        )

    def connected(self) -> bool:
        """Whether the server has a live connection and a heartbeat of the adapter."""
        return any(view.connected and view.heartbeat is not None for view in self.instance.consumers())

    async def stop_adapter(self) -> None:
        """Stop the adapter as its operator would."""
        if self.loop is not None and self.task is not None:
            await self.loop.stop()
            await self.task
            self.loop = self.task = None

    async def kill_adapter(self) -> None:
        """End the adapter's work where it stands, without its way out (as far as one process can)."""
        assert self.task is not None
        handler = self.loop._handler
        handler._closed = True  # nothing begins any more
        for task in list(handler._tasks.values()):
            task.cancel()
        handler._works.clear()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.loop = self.task = None

    def thread(self) -> UUID:
        """Open a thread."""
        return self.instance.create_thread(self.ada, None, None).id

    def say(self, thread_id: UUID, text: str, **more: Any) -> UUID | None:
        """Post a message to the agent; returns the run that it opened."""
        posted = self.instance.post_message(self.ada, thread_id, text, client_msg_id=str(uuid4()), **more)
        return posted.run_id

    async def ended(self, run_id: UUID) -> RunView:
        """Wait until a run has ended and the adapter is done with it."""
        await self.until(lambda: self.instance.run(run_id).run.state.ended)
        await self.until(lambda: self.loop is None or not self.loop._handler.knows(run_id))
        return self.instance.run(run_id)

    async def in_state(self, run_id: UUID, state: RunState) -> None:
        """Wait until a run is in a state."""
        await self.until(lambda: self.instance.run(run_id).run.state is state)

    def texts(self, thread_id: UUID, run_id: UUID) -> list[tuple[str, str]]:
        """The agent's messages of a run: role and content."""
        return [
            (str(message.role), message.content)
            for message in self.instance.messages(thread_id)
            if message.run_id == run_id and message.client_msg_id is not None and message.role is not None
        ]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition; fails after `PATIENCE`."""
        async with asyncio.timeout(PATIENCE):
            while not condition():  # noqa: ASYNC110  # the other side is a thread of its own
                await asyncio.sleep(0.005)


def adapter_keys(api_url: str, instance_id: object, token_file: object) -> dict[str, Any]:
    """The configuration keys of an adapter of a test server."""
    return {
        "hermes_adapter.server_url": api_url,
        "hermes_adapter.instance_id": str(instance_id),
        "hermes_adapter.token_file": str(token_file),
        "adapter.run_update_min_interval": 0.05,
    }


@contextlib.asynccontextmanager
async def world(
    tmp_path: Path,
    runtime: FakeRuntime | None = None,
    *,
    options: ServerOptions = OPTIONS,
    start: bool = True,
    kind: type[World] = World,
    **keys: Any,
) -> AsyncIterator[World]:
    """A world for a test; at its end nobody may have left the protocol."""
    server = LocalServer.start(tmp_path / "server", clock=system_clock(), options=options)
    made = kind(server, runtime or FakeRuntime(), tmp_path / "adapter", keys)
    try:
        if start:
            await made.start_adapter()
        yield made
        await made.stop_adapter()
        assert [one for one in made.server.violations if one not in made.provoked] == []
        assert made.judge.found == []
    finally:
        if made.task is not None:
            made.task.cancel()
            await asyncio.gather(made.task, return_exceptions=True)
        made.server.stop()
