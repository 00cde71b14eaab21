"""The flows without a server and without Hermes: real rooms on a real state file, a fake API, a fake clock.

`rooms(tmp_path)` is the world. The API is a server of one agent as far as the flows can tell: it starts,
shows and ends runs, keeps documents and messages, and answers anything else that a test tells it to.
"""

import asyncio
import contextlib
import dataclasses
import inspect
from pathlib import Path
from unittest import mock
from uuid import UUID, uuid4

from bothy_hermes import store_file
from bothy_hermes.bothy_gateway import Delivery
from bothy_hermes.codec import dump, parse
from bothy_hermes.errors import ProblemAnswer, RunEnded, VersionConflict
from bothy_hermes.json_patch import apply_patch
from bothy_hermes.proof import Prover
from bothy_hermes.run_context import ContextReader
from bothy_hermes.run_outbox import RunOutbox
from bothy_hermes.run_tokens import RunToken
from bothy_hermes.services import Services
from bothy_hermes.store import EntryState, InboxEntry, Store
from bothy_hermes.wire import (
    AgentSession,
    AllowEntry,
    AllowList,
    Message,
    Run,
    RunDocument,
    RunView,
    ServedChannelConfig,
    ThreadView,
)
from bothy_hermes.wire_events import HelloSettings, Invocation, ListedRun, RunList
from bothy_hermes.wire_words import RunState
from tests.fakes.clock import START, FakeClock
from tests.fakes.contexts import context, trigger
from tests.fakes.edge_kit import AGENT, CHANNEL, PERSON, RUN, THREAD, run_token, settings
from tests.fakes.runtime import FakeRuntime
from tests.fakes.wire_examples import EXAMPLES

EVENT = UUID("0192f4a0-7b1c-7000-8000-0000000000f1")
CLICK = UUID("0192f4a0-7b1c-7000-8000-0000000000c1")
CLICK_EVENT = UUID("0192f4a0-7b1c-7000-8000-0000000000c2")
MESSAGE = UUID("0192f4a0-7b1c-7000-8000-0000000000f2")
ADAPTER = UUID("0192f4a0-7b1c-7000-8000-0000000000f3")
PATIENCE = 20.0
"""Real seconds until a test gives up; nothing that works takes one of them."""


def run_value(**changes):
    """The run that events are about; a queued one of an operator channel."""
    found = EXAMPLES[Run]() | {
        "id": str(RUN),
        "thread_id": str(THREAD),
        "channel_id": str(CHANNEL),
        "agent_id": str(AGENT),
        "run_starter": str(PERSON),
        "trigger_message_id": str(MESSAGE),
        "state": "queued",
        "reason": None,
        "session_mode": "new",
        "started_at": None,
        "finished_at": None,
    }
    return found | changes


def invocation_value(run=None, **changes):
    """An invocation's payload as it travels."""
    found = EXAMPLES[Invocation]() | {
        "run": run_value(**(run or {})),
        "message_id": str(MESSAGE),
        "session_mode": "new",
        "agent_session": {"external_session_ref": None, "version": 0},
    }
    return found | changes


def invocation(run=None, **changes):
    """An invocation."""
    return parse(Invocation, invocation_value(run, **changes))


def event_value(kind="agent.invocation", payload=None, token=None, **changes):
    """An event as the gateway delivers it, with a valid token where its type has one."""
    found = {
        "id": str(EVENT),
        "type": kind,
        "created_at": "2026-11-30T12:00:00Z",
        "attempt": 1,
        "agent_id": str(AGENT),
        "payload": invocation_value() if payload is None else payload,
    }
    if kind not in ("run.ended", "agent.config_changed"):
        found["token"] = (token or run_token()).reveal()
    return found | changes


class FakeDelivery(Delivery):
    """A delivery that remembers its acks."""

    __slots__ = ("acked",)

    def __init__(self, event):
        super().__init__(event, None)
        self.acked = []

    async def ack(self, event_id):
        await asyncio.sleep(0)
        self.acked.append(event_id)


