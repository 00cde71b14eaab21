"""The adapter's life: lock, disk, server, gateway, events, heartbeats, and the way out.

Layer: flows. Brings the rooms up in the order of docs/protocol.md (section 7), keeps them together
while the gateway lives, and takes them down so that nothing accepted is lost. What an event means is
`admission`'s subject, what a run does `runs`'.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from uuid import UUID

from .admission import Admission
from .bothy_api import BothyApi
from .bothy_credentials import AgentToken, load_signer
from .bothy_gateway import Delivery, Gateway, GatewayEvents
from .bothy_http import HttpTransport, Transport
from .bothy_keys import KeyRing
from .bothy_socket import Connector
from .clock import Clock
from .config import Settings
from .defaults import ADAPTER_NAME, LOGGER_NAME, RUNTIME_NAME, VERSION
from .errors import ProblemAnswer, StateError, WireError, describe
from .handler import Handler
from .proof import Prover
from .pulse import Flags, Pulse
from .recovery import Recovery
from .run_context import ContextReader
from .runtime import Runtime
from .services import Services, Terms
from .status_desk import StatusDesk
from .store import Store
from .store_lock import StateLock
from .wire import Me, Release, Software
from .wire_events import Hello, Identify, Ready
from .wire_words import PROTOCOL_VERSION, DegradedReason

T = TypeVar("T")

_log = logging.getLogger(LOGGER_NAME)

UNAUTHORIZED_PAUSE_SECONDS = 60.0
"""Between two tries with a token that the server refuses: an operator has to put another one there."""

UNREADABLE_PAUSE_SECONDS = 30.0
"""Between two tries with a server whose answer nobody can read: somebody repairs it."""

CLOSE_GRACE_SECONDS = 2.5
"""What the ends of interrupted runs get to reach the server; Hermes allows a disconnect five."""

PRUNE_SECONDS = 3600.0
"""Between two clean-ups of what is settled and old."""

STARTING = "starting"
"""How far the connection is before the server has told who the agent is."""

GATE_SECONDS = 0.1
"""Between two looks whether Hermes takes messages."""

WHOLE_SECONDS = 10.0
"""Between two looks at a Hermes that lacked something."""


async def _nothing() -> Sequence[str]:
    return ()


class AdapterLoop(GatewayEvents):
    """One adapter, from `run` to `stop`.

    Args:
        settings: The configuration.
        runtime: Hermes.
        clock: Time, waiting, randomness, IDs.
        state_dir: Where the adapter keeps what must survive it.
        transport: How requests travel; None for HTTP.
        connector: How gateway connections are opened; None for WebSockets.
        opened: Tells whether Hermes takes messages in; before it does, none are fetched.
        lacking: Finds out what Hermes lacks of what a turn needs; with any of it missing none are fetched.
    """

    def __init__(
        self,
        settings: Settings,
        runtime: Runtime,
        clock: Clock,
        state_dir: Path,
        transport: Transport | None = None,
        *,
        connector: Connector | None = None,
        opened: Callable[[], bool] = lambda: True,
        lacking: Callable[[], Awaitable[Sequence[str]]] = _nothing,
    ) -> None:
        self._settings = settings
        self._runtime = runtime
        self._clock = clock
        self._state_dir = state_dir
        self._transport = transport
        self._connector = connector
        self._opened = opened
        self._lacking = lacking
        self._stop = asyncio.Event()
        self._over = asyncio.Event()
        self._running = False
        self._speaking = asyncio.Event()
        self._recovered = asyncio.Event()
        self._terms = Terms()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flags = Flags(self._poke)
        self._handler: Handler | None = None
        self._admission: Admission | None = None
        self._pulse: Pulse | None = None
        self._desk: StatusDesk | None = None
        self._gateway: Gateway | None = None
        self._recovery: Recovery | None = None

    async def run(self) -> None:
        """Serve until `stop` is called or the server sends this adapter away.

        Raises:
            ConfigError: A key, or what the server says about the agent, cannot be worked with.
            StateError: The state directory cannot be used.
            GatewayRefused: The server refuses this adapter for good.
        """
        self._running = True
        try:
            lock = StateLock.acquire(self._state_dir)
            try:
                await self._with_store()
            finally:
                lock.release()
        finally:
            self._over.set()

    async def stop(self) -> None:
        """Interrupt what runs, store what is owed and return when `run` is over."""
        self._stop.set()
        if self._running:
            await self._over.wait()

    # Bringing up ----------------------------------------------------------------------------------

    async def _with_store(self) -> None:
        store = await Store.open(
            self._state_dir, self._clock, lambda trouble: self._unwritable("store", trouble is not None)
        )
        try:
            transport = self._transport or HttpTransport(
                self._settings.server_url,
                clock=self._clock,
                ca_file=self._settings.ca_file,
                proxy=self._settings.proxy,
            )
            try:
                await self._until_stopped(self._serve(store, transport))
            finally:
                await transport.close()
        finally:
            await store.close()

    async def _until_stopped(self, serving: Coroutine[Any, Any, NoReturn]) -> None:
        task = asyncio.create_task(serving, name="bothy-serve")
        stopping = asyncio.create_task(self._stop.wait(), name="bothy-stop")
        try:
            await asyncio.wait((task, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await self._wind_up(task, stopping)
        if not task.cancelled():
            task.result()

    async def _wind_up(self, *tasks: asyncio.Task[Any]) -> None:
        """End what runs; the judging of events and the rest go on until the runs are over."""
        self._stop.set()
        try:
            if self._handler is not None:
                await self._handler.close(CLOSE_GRACE_SECONDS)
        finally:
            others = (*tasks, *self._tasks)
            for task in others:
                task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._desk is not None:
            await self._desk.publish()

    async def _serve(self, store: Store, transport: Transport) -> NoReturn:
        settings, clock = self._settings, self._clock
        signer = load_signer(settings.dpop_key_file)
        api = BothyApi(settings, transport, clock, AgentToken(settings.token_file), signer)
        services = Services(
            settings=settings,
            api=api,
            store=store,
            runtime=self._runtime,
            prover=Prover(self._runtime),
            context=ContextReader(api, settings, clock),
            clock=clock,
            limits=self._terms.limits,
        )
        # An event that the disk does not take comes again; what a run owes has nowhere else to go.
        self._handler = Handler(dataclasses.replace(services, store=store.patient()))
        self._desk = desk = StatusDesk(
            self._state_dir,
            clock,
            store,
            self._handler,
            dropped=lambda: self._runtime.dropped,
            connection=lambda: STARTING if self._gateway is None else self._gateway.state,
            unwritable=lambda is_so: self._unwritable("status", is_so),
        )
        self._spawn(desk.run(), "bothy-desk")
        keys = KeyRing(api, clock)
        # First: the answer's date sets the clock before the first proof is made.
        await self._readable(keys.fetch)
        me = await self._readable(lambda: self._who_am_i(api))
        gateway = await self._bring_up(services, keys, me.id, self._handler, desk)
        await self._whole()
        await self._gate()
        await gateway.run()
        raise AssertionError("a gateway runs until it is cancelled")

    async def _bring_up(
        self, services: Services, keys: KeyRing, agent_id: UUID, handler: Handler, desk: StatusDesk
    ) -> Gateway:
        """Make the rooms that need to know which agent this is."""
        adapter_id = await services.store.adapter_id()
        self._recovery = Recovery(services, handler, agent_id=agent_id, adapter_id=adapter_id)
        self._admission = Admission(
            services,
            keys,
            handler,
            agent_id=agent_id,
            jkt=services.api.jkt,
            config_changed=lambda: self._config_changed(services),
        )
        self._pulse = Pulse(
            services,
            handler,
            agent_id=agent_id,
            interval=self._terms.heartbeat_seconds,
            flags=self._flags,
            publish=desk.publish,
        )
        self._spawn(self._speak(self._pulse), "bothy-pulse")
        self._spawn(self._prune(services.store), "bothy-prune")
        self._gateway = Gateway(
            services.api,
            self._settings,
            self._clock,
            lambda: self._identify(adapter_id),
            agent_id,
            self,
            self._connector,
        )
        return self._gateway

    async def _whole(self) -> None:
        """Wait for a Hermes that has what a turn needs; of another one the server and the log are told.

        It is looked at again: while Hermes starts, its threads import the same modules, and one that is half
        imported lacks a lot.
        """
        while lacking := await self._lacking():
            if not self._speaking.is_set():
                _log.error(
                    "this Hermes lacks %s; the server is told, no event is fetched", ", ".join(lacking)
                )
                self._flags.set(DegradedReason.RUNTIME_CONTRACT_MISSING, "gate", on=True)
                self._speaking.set()
            await self._clock.sleep(WHOLE_SECONDS)
        self._flags.set(DegradedReason.RUNTIME_CONTRACT_MISSING, "gate", on=False)

    async def _gate(self) -> None:
        """Wait until Hermes takes messages in: before that, it would swallow what is fetched."""
        patience = self._clock.monotonic() + self._settings.restore_wait_seconds
        while not self._opened():
            if self._clock.monotonic() >= patience and not self._speaking.is_set():
                _log.error("Hermes still restores its sessions; the server is told, no event is fetched")
                self._flags.set(DegradedReason.RESTORE_PENDING, "gate", on=True)
                self._speaking.set()
            await self._clock.sleep(GATE_SECONDS)
        self._flags.set(DegradedReason.RESTORE_PENDING, "gate", on=False)

    async def _readable(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until the answer can be read: one that cannot says nothing about this adapter."""
        while True:
            try:
                return await ask()
            except WireError as error:
                _log.error("the server's answer cannot be read (%s); trying again", error)
            await self._clock.sleep(UNREADABLE_PAUSE_SECONDS)

    async def _who_am_i(self, api: BothyApi) -> Me:
        while True:
            try:
                return await api.get_me()
            except ProblemAnswer as problem:
                if problem.status != HTTPStatus.UNAUTHORIZED:
                    raise
                _log.error("the server refuses the token of hermes_adapter.token_file; trying again")
                await self._clock.sleep(UNAUTHORIZED_PAUSE_SECONDS)

    def _identify(self, adapter_id: UUID) -> Identify:
        return Identify(
            consumer=self._settings.consumer,
            adapter_id=adapter_id,
            protocol_version=PROTOCOL_VERSION,
            adapter=Release(name=ADAPTER_NAME, version=VERSION),
            runtime=Software(name=RUNTIME_NAME, version=self._runtime.version),
            max_active_runs=self._settings.max_active_runs,
        )

    # What the gateway tells -----------------------------------------------------------------------

    async def on_ready(self, hello: Hello, ready: Ready) -> None:
        """The server takes this connection."""
        _log.info("connected; %d events wait", ready.pending)
        self._terms.take(hello)
        self._speaking.set()
        if self._recovery is not None and not self._recovered.is_set():
            recovery, self._recovery = self._recovery, None
            self._spawn(self._recover(recovery), "bothy-recover")
        self._poke()

    async def _recover(self, recovery: Recovery) -> None:
        await recovery.run(self._recovered)
        await recovery.watch()

    def on_delivery(self, delivery: Delivery) -> None:
        """An event came: judged in a task of its own, so that reading never waits."""
        if self._stop.is_set():
            return  # not acked: it is delivered again, to the process after this one
        self._spawn(self._admit(delivery, self._clock.monotonic()), "bothy-admit")

    def on_lost(self) -> None:
        """The connection is gone; the gateway makes another."""
        _log.info("the connection to the server is gone")

    async def _admit(self, delivery: Delivery, arrived_at: float) -> None:
        try:
            await self._judge(delivery, arrived_at)
        except Exception as error:  # noqa: BLE001  # a mistake of ours costs one event, which comes again
            named = delivery.event_id or "without an ID"
            _log.error("event %s: its judging broke off: %s", named, describe(error))

    async def _judge(self, delivery: Delivery, arrived_at: float) -> None:
        assert self._admission is not None  # made before the gateway runs
        if not self._recovered.is_set():
            if await self._admission.ack_decided(delivery):
                return
            await self._recovered.wait()
        await self._admission.take(delivery, arrived_at)

    # While it lives -------------------------------------------------------------------------------

    async def _speak(self, pulse: Pulse) -> None:
        """Send heartbeats from the first connection on, or from when there is a reason why there is none."""
        await self._speaking.wait()
        await pulse.run()

    async def _prune(self, store: Store) -> None:
        while True:
            try:
                await store.prune(self._clock.now())
            except StateError as error:
                _log.debug("nothing is cleaned up: %s", error)  # said when the trouble began
            await self._clock.sleep(PRUNE_SECONDS)

    def _unwritable(self, room: str, is_so: bool) -> None:
        self._flags.set(DegradedReason.STATE_UNWRITABLE, room, is_so)

    def _config_changed(self, services: Services) -> None:
        services.context.forget_channels()
        self._poke()

    def _poke(self) -> None:
        if self._pulse is not None:
            self._pulse.poke()

    def _spawn(self, what: Any, name: str) -> None:
        task: asyncio.Task[None] = asyncio.create_task(what, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            _log.error("%s broke off: %s", task.get_name(), describe(error))
