"""The embedded server without its sockets: its domain, its agent side, and an adapter that a test plays.

Calls go through the same road as over HTTP (credentials, schema, rules, answers); only bytes on a socket
are missing. Time is a fake clock's.
"""

import asyncio
import json
from contextlib import contextmanager
from uuid import UUID

from bothy_hermes.codec import parse
from bothy_hermes.local_agents import AgentSide
from bothy_hermes.local_http import Request
from bothy_hermes.local_instance import Instance
from bothy_hermes.local_options import ServerOptions
from bothy_hermes.local_rules import Refused
from bothy_hermes.local_store import LocalStore
from bothy_hermes.wire_events import Identify
from tests.fakes.clock import FakeClock
from tests.fakes.frozen_protocol import check_answer, check_frame

BASE = "http://127.0.0.1:8000/api/v1"
ADAPTER = UUID("00000000-0000-4000-8000-00000000000a")
EVIDENCE = {
    "billing_mode": "organization",
    "billing_evidence": {"provider": "anthropic", "key_type": "api_key", "method": "resolved_credentials"},
    "tool_class": "host",
}
HEARTBEAT = {
    "state": "online",
    "billing_evidence": {"key_type": "api_key", "method": "resolved_credentials"},
    "reported_tool_class": "host",
    "details": {
        "capabilities": {
            "components": True,
            "clarify": True,
            "approvals": True,
            "title": True,
            "followups": True,
        },
        "active_runs": 0,
        "adapter": {"name": "bothy-hermes", "version": "1"},
        "runtime": {"name": "hermes-agent"},
        "protocol_version": 1,
    },
}


def button(custom_id="yes", **changes):
    """A button as the adapter asks for it."""
    return {
        "custom_id": custom_id,
        "kind": "button",
        "label": custom_id,
        "single_use": True,
        "restricted_to": "anyone",
        **changes,
    }


def select(custom_id="pick", values=("a", "b"), **changes):
    """A select as the adapter asks for it."""
    options = [{"value": value, "label": value} for value in values]
    return button(custom_id, kind="select", options=options, **changes)


def identify(consumer="default", adapter_id=ADAPTER, max_active_runs=8):
    """An identify frame's value."""
    return parse(
        Identify,
        {
            "consumer": consumer,
            "adapter_id": str(adapter_id),
            "protocol_version": 1,
            "adapter": {"name": "bothy-hermes", "version": "1"},
            "runtime": {"name": "hermes-agent", "version": "1"},
            "max_active_runs": max_active_runs,
        },
    )


class Answer:
    """What a call got."""

    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.response = response
        self.json = json.loads(response.body) if response.body else None

    @property
    def code(self):
        """The problem's code."""
        return self.json["code"]

    def __repr__(self):
        return f"Answer({self.status}, {self.json})"


class Rig:
    """One instance, its agent side, and an adapter."""

    def __init__(self, directory, clock=None, **options):
        self.directory = directory
        self.clock = clock or FakeClock()
        self.options = ServerOptions(**options)
        self._open()

    def _open(self):
        store = LocalStore(self.directory)
        store._database.execute("PRAGMA synchronous = OFF")  # no test that uses this is about the disk
        self.instance = Instance(store, self.clock.clock, self.options)
        self.side = AgentSide(self.instance, lambda: BASE, ack_grace=0)
        self.links = {}
        self.ada, self.ben = self.instance.people()[:2]
        self.agent_token = (self.directory / "agent.token").read_text().strip()

    def restart(self):
        """Stop and start the server; connections are gone."""
        self.instance.close()
        self._open()

    def close(self):
        """Close the state directory."""
        self.instance.close()

    @property
    def violations(self):
        """What was counted so far."""
        return self.side.violations

    # The adapter

    def call(self, method, path, token=None, body=None, *, raw=None, **headers):
        """Make one HTTP call."""
        found = {name.replace("_", "-").lower(): value for name, value in headers.items()}
        if token is not None:
            found.setdefault("authorization", f"Bearer {token}")
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        if body is not None:
            found.setdefault("content-type", "application/json")
        path, _, query = path.partition("?")
        parameters = dict(part.partition("=")[::2] for part in query.split("&") if part)
        target = f"/api/v1{path}"
        request = Request(method, target, parameters, found, data, target)
        answer = Answer(asyncio.run(self.side.answer(request)))
        self._judge(request, answer)
        return answer

    def _judge(self, request, answer):
        """Hold what the server said to the frozen document."""
        try:
            operation, _ = self.side._match(request)
        except Refused:
            return
        if answer.response.stream is None:
            check_answer(operation.name, answer.status, answer.json)

    def agent_call(self, method, path, body=None, **headers):
        """Make one call below the agent, with its token."""
        return self.call(method, f"/agents/{self.instance.agent.id}{path}", self.agent_token, body, **headers)

    def connect(self, consumer="default", adapter_id=ADAPTER, max_active_runs=8):
        """Connect an adapter; a connection of the same consumer is replaced."""
        asked = identify(consumer, adapter_id, max_active_runs)
        self.links[consumer], _ = self.instance.presence.attach(
            asked, costs_off=not self.instance.options.costs_enabled
        )
        return self.links[consumer]

    def disconnect(self, consumer="default"):
        """Drop an adapter's connection."""
        self.instance.presence.detach(self.links.pop(consumer))

    def deliver(self):
        """Return the events that are sent now, as (consumer, event)."""
        found = []
        for delivery in self.instance.events.due():
            frame = json.loads(self.instance.payloads.frame(delivery.event))
            check_frame("server", frame)
            assert frame.pop("op") == "event"
            found.append((delivery.link.consumer, frame["event"]))
        return found

    def events(self):
        """Return the events that are sent now."""
        return [event for _, event in self.deliver()]

    def ack(self, event, consumer="default"):
        """Ack an event."""
        violation = self.instance.events.ack(self.links[consumer], UUID(event["id"]))
        if violation is not None:
            self.side.report(violation)

    def take(self):
        """Receive and ack the one event that is due."""
        (event,) = self.events()
        self.ack(event)
        return event

    # People, and runs up to a point

    def thread(self, **options):
        """Make a thread."""
        return self.instance.create_thread(self.ada.id, **options)

    def say(self, thread, text="hello", person=None, **options):
        """Write a message."""
        return self.instance.post_message((person or self.ada).id, thread.id, text, **options)

    def offered(self, thread=None, text="hello", **options):
        """Write a message and let the adapter take its run."""
        if not self.links:
            self.connect()
        thread = thread or self.thread()
        posted = self.say(thread, text, **options)
        return Job(self, posted.run_id, self.take())

    def running(self, thread=None, text="hello", **options):
        """Write a message and start its run."""
        job = self.offered(thread, text, **options)
        assert job.start().status == 200
        return job

    def running_next(self):
        """Start the run that is offered now."""
        event = self.take()
        job = Job(self, UUID(event["payload"]["run"]["id"]), event)
        assert job.start().status == 200
        return job

    def tick(self, seconds=0):
        """Let time pass, in steps that are shorter than anything the server waits for, and do what is due."""
        while seconds > 0:
            step = min(seconds, 60)
            self.clock.move(step)
            seconds -= step
            self.instance.events.tick()
        self.instance.events.tick()

    def beat(self, consumer="default"):
        """Send a heartbeat."""
        answer = self.agent_call("PUT", f"/heartbeat?consumer={consumer}", HEARTBEAT)
        assert answer.status == 204