class FakeApi:
    """A server as `BothyApi` shows it.

    Attributes:
        calls: What was asked, in order: the operation's name and its arguments without the token.
        runs: The state of each run; one that was never mentioned is queued.
        on: Per operation what happens before the usual answer: an exception to raise, a function
            (its result, unless None, is the answer), or a list of those for one call each.
    """

    def __init__(self, fake):
        self._fake = fake
        self.calls = []
        self.on = {}
        self.runs = {}
        self.documents = {}
        self.messages = []
        self.finished = {}
        self.listed = []
        self.allow = AllowList(version=1, entries=(AllowEntry(principal_id=PERSON, run_kinds=("operator",)),))
        self.channel = ServedChannelConfig(settings_version=5, prompt=None, skills=())
        self.context = context(trigger("What now?", id=MESSAGE))
        self.files = {}
        self.jkt = None

    def named(self, operation):
        """The arguments of each call of an operation, in order."""
        return [tuple(args) for name, *args in self.calls if name == operation]

    def server_now(self):
        return self._fake.time

    async def _call(self, operation, *args):
        self.calls.append((operation, *args))
        await asyncio.sleep(0)
        found = self.on.get(operation)
        if isinstance(found, list):
            found = found.pop(0) if found else None
        if isinstance(found, BaseException):
            raise found
        if callable(found):
            found = found(*args)
            return await found if inspect.isawaitable(found) else found
        return found

    def view(self, run_id):
        state = self.runs.get(run_id, RunState.QUEUED)
        run = parse(Run, run_value(id=str(run_id), state=str(state)))
        return RunView(run=run, document=self.documents[run_id], open_cards=())

    def _check_running(self, operation, run_id):
        if self.runs.get(run_id, RunState.QUEUED).ended:
            raise RunEnded(operation, 409, "run_ended")

    async def get_allow_list(self, agent_id, known_version):
        assert agent_id == AGENT
        found = await self._call("get_allow_list", known_version)
        if found is not None:
            return found
        return None if known_version == self.allow.version else self.allow

    async def get_served_channel_config(self, channel_id, _auth):
        return await self._call("get_served_channel_config", channel_id) or self.channel

    async def get_run_context(self, run_id, _auth):
        return await self._call("get_run_context", run_id) or self.context

    async def download_file(self, file_id, _auth, first_bytes=None):
        found = await self._call("download_file", file_id, first_bytes)
        return self.files[file_id][:first_bytes] if found is None else found

    async def start_run(self, run_id, _auth, body):
        found = await self._call("start_run", run_id, body)
        self._check_running("startRun", run_id)
        self.runs[run_id] = RunState.RUNNING
        self.documents.setdefault(run_id, RunDocument(version=1, status_line=None, steps=()))
        return found or self.view(run_id)

    async def get_run(self, run_id, _auth=None):
        found = await self._call("get_run", run_id)
        self.documents.setdefault(run_id, RunDocument(version=1, status_line=None, steps=()))
        return found or self.view(run_id)

    async def update_run(self, run_id, _auth, body):
        found = await self._call("update_run", run_id, body)
        self._check_running("updateRun", run_id)
        have = self.documents[run_id]
        if have.version != body.base_version:
            raise VersionConflict("updateRun", 409, "version_conflict", extra={"document": dump(have)})
        value = apply_patch(dump(have), body.patch) | {"version": have.version + 1}
        self.documents[run_id] = parse(RunDocument, value)
        return found or have.version + 1

    async def create_message(self, run_id, _auth, body):
        found = await self._call("create_message", run_id, body)
        self._check_running("createMessage", run_id)
        self.messages.append(body)
        value = EXAMPLES[Message]() | {
            "id": str(uuid4()),
            "client_msg_id": body.client_msg_id,
            "components": [],
        }
        return found or parse(Message, value)

    async def await_run_input(self, run_id, _auth, body):
        return await self._call("await_run_input", run_id, body) or self.view(run_id)

    async def resume_run(self, run_id, _auth, body):
        return await self._call("resume_run", run_id, body) or self.view(run_id)

    async def finish_run(self, run_id, _auth, body):
        found = await self._call("finish_run", run_id, body)
        if self.runs.get(run_id, RunState.QUEUED).ended and str(self.runs[run_id]) != str(body.outcome):
            raise RunEnded("finishRun", 409, "run_ended")
        self.runs[run_id] = RunState(str(body.outcome))
        self.finished.setdefault(run_id, body)
        self.documents.setdefault(run_id, RunDocument(version=1, status_line=None, steps=()))
        return found or self.view(run_id)

    async def report_followup(self, run_id, message_id, _auth, body):
        return await self._call("report_followup", run_id, message_id, str(body.state))

    async def report_agent_session(self, thread_id, _auth, version, body):
        await self._call("report_agent_session", thread_id, version, body)
        return AgentSession(external_session_ref=body.external_session_ref, version=version + 1)

    async def set_thread_title(self, thread_id, _auth, version, body):
        await self._call("set_thread_title", thread_id, version, body.title)
        return ThreadView(id=thread_id, title=body.title, title_source="auto", version=version + 1)

    async def respond_to_interaction(self, interaction_id, _auth, body):
        return await self._call("respond_to_interaction", interaction_id, str(body.status), body.text)

    async def list_runs(self, agent_id, states, consumer=None):
        assert agent_id == AGENT
        return await self._call("list_runs", tuple(states)) or RunList(runs=tuple(self.listed))

    async def put_heartbeat(self, agent_id, heartbeat):
        assert agent_id == AGENT
        await self._call("put_heartbeat", heartbeat)

    async def renew_run_token(self, run_id, _auth=None):
        return await self._call("renew_run_token", run_id) or run_token()


