"""The server as a whole: one port, one thread with one event loop, one state directory.

Layer: default. It puts the parts together and gives them time. Connections are served in
`local_sockets`; what requests mean is decided in `local_agents` (the agent API), `local_people` (people
and the page) and `local_gateway` (WebSocket).
"""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from .clock import Clock, system_clock
from .errors import StateError
from .local_agents import API_BASE, AgentSide, Fault
from .local_gateway import RESTARTING, Gateways
from .local_http import MAX_HEAD_BYTES, Request
from .local_instance import Instance
from .local_options import ServerOptions
from .local_people import PeopleSide
from .local_sockets import Sockets
from .local_store import LocalStore
from .local_tokens import DPOP_KEY_FILE, TOKEN_FILE

WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # they are recognised, not chosen
"""Addresses that stand for every one of the machine, each with the one of its kind for the machine itself."""

TICK_SECONDS = 0.25
"""How often the server looks whether something is due."""

ACCEPT_ROUNDS = 10
"""Rounds of the loop until a connection that was accepted is served: asyncio takes about four."""

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, slots=True)
class AgentAccess:
    """How the adapter gets in.

    Attributes:
        id: The agent's ID.
        token_file: Where its token lies.
        dpop_key_file: Where its DPoP key lies, None without one.
    """

    id: UUID
    token_file: Path
    dpop_key_file: Path | None


@dataclasses.dataclass(frozen=True, slots=True)
class PersonAccess:
    """How a person gets in.

    Attributes:
        id: The person's ID.
        name: The display name.
        role: What the person is to the instance.
        token: The login token.
        login_url: The page with the login token in its fragment, which no server sees.
    """

    id: UUID
    name: str
    role: str
    token: str = dataclasses.field(repr=False)
    login_url: str = dataclasses.field(repr=False)


