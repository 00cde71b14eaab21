"""The client drives every operation of the protocol against the embedded server, which counts violations."""

import asyncio
import dataclasses
from collections import Counter
from uuid import uuid4

import pytest

from bothy_hermes.bothy_api import AgentToken, BothyApi, TokenSource
from bothy_hermes.bothy_credentials import load_signer
from bothy_hermes.bothy_gateway import Gateway, GatewayEvents
from bothy_hermes.bothy_http import HttpTransport
from bothy_hermes.clock import system_clock
from bothy_hermes.codec import parse
from bothy_hermes.config import load_settings
from bothy_hermes.errors import RunEnded, VersionConflict
from bothy_hermes.local_agents import Fault
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_port import LocalServer
from bothy_hermes.reconnect import ConnectionState
from bothy_hermes.tokens import KeySet, verify_run_token
from bothy_hermes.wire import (
    AwaitRunInput,
    CloseCard,
    ComponentCreate,
    CreateMessage,
    Evidence,
    FinishRun,
    Followup,
    Heartbeat,
    InteractionResponse,
    Metrics,
    ReportAgentSession,
    ResumeRun,
    SetThreadTitle,
    Software,
    StartRun,
    UpdateMessage,
    UpdateRun,
)
from bothy_hermes.wire_events import Event, Identify, parse_payload
from bothy_hermes.wire_operations import OPEN_GATEWAY, OPERATIONS
from bothy_hermes.wire_words import (
    BillingMode,
    CloseReason,
    ComponentKind,
    EvidenceMethod,
    FollowupState,
    InteractionStatus,
    KeyType,
    MessageKind,
    MessageRole,
    Outcome,
    Restriction,
    ResumeCause,
    RunState,
)
from tests.fakes.wire_examples import EXAMPLES

PATIENCE = 20.0
EVIDENCE = {
    "billing_mode": BillingMode.ORGANIZATION,
    "billing_evidence": Evidence(
        provider="anthropic", key_type=KeyType.API_KEY, method=EvidenceMethod.RESOLVED_CREDENTIALS
    ),
    "tool_class": "host",
}


class RunAuth(TokenSource):
    """The token of the last event of a run, renewed with the agent's when it is refused."""

    def __init__(self, api, run_id, token):
        self._api, self._run_id, self.current = api, run_id, token

    async def token(self):
        return self.current

    async def refused(self, token, code):
        self.current = await self._api.renew_run_token(self._run_id)
        return True


class Adapter(GatewayEvents):
    """A client with a gateway, and the events that came."""

    def __init__(self, server):
        access = server.agent
        keys = {
            "server_url": server.api_url,
            "instance_id": str(server.instance_id),
            "token_file": str(access.token_file),
        }
        if access.dpop_key_file is not None:
            keys["dpop_key_file"] = str(access.dpop_key_file)
        self.settings = load_settings({"hermes_adapter": keys})
        # Waits without their jitter: retries follow at once.
        self.clock = dataclasses.replace(system_clock(), uniform=lambda low, _high: low)
        self.transport = HttpTransport(self.settings.server_url, clock=self.clock)
        signer = load_signer(self.settings.dpop_key_file)
        token = AgentToken(self.settings.token_file)
        self.api = BothyApi(self.settings, self.transport, self.clock, token, signer)
        self.agent_id = access.id
        self.inbox = asyncio.Queue()
        self.ready = asyncio.Event()
        self.gateway = Gateway(self.api, self.settings, self.clock, self.identify, access.id, self)
        self.adapter_id = uuid4()

    def identify(self):
        software = Software(name="bothy-hermes", version="1")
        return Identify(
            consumer=self.settings.consumer,
            adapter_id=self.adapter_id,
            protocol_version=1,
            adapter=software,
            runtime=Software(name="hermes-agent"),
            max_active_runs=4,
        )

    async def on_ready(self, hello, ready):
        self.ready.set()

    def on_delivery(self, delivery):
        self.inbox.put_nowait(delivery)

    def on_lost(self):
        self.ready.clear()

    async def take(self, kind):
        """The next event, acked; it must be of that type."""
        async with asyncio.timeout(PATIENCE):
            delivery = await self.inbox.get()
        event = parse(Event, delivery.event)
        assert event.type == kind
        await delivery.ack(event.id)
        return event, parse_payload(event)


def text(content):
    return CreateMessage(
        client_msg_id=str(uuid4()), kind=MessageKind.TEXT, role=MessageRole.ANSWER, content=content
    )


def card(content, *buttons):
    components = tuple(
        ComponentCreate(
            custom_id=name,
            kind=ComponentKind.BUTTON,
            label=name,
            single_use=True,
            restricted_to=Restriction.ANYONE,
        )
        for name in buttons
    )
    return CreateMessage(
        client_msg_id=str(uuid4()),
        kind=MessageKind.CARD,
        role=MessageRole.INTERIM,
        content=content,
        components=components,
    )


