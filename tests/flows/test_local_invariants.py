"""Whatever people and an adapter do, in any order: the embedded server keeps its promises.

The adapter of this machine knows no rules, it makes calls as they come, some with a body that is nearly
right; many of them are refused, and none of them may break anything.
"""

import contextlib
import json
import random
import tempfile
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from bothy_hermes.local_records import CardState, FollowupMark
from bothy_hermes.local_rules import Refused
from bothy_hermes.wire_operations import OPERATIONS
from bothy_hermes.wire_words import RUN_MOVES, ElementKind, PrincipalKind, RunState
from tests.fakes.local_kit import Job, Rig, button
from tests.fakes.mutants import mutant
from tests.fakes.wire_examples import EXAMPLES

STARTED = {RunState.RUNNING, RunState.WAITING_INPUT}
PICK = st.integers(0, 7)
NOBODY = "00000000-0000-4000-8000-000000000001"
BODIED = [one for one in OPERATIONS if one.body is not None]
STEP = {
    "id": "1",
    "kind": "tool_call",
    "title": "t",
    "state": "running",
    "started_at": "2026-11-30T12:00:00Z",
}


def reachable():
    """Return every state that can follow a state, in any number of moves."""
    found = {state: {state} | set(RUN_MOVES[state]) for state in RunState}
    for _ in RunState:
        found = {state: set().union(*(found[one] for one in ones)) for state, ones in found.items()}
    return found


REACHABLE = reachable()


