"""An adapter in a few lines: it speaks the real protocol and does what the test says, step by step."""

import http.client
import json
from contextlib import ExitStack, closing
from urllib.parse import urlsplit
from uuid import uuid4

from websockets.sync.client import connect

EVIDENCE = {
    "billing_mode": "organization",
    "billing_evidence": {"provider": "anthropic", "key_type": "api_key", "method": "resolved_credentials"},
    "tool_class": "host",
}
SECONDS = 20


class FakeAgent:
    """One connection of the agent. Use it as a context manager; it is identified when the block begins."""

    def __init__(self, server, consumer="default"):
        self.server = server
        self.consumer = consumer
        self.token = server.agent.token_file.read_text("utf-8").strip()
        self.url = urlsplit(server.api_url)
        self._open = ExitStack()
        self._socket = None

    def __enter__(self):
        target = f"{self.url.path}/agents/{self.server.agent.id}/gateway?consumer={self.consumer}"
        connection = connect(
            f"ws://{self.url.netloc}{target}",
            subprotocols=["bothy.agent.v1"],
            additional_headers={"Authorization": f"Bearer {self.token}"},
            proxy=None,
        )
        self._socket = self._open.enter_context(connection)
        assert self._receive()["op"] == "hello"
        self._send(
            op="identify",
            consumer=self.consumer,
            adapter_id=str(uuid4()),
            protocol_version=1,
            adapter={"name": "bothy-hermes", "version": "0"},
            runtime={"name": "hermes-agent", "version": "0"},
            max_active_runs=8,
        )
        assert self._receive()["op"] == "ready"
        self.heartbeat()
        return self

    def __exit__(self, *_):
        self._open.close()

    def heartbeat(self, state="online", reasons=None):
        """Say how the agent is."""
        details = {
            "capabilities": dict.fromkeys(("components", "clarify", "approvals", "title", "followups"), True),
            "active_runs": 0,
            "adapter": {"name": "bothy-hermes", "version": "0"},
            "runtime": {"name": "hermes-agent"},
            "protocol_version": 1,
            **({"degraded_reasons": reasons} if reasons else {}),
        }
        body = {
            "state": state,
            "billing_evidence": EVIDENCE["billing_evidence"],
            "reported_tool_class": "host",
            "details": details,
        }
        path = f"/agents/{self.server.agent.id}/heartbeat?consumer={self.consumer}"
        self.call("PUT", path, self.token, body)

    def event(self, kind):
        """Wait for the next event, which must be of this kind, and ack it."""
        frame = self._receive()
        assert frame["op"] == "event", frame
        event = frame["event"]
        assert event["type"] == kind, event["type"]
        self._send(op="ack", event_id=event["id"])
        return event

    def take(self):
        """Wait for an invocation and start its run."""
        return FakeRun(self, self.event("agent.invocation"))

    def call(self, method, path, token, body=None, headers=None):
        """Make one call that must succeed; returns the answer's value."""
        status, value = self.try_call(method, path, token, body, headers)
        assert status < 300, (method, path, status, value)
        return value

    def try_call(self, method, path, token, body=None, headers=None):
        """Make one call; returns status and value."""
        status, data = self.fetch(path, token, method, body, headers)
        return status, json.loads(data) if data else None

    def fetch(self, path, token, method="GET", body=None, headers=None):
        """Make one call; returns status and bytes."""
        with closing(http.client.HTTPConnection(self.url.netloc, timeout=SECONDS)) as connection:
            sent = {"Authorization": f"Bearer {token}", **(headers or {})}
            if body is not None:
                sent["Content-Type"] = "application/json"
                body = json.dumps(body)
            connection.request(method, self.url.path + path, body, sent)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def _receive(self):
        return json.loads(self._socket.recv(timeout=SECONDS))

    def _send(self, **frame):
        self._socket.send(json.dumps(frame))


class FakeRun:
    """A run that the agent works on; it is started when this is made."""

    def __init__(self, agent, invocation):
        self.agent = agent
        self.invocation = invocation["payload"]
        self.id = self.invocation["run"]["id"]
        self.thread_id = self.invocation["run"]["thread_id"]
        self.token = invocation["token"]
        self.version = self.do("POST", "start", EVIDENCE)["document"]["version"]

    def do(self, method, what, body):
        """Make a call of this run."""
        return self.agent.call(method, f"/runs/{self.id}/{what}", self.token, body)

    def say(self, content, role="answer", **more):
        """Write a message."""
        body = {"client_msg_id": str(uuid4()), "kind": "text", "role": role, "content": content, **more}
        return self.do("POST", "messages", body)

    def ask(self, content, components, status_line="Waiting for an answer"):
        """Write a card and wait on it."""
        body = {"client_msg_id": str(uuid4()), "kind": "card", "role": "interim", "content": content}
        card = self.do("POST", "messages", {**body, "components": components})
        self.do("POST", "await-input", {"message_id": card["id"], "status_line": status_line})
        return card

    def resume(self, card, cause="interaction", **more):
        """End the wait of a card."""
        self.do("POST", "resume", {"cause": cause, "message_id": card["id"], **more, **EVIDENCE})

    def respond(self, interaction, status="acknowledged", text=None, **more):
        """Answer an interaction."""
        path = f"/interactions/{interaction['id']}/response"
        return self.agent.call("POST", path, self.token, {"status": status, "text": text, **more})

    def show(self, **members):
        """Replace members of the live box."""
        patch = [{"op": "replace", "path": f"/{name}", "value": value} for name, value in members.items()]
        view = self.agent.call("GET", f"/runs/{self.id}", self.token)
        body = {"base_version": view["document"]["version"], "patch": patch}
        return self.do("PATCH", "document", body)

    def followed(self, message_id, state="absorbed"):
        """Say how far a follow-up came."""
        return self.do("PUT", f"followups/{message_id}", {"state": state})

    def finish(self, outcome="completed", reason=None):
        """End the run."""
        return self.do("POST", "finish", {"outcome": outcome, "reason": reason, "metrics": {}, "costs": []})


def button(custom_id, label, **more):
    """A button as the adapter asks for it."""
    return {
        "custom_id": custom_id,
        "kind": "button",
        "label": label,
        "single_use": True,
        "restricted_to": "anyone",
        **more,
    }


def select(custom_id, label, options, **more):
    """A select as the adapter asks for it."""
    rows = [{"value": value, "label": words} for value, words in options]
    return {**button(custom_id, label), "kind": "select", "options": rows, **more}


def step(title, state="running", kind="tool_call", preview=None):
    """A step of the live box."""
    now = "2026-11-30T12:00:00.000000Z"
    return {
        "id": str(uuid4()),
        "kind": kind,
        "title": title,
        "state": state,
        "started_at": now,
        "finished_at": None if state == "running" else now,
        "detail": None if preview is None else {"preview": preview},
    }