class Tour:
    """One run with everything in it, told by an adapter that uses nothing but the client."""

    def __init__(self, server, adapter):
        self.instance = server.instance
        self.ada = server.people[0].id
        self.adapter = adapter
        self.api = adapter.api

    def say(self, words, **more):
        return self.instance.post_message(self.ada, self.thread, words, client_msg_id=str(uuid4()), **more)

    async def whole(self):
        await self.before()
        await self.begin()
        await self.show()
        await self.ask()
        await self.follow_up()
        await self.end()

    async def before(self):
        """What an adapter does once: keys, identity, connection, heartbeat, allow list."""
        self.keys = KeySet.from_body(await self.api.get_jwks())
        me = await self.api.get_me()
        assert me.id == self.adapter.agent_id
        async with asyncio.timeout(PATIENCE):
            await self.adapter.ready.wait()
        await self.api.put_heartbeat(me.id, parse(Heartbeat, EXAMPLES[Heartbeat]()))
        listed = await self.api.get_allow_list(me.id, None)
        assert await self.api.get_allow_list(me.id, listed.version) is None
        self.thread = self.instance.create_thread(self.ada, None, None).id
        self.file = self.instance.add_file(self.ada, self.thread, "a.txt", "text/plain", b"0123456789").id
        self.posted = self.say("hello", file_ids=[self.file])

    async def begin(self):
        """From the event to a started run, with what the turn needs."""
        event, invocation = await self.adapter.take("agent.invocation")
        self.run_id = invocation.run.id
        assert self.run_id == self.posted.run_id
        claims = verify_run_token(
            event.token,
            self.keys,
            issuer=self.adapter.settings.instance_id,
            audience=self.adapter.agent_id,
            jkt=self.api.jkt,
            now=self.api.server_now(),
        )
        assert (claims.run_id, claims.sub) == (self.run_id, self.ada)
        self.auth = RunAuth(self.api, self.run_id, event.token)
        started = await self.api.start_run(self.run_id, self.auth, StartRun(**EVIDENCE))
        assert started.run.state is RunState.RUNNING
        assert (await self.api.get_run(self.run_id)).run == started.run
        context = await self.api.get_run_context(self.run_id, self.auth)
        assert context.elements[-1].content == "hello"
        config = await self.api.get_served_channel_config(invocation.run.channel_id, self.auth)
        assert config.settings_version >= 0
        assert await self.api.download_file(self.file, self.auth, 4) == b"0123"
        assert await self.api.download_file(self.file, self.auth) == b"0123456789"
        listed = await self.api.list_runs(self.adapter.agent_id)
        assert [one.run.id for one in listed.runs] == [self.run_id]
        for source in (None, self.auth):
            self.auth.current = await self.api.renew_run_token(self.run_id, source)

    async def show(self):
        """The live box and messages."""
        patch = [{"op": "replace", "path": "/status_line", "value": "is looking"}]
        version = await self.api.update_run(self.run_id, self.auth, UpdateRun(base_version=1, patch=patch))
        assert version == 2
        late = UpdateRun(
            base_version=1, patch=[{"op": "replace", "path": "/status_line", "value": "is late"}]
        )
        with pytest.raises(VersionConflict) as caught:
            await self.api.update_run(self.run_id, self.auth, late)
        assert caught.value.extra["document"]["status_line"] == "is looking"
        body = text("first")
        made = await self.api.create_message(self.run_id, self.auth, body)
        assert await self.api.create_message(self.run_id, self.auth, body) == made
        changed = UpdateMessage(content="second")
        edited = await self.api.update_message(made.id, self.auth, made.version, changed)
        assert (edited.content, edited.version) == ("second", made.version + 1)

    async def ask(self):
        """A card that is answered, and one that is closed."""
        shown = await self.api.create_message(self.run_id, self.auth, card("Go on?", "yes", "no"))
        waiting = await self.api.await_run_input(
            self.run_id, self.auth, AwaitRunInput(message_id=shown.id, status_line="waits")
        )
        assert waiting.run.state is RunState.WAITING_INPUT
        self.instance.use_component(self.ada, shown.id, shown.components[0].id)
        event, payload = await self.adapter.take("interaction.created")
        self.auth.current = event.token
        resume = ResumeRun(cause=ResumeCause.INTERACTION, message_id=shown.id, **EVIDENCE)
        assert (await self.api.resume_run(self.run_id, self.auth, resume)).run.state is RunState.RUNNING
        response = InteractionResponse(status=InteractionStatus.ACKNOWLEDGED, text="done")
        answered = await self.api.respond_to_interaction(payload.interaction.id, self.auth, response)
        assert answered.text == "done"
        unused = await self.api.create_message(self.run_id, self.auth, card("Or not?", "x"))
        closed = await self.api.close_card(unused.id, self.auth, CloseCard(reason=CloseReason.CANCELLED))
        assert closed.closed is CloseReason.CANCELLED

    async def follow_up(self):
        """A second message while the run is active."""
        second = self.say("and this")
        assert second.followup_of == self.run_id
        event, payload = await self.adapter.take("agent.followup")
        self.auth.current = event.token
        for state in (FollowupState.DELIVERED, FollowupState.ABSORBED):
            reported = await self.api.report_followup(
                self.run_id, payload.message_id, self.auth, Followup(state=state)
            )
            assert reported.state is state

    async def end(self):
        """Session, title, finish, and what is over stays over."""
        report = ReportAgentSession(external_session_ref="20261130_120000_ab12cd", started=True)
        session = await self.api.report_agent_session(self.thread, self.auth, 0, report)
        assert session.version == 1
        context = await self.api.get_run_context(self.run_id, self.auth)
        titled = await self.api.set_thread_title(
            self.thread, self.auth, context.thread.version, SetThreadTitle(title="Colours")
        )
        assert titled.title == "Colours"
        finish = FinishRun(outcome=Outcome.COMPLETED, metrics=Metrics(duration_ms=1), costs=())
        assert (await self.api.finish_run(self.run_id, self.auth, finish)).run.state is RunState.COMPLETED
        assert (await self.api.finish_run(self.run_id, self.auth, finish)).run.state is RunState.COMPLETED
        assert (await self.api.list_runs(self.adapter.agent_id)).runs == ()