class Server(RuleBasedStateMachine):
    """People and an adapter at work on one server."""

    @initialize()
    def begin(self):
        self.folder = tempfile.TemporaryDirectory()
        self.rig = Rig(Path(self.folder.name))
        self.rig.connect()
        self.threads = [self.rig.thread() for _ in range(2)]
        self.jobs = []
        self.cards = []
        self.messages = []
        self.used = []
        self.flying = []
        self.seen = {}
        self.written = 0

    def teardown(self):
        if hasattr(self, "rig"):
            self.drain()
            self.rig.close()
            self.folder.cleanup()

    # People

    @rule(thread=PICK, owner=st.booleans(), mode=st.sampled_from([None, None, "new", "resume"]))
    def say(self, thread, owner, mode):
        person = self.rig.ada if owner else self.rig.ben
        posted = self.rig.say(_pick(self.threads, thread), "x", person, session_mode=mode)
        self.messages.append(str(posted.message.id))

    @precondition(lambda self: self.usable())
    @rule(card=PICK, owner=st.booleans())
    def use(self, card, owner):
        job, message = _pick(self.usable(), card)
        with contextlib.suppress(Refused):
            used = job.use(message, person=self.rig.ada if owner else self.rig.ben)
            self.used.append((job, str(used.interaction.id)))

    @precondition(lambda self: self.jobs)
    @rule(job=PICK)
    def cancel(self, job):
        with contextlib.suppress(Refused):
            self.rig.instance.cancel_run(self.rig.ada.id, _pick(self.jobs, job).id)

    # The adapter

    @rule()
    def receive(self):
        for event in self.rig.events():
            self.flying.append(event)
            if event["type"] == "agent.invocation":
                run_id = UUID(event["payload"]["run"]["id"])
                self.jobs.append(Job(self.rig, run_id, event))

    @rule()
    def work(self):
        """Do what an adapter should: take everything in, and start what can start."""
        self.receive()
        while self.flying:
            self.rig.ack(self.flying.pop())
        for job in self.jobs:
            if job.run.state is RunState.QUEUED:
                job.start()

    @precondition(lambda self: self.running())
    @rule(job=PICK)
    def ask(self, job):
        """Make a card and wait on it."""
        job = _pick(self.running(), job)
        self.written += 1
        message = job.card(client_msg_id=f"c{self.written}")
        self.cards.append((job, message))
        job.wait(message)

    @precondition(lambda self: self.used)
    @rule(used=PICK, fine=st.booleans())
    def answer(self, used, fine):
        """Do what an adapter should with an interaction: ack, resume, respond."""
        job, interaction = _pick(self.used, used)
        self.work()
        record = self.rig.instance.interaction(UUID(interaction))
        job.resume(str(record.interaction.message_id))
        job.respond(interaction, "acknowledged" if fine else "failed", reopen=not fine)

    def usable(self):
        cards = self.rig.instance.state.cards
        return [one for one in self.cards if cards.need(UUID(one[1])).state is not CardState.CLOSED]

    def running(self):
        return [job for job in self.jobs if job.run.state in STARTED]

    @precondition(lambda self: self.flying)
    @rule(event=PICK)
    def ack(self, event):
        self.rig.ack(_pick(self.flying, event))

    @precondition(lambda self: self.jobs)
    @rule(job=PICK)
    def start(self, job):
        _pick(self.jobs, job).start()

    @precondition(lambda self: self.jobs)
    @rule(job=PICK, stale=st.booleans())
    def patch(self, job, stale):
        job = _pick(self.jobs, job)
        version = job.view.document.version
        job.patch(
            version - 1 if stale and version > 1 else version,
            {"op": "add", "path": "/steps/0", "value": STEP},
        )

    @precondition(lambda self: self.jobs)
    @rule(job=PICK, fresh=st.booleans())
    def write(self, job, fresh):
        self.written += fresh
        _pick(self.jobs, job).write("x", client_msg_id=f"w{self.written}")

    @precondition(lambda self: self.jobs)
    @rule(job=PICK, single_use=st.booleans())
    def card(self, job, single_use):
        job = _pick(self.jobs, job)
        self.written += 1
        made = job.write(
            "x",
            client_msg_id=f"c{self.written}",
            kind="card",
            role="interim",
            components=[button(single_use=single_use)],
        )
        if made.status == 201:
            self.cards.append((job, made.json["id"]))

    @precondition(lambda self: self.cards)
    @rule(card=PICK)
    def wait(self, card):
        job, message = _pick(self.cards, card)
        job.wait(message)

    @precondition(lambda self: self.cards)
    @rule(card=PICK, cause=st.sampled_from(["interaction", "prompt_expired"]))
    def resume(self, card, cause):
        job, message = _pick(self.cards, card)
        job.resume(message, cause)

    @precondition(lambda self: self.cards)
    @rule(card=PICK)
    def close(self, card):
        job, message = _pick(self.cards, card)
        job.close(message)

    @precondition(lambda self: self.used)
    @rule(used=PICK, reopen=st.booleans())
    def respond(self, used, reopen):
        job, interaction = _pick(self.used, used)
        job.respond(interaction, "failed" if reopen else "acknowledged", reopen=reopen)

    @precondition(lambda self: self.jobs and self.messages)
    @rule(job=PICK, message=PICK, state=st.sampled_from(["delivered", "absorbed"]))
    def followup(self, job, message, state):
        _pick(self.jobs, job).followup(_pick(self.messages, message), state)

    @precondition(lambda self: self.jobs)
    @rule(job=PICK, outcome=st.sampled_from(["completed", "failed", "cancelled"]))
    def finish(self, job, outcome):
        _pick(self.jobs, job).finish(outcome, "runtime_error" if outcome == "failed" else None)

    @precondition(lambda self: self.jobs)
    @rule(job=PICK, operation=st.sampled_from(BODIED), seed=st.integers(0, 999))
    def misbehave(self, job, operation, seed):
        """Make a call of which something is wrong, or hardly anything."""
        job, draw = _pick(self.jobs, job), random.Random(seed)
        messages = [message for _, message in self.cards] + self.messages or [NOBODY]
        ids = {
            "run_id": job.id,
            "thread_id": job.thread_id,
            "message_id": draw.choice(messages),
            "interaction_id": draw.choice([used for _, used in self.used] or [NOBODY]),
            "agent_id": self.rig.instance.agent.id,
        }
        body = EXAMPLES[operation.body]()
        body.update({name: str(ids[name]) for name in body if name in ids})
        data = json.dumps(mutant(draw, body)).encode()
        path = operation.path.format_map(ids) + "?consumer=default"
        token = self.rig.agent_token if "agents" in path else job.token
        answer = self.rig.call(
            operation.method, path, token, raw=data, content_type="application/json", if_match='"1"'
        )
        assert answer.status < 500

    # The world

    @rule()
    def reconnect(self):
        self.rig.connect()

    @rule(seconds=st.sampled_from([1, 31, 130]))
    def wait_a_while(self, seconds):
        self.rig.tick(seconds)
        self.rig.beat()

    @rule()
    def restart(self):
        """What the disk has is what the memory had."""
        before = {name: table.all() for name, table in self.rig.instance.state.tables.items()}
        self.rig.restart()
        after = {name: table.all() for name, table in self.rig.instance.state.tables.items()}
        assert after == before
        self.rig.connect()

    # Promises

    @invariant()
    def at_most_one_run_of_a_thread_is_started(self):
        for thread in self.threads:
            active = self.rig.instance.state.runs.group("active", thread.id)
            assert [run.run.state in STARTED for run in active].count(True) <= 1
            assert not any(run.run.state in STARTED for run in active[1:])

    @invariant()
    def runs_and_documents_move_forward_only(self):
        for record in self.rig.instance.state.runs.all():
            state, version = self.seen.get(record.run.id, (RunState.QUEUED, 1))
            assert record.run.state in REACHABLE[state]
            assert record.document.version >= version
            self.seen[record.run.id] = (record.run.state, record.document.version)

    @invariant()
    def a_run_waits_exactly_while_a_card_is_open(self):
        for record in self.rig.instance.state.runs.all():
            waits = record.run.state is RunState.WAITING_INPUT
            assert waits == bool(self.rig.instance.core.open_cards(record.run.id))

    @invariant()
    def the_cards_of_an_ended_run_are_closed(self):
        for card in self.rig.instance.state.cards.all():
            message = self.rig.instance.message(card.message_id)
            assert (card.state is CardState.CLOSED) == (message.closed is not None)
            if self.rig.instance.run(card.run_id).run.state.ended:
                assert card.state is CardState.CLOSED

    @invariant()
    def every_message_of_a_person_has_its_place(self):
        """It belongs to one run, or follows one up and will."""
        for record in self.rig.instance.state.messages.all():
            message = record.message
            if message.author.kind is PrincipalKind.AGENT or record.element is not ElementKind.MESSAGE:
                continue
            waits = record.followup in (FollowupMark.WAITING, FollowupMark.DELIVERED)
            assert (message.run_id is None) == waits
            if waits:
                assert not self.rig.instance.run(record.followup_of).run.state.ended

    @invariant()
    def the_server_never_fails(self):
        assert not [one for one in self.rig.violations if one.startswith("server")]

    @invariant()
    def every_run_ended_without_the_adapter_is_told(self):
        """As soon as the adapter has heard of the run at all, and until it acks that."""
        state = self.rig.instance.state
        for record in state.runs.all():
            told = [one for one in state.events.group("run", record.run.id) if one.type == "run.ended"]
            assert len(told) == (record.ended_by_server and record.sent)

    def drain(self):
        """In the end every message has become part of a run that ended."""
        for _ in range(1000):
            active = self.rig.instance.state.runs.group("ended", value=False)
            if not active:
                break
            self.rig.instance.end_run(active[0].run.id)
        for record in self.rig.instance.state.messages.all():
            assert record.message.run_id is not None
            assert self.rig.instance.run(record.message.run_id).run.state.ended