class LocalServer:
    """A running server; `start` makes one.

    Attributes:
        instance: The domain.
        violations: What the adapter did that the protocol forbids, as `operation: reason`.
    """

    def __init__(self, instance: Instance, host: str, port: int) -> None:
        self.instance = instance
        self._host = host
        self._port = port
        self._agents = AgentSide(instance, lambda: self.api_url)
        self._gateways = Gateways(instance, self._agents.report)
        people = PeopleSide(instance, self._origins)
        self._sockets = Sockets(instance, self._agents, people, self._gateways)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run_loop, name="bothy-server", daemon=True)
        self._pumping = False
        self._undo: AsyncExitStack = AsyncExitStack()

    @classmethod
    def start(
        cls,
        state_dir: Path | str,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: Clock | None = None,
        options: ServerOptions | None = None,
    ) -> LocalServer:
        """Open a state directory and serve it.

        Args:
            state_dir: Made when it is missing.
            host: The address to listen on.
            port: The port, 0 for a free one.
            clock: Time, chance and IDs; the machine's by default.
            options: Of this start.

        Raises:
            StateError: The directory cannot be used, another server has it, or the port is taken.
        """
        store = LocalStore(Path(state_dir))
        try:
            instance = Instance(store, clock or system_clock(), options or ServerOptions())
            server = cls(instance, host, port)
        except BaseException:
            store.close()
            raise
        server._thread.start()
        try:
            server._call(server._listen())
        except (OSError, OverflowError, ValueError) as error:
            server._end()
            raise StateError(f"{host}:{port}", f"cannot be listened on ({_why(error)})") from None
        return server

    # How to get in ---------------------------------------------------------------------------------

    @property
    def origin(self) -> str:
        """Scheme, host and port under which this machine reaches the server."""
        return f"http://{bracketed(WILDCARDS.get(self._host, self._host))}:{self._port}"

    @property
    def api_url(self) -> str:
        """The agent API's base, the adapter's `server_url`; proofs are made for it."""
        return self.instance.options.public_url or f"{self.origin}{API_BASE}"

    @property
    def page_url(self) -> str:
        """The page: at the public address when a proxy with TLS gives the whole server one."""
        public = urlsplit(self.instance.options.public_url or "")
        whole = public.scheme.lower() == "https" and public.path == API_BASE
        return f"{self.instance.options.public_origin if whole else self.origin}/"

    @property
    def instance_id(self) -> UUID:
        """The instance's ID."""
        return self.instance.id

    @property
    def agent(self) -> AgentAccess:
        """The agent's credentials."""
        agent, folder = self.instance.agent, self.instance.store.directory.absolute()
        key_file = folder / DPOP_KEY_FILE if agent.dpop_jkt is not None else None
        return AgentAccess(agent.id, folder / TOKEN_FILE, key_file)

    @property
    def people(self) -> tuple[PersonAccess, ...]:
        """Every person's credentials."""
        return tuple(
            PersonAccess(
                id=one.id,
                name=one.name,
                role=str(one.role),
                token=one.token.reveal(),
                login_url=f"{self.page_url}#token={one.token.reveal()}",
            )
            for one in self.instance.people()
        )

    # For tests and the demo ------------------------------------------------------------------------

    @property
    def violations(self) -> list[str]:
        """What the adapter did that the protocol forbids."""
        return self._agents.violations

    @property
    def connected(self) -> bool:
        """Whether a consumer is connected and has sent a heartbeat since."""
        return any(one.connected and one.fresh for one in self.instance.consumers())

    @property
    def fault(self) -> Callable[[str, Request], Fault | None] | None:
        """Asked for a disturbance before each operation of the adapter, None to ask nobody."""
        return self._agents.fault

    @fault.setter
    def fault(self, fault: Callable[[str, Request], Fault | None] | None) -> None:
        self._agents.fault = fault

    def tick(self) -> None:
        """Do at once what is due by the clock."""
        self._call(self._tick())

    def leave(self, code: int) -> None:
        """Say goodbye on every gateway connection and close it with a code."""
        self._call(self._leave(code))

    def cut(self, consumer: str | None = None) -> None:
        """Drop gateway connections without a word, as a broken network does."""
        self._call(self._cut(consumer))

    def stop(self) -> None:
        """Say goodbye, end every connection and close the state directory; harmless when repeated."""
        if not self._thread.is_alive():
            return
        self._call(self._shut_down())
        self._end()

    # The loop --------------------------------------------------------------------------------------

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self.instance.close()

    async def _listen(self) -> None:
        listener = await asyncio.start_server(
            self._sockets.accept, self._host, self._port, limit=MAX_HEAD_BYTES
        )
        self._port = listener.sockets[0].getsockname()[1]
        ticker = asyncio.create_task(self._tick_forever())
        forget = self.instance.changes.listen(self._wake)
        # The last one is undone first: no new connection, the open ones end, then nothing is due any more.
        self._undo.push_async_callback(_cancel, ticker)
        self._undo.callback(forget)
        self._undo.push_async_callback(self._sockets.end)
        self._undo.callback(self._gateways.leave, RESTARTING)
        self._undo.push_async_callback(_stop_listening, listener)

    async def _shut_down(self) -> None:
        await self._undo.aclose()

    async def _tick_forever(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECONDS)
            await self._tick()

    async def _tick(self) -> None:
        try:
            self.instance.events.tick()
            self._gateways.pump()
        except Exception as error:  # noqa: BLE001  # the next tick may do better
            self._agents.failed("tick", error)

    def _wake(self) -> None:
        """Look for due events soon; called in any thread after each commit."""
        if not self._pumping and not self._loop.is_closed():
            self._pumping = True
            self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        try:
            self._gateways.pump()
        except Exception as error:  # noqa: BLE001  # the next commit or tick may do better
            self._agents.failed("pump", error)

    def _origins(self) -> frozenset[str]:
        names = {self._host, "127.0.0.1", "localhost", "::1"}
        found = {f"http://{bracketed(name)}:{self._port}".lower() for name in names}
        public = self.instance.options.public_origin
        return frozenset(found | ({public} if public else set()))

    async def _leave(self, code: int) -> None:
        self._gateways.leave(code)

    async def _cut(self, consumer: str | None) -> None:
        self._gateways.cut(consumer)


def _why(error: OSError | OverflowError | ValueError) -> str:
    """Say why an address is not listened on, without what asyncio says around it."""
    if isinstance(error, OverflowError):
        return "no such port"
    if not isinstance(error, OSError):  # a name with an empty or too long part is not even looked up
        return "no such address"
    known = error.errno in errno.errorcode
    return os.strerror(error.errno) if known and error.errno is not None else str(error.strerror or error)


async def _stop_listening(listener: asyncio.Server) -> None:
    """Accept nothing any more, and close once what was accepted is served: asyncio forgets the rest."""
    for one in listener.sockets:
        asyncio.get_running_loop().remove_reader(one.fileno())
    for _ in range(ACCEPT_ROUNDS):
        await asyncio.sleep(0)
    listener.close()


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL."""
    return f"[{host}]" if ":" in host else host