def tour(directory, fault=None, *, nonces=False, **options):
    """Run the tour; returns how often each operation arrived, and the server's violations."""
    options = ServerOptions(**({"run_update_min_interval_ms": 0} | options))
    server = LocalServer.start(directory, options=options)
    arrived = Counter()

    def note(operation, request):
        arrived[operation] += 1
        return None if fault is None else fault(operation, arrived[operation])

    async def story():
        adapter = Adapter(server)
        task = asyncio.create_task(adapter.gateway.run())
        try:
            await Tour(server, adapter).whole()
            assert adapter.gateway.state is ConnectionState.READY
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await adapter.transport.close()

    try:
        server.instance.require_nonces(nonces)
        server.fault = note
        asyncio.run(story())
        return arrived, server.violations
    finally:
        server.stop()


EVERY = {operation.name for operation in OPERATIONS} - {OPEN_GATEWAY.name}


@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
def test_every_operation_is_taken_without_a_violation(tmp_path, dpop):
    """The whole protocol in one run, with a bearer token and with a bound one."""
    arrived, violations = tour(tmp_path, dpop=dpop)
    assert violations == []
    assert set(arrived) - {OPEN_GATEWAY.name} == EVERY


def test_every_operation_is_taken_with_nonces(tmp_path):
    """The first proof has none and is refused; from then on each carries the last."""
    arrived, violations = tour(tmp_path, dpop=True, nonces=True)
    assert violations == []
    assert set(arrived) >= EVERY


DISTURBANCES = {
    "lost before": Fault.LOSE_BEFORE,
    "lost after": Fault.LOSE_AFTER,
    "busy": Fault.answer(503, None, 0),
    "limited": Fault.answer(429, "rate_limited", 0),
}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """How often each operation arrives when nothing disturbs it."""
    return tour(tmp_path_factory.mktemp("calm"))[0]


@pytest.mark.parametrize("name", DISTURBANCES)
def test_a_disturbance_of_each_operation_changes_nothing(tmp_path, calm, name):
    """The first answer of each is lost or refused; the client repeats it, and all happens exactly once."""

    def fault(operation, count):
        # An allow list question is asked once for each delivery: there the event would come again.
        disturbed = count == 1 and operation not in {"getAllowList", OPEN_GATEWAY.name}
        return DISTURBANCES[name] if disturbed else None

    arrived, violations = tour(tmp_path, fault, dpop=True)
    assert violations == []
    assert set(arrived) >= EVERY
    for operation in EVERY - {"getAllowList"}:
        assert arrived[operation] == calm[operation] + 1, operation


def test_an_ended_run_takes_nothing_more(tmp_path):
    """A cancelled run answers with its own class, and finishing it as the server ended it is taken."""
    server = LocalServer.start(tmp_path, options=ServerOptions())

    async def story():
        adapter = Adapter(server)
        task = asyncio.create_task(adapter.gateway.run())
        walk = Tour(server, adapter)
        try:
            await walk.before()
            await walk.begin()
            server.instance.cancel_run(walk.ada, walk.run_id)
            _, ended = await adapter.take("run.ended")
            assert ended.state is RunState.CANCELLED
            with pytest.raises(RunEnded):
                await adapter.api.create_message(walk.run_id, walk.auth, text("late"))
            finish = FinishRun(outcome=Outcome.CANCELLED, metrics=Metrics())
            await adapter.api.finish_run(walk.run_id, walk.auth, finish)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await adapter.transport.close()

    try:
        asyncio.run(story())
        assert server.violations == []
    finally:
        server.stop()
