"""A transport that answers from a script: calls are tested without sockets and without threads."""

import json
from collections import defaultdict, deque

from bothy_hermes.bothy_http import Response, Transport


def json_answer(status, value, **headers):
    """An answer with a JSON body; header names are given with underscores."""
    return Response(status, _names(headers), json.dumps(value).encode("utf-8"))


def problem(status, code=None, **headers):
    """An error answer as the protocol has them."""
    return json_answer(status, {} if code is None else {"code": code}, **headers)


def empty_answer(status, **headers):
    """An answer without a body."""
    return Response(status, _names(headers), b"")


def _names(headers):
    return {name.replace("_", "-"): value for name, value in headers.items()}


class FakeTransport(Transport):
    """Answers each request with the next line of its operation's script.

    A line is a `Response`, an exception to raise, or a function of the request that returns either. The
    last line given with `always` answers for good. A request that no line is left for fails the test.

    Attributes:
        requests: What was sent, in order.
        timeouts: The timeouts that came with the requests.
        closed: Whether `close` was called.
    """

    def __init__(self):
        self.requests = []
        self.timeouts = []
        self.closed = False
        self._scripts = defaultdict(deque)
        self._always = {}

    def script(self, operation, *lines):
        """Append lines for an operation."""
        self._scripts[operation].extend(lines)

    def always(self, operation, line):
        """Answer an operation with this line whenever its script is empty."""
        self._always[operation] = line

    def sent(self, operation):
        """The requests of an operation, in order."""
        return [request for request in self.requests if request.operation == operation]

    async def send(self, request, *, timeout):  # the signature of Transport
        """Answer from the script."""
        self.requests.append(request)
        self.timeouts.append(timeout)
        script = self._scripts[request.operation]
        if not script and request.operation not in self._always:
            raise AssertionError(f"no answer is left for {request.operation}")
        line = script.popleft() if script else self._always[request.operation]
        if callable(line):
            line = line(request)
        if isinstance(line, BaseException):
            raise line
        return line

    async def close(self):
        """Remember that it was called."""
        self.closed = True

    @property
    def used_up(self):
        """Whether every scripted line was asked for."""
        return not any(self._scripts.values())