def _pick(ones, number):
    """Prefer the newest: old runs have mostly ended."""
    return ones[-1 - number % len(ones)]


Server.TestCase.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
test_promises = pytest.mark.timeout(300)(Server.TestCase)


LIFE = {
    "say": lambda draw: (draw(8), draw(2) == 0, [None, None, "new", "resume"][draw(4)]),
    "use": lambda draw: (draw(3), draw(2) == 0),
    "cancel": lambda draw: (draw(3),),
    "work": lambda _draw: (),
    "receive": lambda _draw: (),
    "ask": lambda draw: (draw(3),),
    "answer": lambda draw: (draw(3), draw(3) > 0),
    "ack": lambda draw: (draw(3),),
    "start": lambda draw: (draw(3),),
    "patch": lambda draw: (draw(3), draw(4) == 0),
    "write": lambda draw: (draw(3), draw(4) > 0),
    "card": lambda draw: (draw(3), draw(4) > 0),
    "wait": lambda draw: (draw(3),),
    "resume": lambda draw: (draw(3), ["interaction", "prompt_expired"][draw(2)]),
    "close": lambda draw: (draw(3),),
    "respond": lambda draw: (draw(3), draw(2) == 0),
    "followup": lambda draw: (draw(3), draw(3), ["delivered", "absorbed"][draw(2)]),
    "finish": lambda draw: (draw(3), ["completed", "failed", "cancelled"][draw(3)]),
    "misbehave": lambda draw: (draw(3), BODIED[draw(len(BODIED))], draw(1000)),
    "reconnect": lambda _draw: (),
    "wait_a_while": lambda draw: ([1, 31, 130][draw(3)],),
    "restart": lambda _draw: (),
}
NEEDS = {
    **dict.fromkeys(["cancel", "start", "patch", "write", "card", "followup", "finish", "misbehave"], "jobs"),
    **dict.fromkeys(["wait", "resume", "close"], "cards"),
    **dict.fromkeys(["answer", "respond"], "used"),
    "ack": "flying",
}
STEPS = [*LIFE, *["work", "use", "answer", "finish", "patch"] * 3]
"""What carries a run on comes more often than what ends or disturbs it."""

PROMISES = (
    Server.at_most_one_run_of_a_thread_is_started,
    Server.runs_and_documents_move_forward_only,
    Server.a_run_waits_exactly_while_a_card_is_open,
    Server.the_cards_of_an_ended_run_are_closed,
    Server.every_message_of_a_person_has_its_place,
    Server.the_server_never_fails,
    Server.every_run_ended_without_the_adapter_is_told,
)
ASKED = {"use": Server.usable, "ask": Server.running}


@pytest.mark.parametrize("seed", [101, 102, 104, 105])
def test_promises_over_a_long_life(seed):
    """Many steps on one server come further than many short lives: runs end, cards are answered."""
    draw = random.Random(seed).randrange
    server = Server()
    server.begin()
    try:
        for _ in range(300):
            name = STEPS[draw(len(STEPS))]
            ready = ASKED[name](server) if name in ASKED else getattr(server, NEEDS.get(name, "threads"))
            if ready:
                getattr(server, name)(*LIFE[name](draw))
                for promise in PROMISES:
                    promise(server)
        state = server.rig.instance.state
        assert any(run.reported for run in state.runs.all())
        assert any(one.status is not None for one in state.interactions.all())
    finally:
        server.teardown()