class Job:
    """One run as the adapter has it."""

    def __init__(self, rig, run_id, event):
        self.rig = rig
        self.id = run_id
        self.event = event
        self.token = event["token"]
        self.thread_id = UUID(event["payload"]["run"]["thread_id"])
        self._messages = 0

    @property
    def run(self):
        """The run as the server has it."""
        return self.rig.instance.run(self.id).run

    @property
    def view(self):
        """The run with document and cards."""
        return self.rig.instance.run(self.id)

    def call(self, method, path, body=None, **headers):
        """Make a call with the run's token; a path without a leading slash is below the run."""
        target = path if path.startswith("/") else f"/runs/{self.id}/{path}".rstrip("/")
        return self.rig.call(method, target, self.token, body, **headers)

    def start(self, **changes):
        return self.call("POST", "start", {**EVIDENCE, **changes})

    def patch(self, base_version, *operations):
        return self.call("PATCH", "document", {"base_version": base_version, "patch": list(operations)})

    def status(self, base_version, text):
        return self.patch(base_version, {"op": "replace", "path": "/status_line", "value": text})

    def write(self, content="answer", **changes):
        self._messages += 1
        body = {"client_msg_id": f"m{self._messages}", "kind": "text", "role": "answer", "content": content}
        return self.call("POST", "messages", {**body, **changes})

    def card(self, *components, content="Really?", **changes):
        """Make a card and return its ID."""
        asked = {"kind": "card", "role": "interim", "components": list(components or [button()]), **changes}
        answer = self.write(content, **asked)
        assert answer.status in (200, 201), answer
        return answer.json["id"]

    def wait(self, card, status_line=None):
        return self.call("POST", "await-input", {"message_id": card, "status_line": status_line})

    def resume(self, card, cause="interaction", **changes):
        return self.call("POST", "resume", {"cause": cause, "message_id": card, **EVIDENCE, **changes})

    def close(self, card, reason="expired"):
        return self.call("POST", f"/messages/{card}/close", {"reason": reason})

    def respond(self, interaction_id, status="acknowledged", **changes):
        return self.call("POST", f"/interactions/{interaction_id}/response", {"status": status, **changes})

    def followup(self, message_id, state="absorbed"):
        return self.call("PUT", f"followups/{message_id}", {"state": state})

    def finish(self, outcome="completed", reason=None, **changes):
        body = {"outcome": outcome, "reason": reason, "metrics": {}, "costs": [], **changes}
        return self.call("POST", "finish", body)

    def context(self):
        return self.call("GET", "context")

    def renew(self, *, with_agent=False):
        token = self.rig.agent_token if with_agent else self.token
        return self.rig.call("POST", f"/runs/{self.id}/token", token)

    def use(self, card, custom_id=None, person=None, values=()):
        """Let a person use a component of a card."""
        components = self.rig.instance.message(UUID(card)).components
        component = next(one for one in components if custom_id in (None, one.custom_id))
        person = person or self.rig.ada
        return self.rig.instance.use_component(person.id, UUID(card), component.id, values)


@contextmanager
def rig(directory, clean=True, **options):
    """Open a rig; at its end nothing was a violation, unless the test is about one."""
    made = Rig(directory, **options)
    try:
        yield made
        if clean:
            assert made.violations == []
    finally:
        made.close()
