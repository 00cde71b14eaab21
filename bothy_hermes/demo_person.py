"""A person at the server: the small client with which the demo and the tests act as one.

Layer: doors. It speaks the people's interface of the embedded server (`local_people` documents it)
and knows nothing of agents and their protocol.
"""

from __future__ import annotations

import http.client
import json
import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .clock import Clock
from .errors import ProblemAnswer, TransportError
from .secret import Secret

Json = dict[str, Any]

REQUEST_SECONDS = 15.0
"""How long one request may take: the server is on this machine."""

SILENCE_SECONDS = 60.0
"""Longest silence of the stream of changes: the server says something every 15 seconds."""


class Person:
    """One person's requests.

    Args:
        base_url: The people's interface, ending in `/people/v1`.
        token: The person's token.
        clock: Makes the IDs of messages.
    """

    def __init__(self, base_url: str, token: Secret, clock: Clock) -> None:
        parts = urlsplit(base_url)
        self._address = parts.netloc
        self._base = parts.path
        self._token = token
        self._clock = clock

    @classmethod
    def from_page(cls, page_url: str, clock: Clock) -> Person:
        """The person to whom the page's address with its login token belongs."""
        parts = urlsplit(page_url)
        token = parse_qs(parts.fragment)["token"][0]
        return cls(f"{parts.scheme}://{parts.netloc}/people/v1", Secret(token), clock)

    def me(self) -> Json:
        """Who this is, and how the agent is."""
        return self._call("GET", "/me")

    def open_thread(self, title: str | None = None) -> str:
        """Open a thread in the first channel and return its ID."""
        return str(self._call("POST", "/threads", {"title": title} if title else {})["id"])

    def post(self, thread_id: str, text: str, **more: Any) -> str | None:
        """Post a message and return the run it started, None when it started none."""
        body = {"client_msg_id": str(self._clock.new_id()), "content": text, **more}
        run_id: str | None = self._call("POST", f"/threads/{thread_id}/messages", body)["run_id"]
        return run_id

    def thread(self, thread_id: str) -> Json:
        """The thread with its messages and runs."""
        return self._call("GET", f"/threads/{thread_id}")

    def runs(self, thread_id: str) -> list[Json]:
        """The views of a thread's runs, oldest first."""
        runs: list[Json] = self.thread(thread_id)["runs"]
        return runs

    def answer(self, thread_id: str, run_id: str) -> str:
        """What the agent answered in a run: its parts put together."""
        messages = self.thread(thread_id)["messages"]
        return answer_text([one for one in messages if one["run_id"] == run_id])

    def cancel(self, run_id: str) -> Json:
        """Cancel a run."""
        return self._call("POST", f"/runs/{run_id}/cancel", {})

    def use(self, message_id: str, component_id: str, values: list[str]) -> Json:
        """Use a component of a card."""
        body = {"component_id": component_id, "values": values}
        return self._call("POST", f"/messages/{message_id}/interactions", body)

    def watch(self) -> RunFeed:
        """Follow what changes from now on."""
        position = self.me()["position"]
        return RunFeed(self._address, f"{self._base}/events?since={position}", self._token)

    def _call(self, method: str, path: str, body: Json | None = None) -> Json:
        connection = http.client.HTTPConnection(self._address, timeout=REQUEST_SECONDS)
        with closing(connection):
            headers = {"Authorization": f"Bearer {self._token.reveal()}"}
            data = None if body is None else json.dumps(body).encode()
            if data is not None:
                headers["Content-Type"] = "application/json"
            try:
                connection.request(method, self._base + path, data, headers)
                answer = connection.getresponse()
                value = json.loads(answer.read() or b"{}")
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise TransportError("people", "reset", sent=True) from error
        if answer.status >= 400:  # noqa: PLR2004  # HTTP's own number
            raise ProblemAnswer("people", answer.status, value.get("code"))
        result: Json = value
        return result


def answer_text(messages: list[Json]) -> str:
    """Put the answer of a run together: parts without a gap, several answers as paragraphs."""
    texts: list[str] = []
    for message in messages:
        if message["role"] != "answer":
            continue
        part = message["part"] or {"index": 0}
        if part["index"] and texts:
            texts[-1] += message["content"]
        else:
            texts.append(message["content"])
    return "\n\n".join(texts)


class RunFeed:
    """The stream of changes, read on a thread of its own so that the reader can wait with a limit."""

    def __init__(self, address: str, target: str, token: Secret) -> None:
        self._changes: queue.SimpleQueue[tuple[str, Json] | None] = queue.SimpleQueue()
        self._connection = http.client.HTTPConnection(address, timeout=SILENCE_SECONDS)
        with ExitStack() as unless_read:
            unless_read.callback(self._connection.close)
            try:
                self._connection.request("GET", target, headers={"Authorization": f"Bearer {token.reveal()}"})
                self._socket = self._connection.sock  # the connection lets go of it with the answer
                self._answer = self._connection.getresponse()
            except (OSError, http.client.HTTPException) as error:
                raise TransportError("events", "connect", sent=False) from error
            unless_read.callback(self._answer.close)
            if self._answer.status != 200:  # noqa: PLR2004  # HTTP's own number
                raise ProblemAnswer("events", self._answer.status, None)
            unless_read.pop_all()
        threading.Thread(target=self._read, name="bothy-people-feed", daemon=True).start()

    def next(self, seconds: float) -> tuple[str, Json] | None:
        """The next change as (kind, value); None when nothing came in time.

        Raises:
            TransportError: The stream ended.
        """
        try:
            change = self._changes.get(timeout=seconds)
        except queue.Empty:
            return None
        if change is None:
            raise TransportError("events", "closed", sent=False)
        return change

    def close(self) -> None:
        """Stop reading; the server hears of it at once, although the other thread waits for a line."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read(self) -> None:
        with suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
            for kind, value in _events(iter(self._answer.readline, b"")):
                self._changes.put((kind, value))
        self._answer.close()
        self._changes.put(None)


def _events(lines: Iterator[bytes]) -> Iterator[tuple[str, Json]]:
    """Read server-sent events whose data is JSON."""
    fields: dict[str, str] = {}
    for raw in lines:
        line = raw.decode().rstrip("\r\n")
        if not line:
            if "data" in fields:
                yield fields.get("event", "message"), json.loads(fields["data"])
            fields = {}
            continue
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")
