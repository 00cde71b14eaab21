"""What passes between an adapter and a server, judged against the frozen documents of the protocol.

`Judge` collects what does not fit. A `JudgedTransport` and a `JudgedConnector` stand between the adapter
and its real connections, and show it everything; a fault proxy shows it what both sides really said.
"""

import json

from jsonschema import ValidationError

from bothy_hermes.bothy_http import Transport
from bothy_hermes.bothy_socket import Connector, Link
from tests.fakes.frozen_protocol import check_answer, check_frame, check_request


class Judge:
    """Holds everything to the frozen documents.

    Attributes:
        found: What did not fit, as "who: where it broke which rule", without its content.
        seen: How many requests, answers and frames were judged.
    """

    def __init__(self):
        self.found = []
        self.seen = 0

    def request(self, operation, body):
        """Judge a request's body (bytes, empty or None without one)."""
        self._judge(f"request {operation}", lambda: check_request(operation, _json(body)))

    def answer(self, operation, status, headers, body):
        """Judge an answer; header names in lower case."""
        announced = "json" in headers.get("content-type", "")
        self._judge(
            f"answer {operation} {status}",
            lambda: check_answer(operation, status, _json(body) if announced else None),
        )

    def frame(self, side, text):
        """Judge a frame of the "server" or the "adapter"."""
        self._judge(f"frame of the {side}", lambda: check_frame(side, json.loads(text)))

    def _judge(self, who, check):
        self.seen += 1
        try:
            check()
        except ValidationError as error:
            place = "/".join(str(step) for step in error.absolute_path)
            self.found.append(f"{who}: {place or '.'} breaks {error.validator}")
        except (AssertionError, ValueError, KeyError) as error:
            self.found.append(f"{who}: {type(error).__name__}")


class JudgedTransport(Transport):
    """A transport whose requests and answers a judge sees."""

    def __init__(self, inner, judge):
        self._inner = inner
        self._judge = judge

    async def send(self, request, *, timeout):
        """Pass one exchange on."""
        self._judge.request(request.operation, request.body)
        response = await self._inner.send(request, timeout=timeout)
        self._judge.answer(request.operation, response.status, response.headers, response.body)
        return response

    async def close(self):
        """Close the real one."""
        await self._inner.close()


class JudgedConnector(Connector):
    """A connector whose connections a judge sees."""

    def __init__(self, inner, judge):
        self._inner = inner
        self._judge = judge

    async def __call__(self, url, headers):
        """Open a connection; what refuses it is no frame and not judged here."""
        return _JudgedLink(await self._inner(url, headers), self._judge)


class _JudgedLink(Link):
    def __init__(self, inner, judge):
        self._inner = inner
        self._judge = judge

    @property
    def headers(self):
        return self._inner.headers

    async def receive(self):
        text = await self._inner.receive()
        self._judge.frame("server", text)
        return text

    async def send(self, text):
        self._judge.frame("adapter", text)
        await self._inner.send(text)

    async def close(self):
        await self._inner.close()


def _json(body):
    return json.loads(body) if body else None