def listed_run(run=None, *, adapter_id=ADAPTER, seen_at=START, **changes):
    """A run as listRuns shows it."""
    return ListedRun(
        run=parse(Run, run_value(**(run or {}))),
        invocation=invocation(run, **changes),
        open_cards=(),
        adapter_id=adapter_id,
        adapter_seen_at=seen_at,
    )


def ended(operation):
    """The refusal of a call because its run is over."""
    return RunEnded(operation, 409, "run_ended")


def refusal(status, code, operation="x"):
    """A server's refusal."""
    return ProblemAnswer(operation, status, code)


@dataclasses.dataclass
class Rooms:
    """Everything that a run's work uses."""

    fake: FakeClock
    api: FakeApi
    store: Store
    runtime: FakeRuntime
    services: Services
    troubles: list

    def limits(self):
        return HelloSettings(run_update_min_interval_ms=0, max_content_bytes=262144, costs_enabled=True)

    async def entry(self, state=EntryState.ACCEPTED, event_id=EVENT, run_id=RUN):
        """An invocation's entry, as the store holds it."""
        first = InboxEntry(
            event_id, "agent.invocation", run_id, THREAD, None, EntryState.ACCEPTED, self.fake.time
        )
        await self.store.take_event(first)
        path = [EntryState.ACCEPTED, EntryState.STARTING, EntryState.FINISHING, EntryState.DONE]
        for step in path[1 : path.index(state) + 1]:
            await self.store.move_entry(event_id, step)
        return await self.store.entry(event_id)

    async def click(self):
        """The entry of a person's click on a card of the run, as the store holds it."""
        taken = InboxEntry(
            CLICK_EVENT,
            "interaction.created",
            RUN,
            THREAD,
            None,
            EntryState.ACCEPTED,
            self.fake.time,
            subject_id=CLICK,
        )
        await self.store.take_event(taken)
        return taken

    def outbox(self, run_id=RUN):
        """The outbox of a run."""
        source, clock = RunToken(self.api, run_id), self.fake.clock
        return RunOutbox(self.api, self.services.store, run_id, source, clock=clock, entry_id=EVENT)

    async def until(self, condition):
        """Wait for something that threads and tasks bring about; time stands still meanwhile."""
        async with asyncio.timeout(PATIENCE):
            while not (await found if inspect.isawaitable(found := condition()) else found):  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    async def state_of(self, event_id=EVENT):
        """How far an entry is, None for an event that is not remembered."""
        found = await self.store.entry(event_id)
        return None if found is None else found.state

    async def read_only(self, on=True):
        """Have the disk refuse every write, or take them again."""
        await self.store._writer.run(
            lambda disk: disk.execute(f"PRAGMA query_only = {'ON' if on else 'OFF'}")
        )


@contextlib.asynccontextmanager
async def open_rooms(tmp_path, runtime=None, *, durable=False, **keys):
    """The rooms on a fresh state file.

    Hardly a test that uses this is about the loss of power: unless it is `durable`, nothing waits for the
    disk itself.
    """
    fake, troubles = FakeClock(), []
    full = store_file._PRAGMAS
    hasty = tuple(one.replace("synchronous = FULL", "synchronous = OFF") for one in full)
    with mock.patch.object(store_file, "_PRAGMAS", full if durable else hasty):
        store = await Store.open(Path(tmp_path) / "state", fake.clock, troubles.append)
    api = FakeApi(fake)
    runtime = runtime or FakeRuntime()
    wanted = settings(**keys)
    made = Rooms(fake, api, store, runtime, None, troubles)
    made.services = Services(
        settings=wanted,
        api=api,
        store=store.patient(),
        runtime=runtime,
        prover=Prover(runtime),
        context=ContextReader(api, wanted, fake.clock),
        clock=fake.clock,
        limits=made.limits,
    )
    try:
        yield made
    finally:
        await store.close()


def with_rooms(tmp_path, steps, runtime=None, **keys):
    """Run `steps(rooms)` on fresh rooms; returns what it returns."""

    async def scenario():
        async with open_rooms(tmp_path, runtime, **keys) as made:
            return await steps(made)

    return asyncio.run(scenario())
