"""A server that speaks the chat-completions interface and has a script instead of a model.

Layer: default. It owns a loopback port, the streaming and non-streaming forms of an answer, and the
list of requests that it got; what is said is decided in `local_model_script`. It needs no key and asks
nobody. Hermes reaches it as a provider of kind `custom`.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .clock import Clock, system_clock
from .local_model_script import decide
from .local_model_words import LABEL, Reply

MODEL_NAME = "scripted-model"
"""The model's name on the wire."""

CONTEXT_TOKENS = 131_072
"""Tokens that the script claims to read: what Hermes asks for at least, with room."""

PIECE_CHARS = 12
"""Characters of one streamed piece: some words, so that a draft is seen growing."""

MAX_PIECES = 2_000
"""Most pieces of one streamed answer; a longer one comes in larger pieces."""

MAX_REQUEST_BYTES = 16_777_216
"""Bytes of one request: far above any context that the script claims to read."""

MAX_KEPT_REQUESTS = 1_000
"""Chat requests that are kept, the last ones."""

_LENGTH = re.compile(r"[0-9]{1,12}")
_POLL_SECONDS = 0.05
"""How often the accepting thread looks whether it is to stop."""


class ScriptedModel:
    """The running server.

    Attributes:
        base_url: The base URL for a client, ending in `/v1`.
        requests: The bodies of the last chat requests, oldest first, for tests to read.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server
        self._thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_SECONDS,), name="bothy-local-model", daemon=True
        )
        self._thread.start()
        self.base_url = f"http://127.0.0.1:{server.server_port}/v1"
        self.requests: list[dict[str, Any]] = server.requests

    @classmethod
    def start(cls, port: int = 0, *, clock: Clock | None = None) -> ScriptedModel:
        """Listen on a loopback port, 0 for a free one.

        Raises:
            OSError: The port is taken.
        """
        return cls(_Server(port, clock or system_clock()))

    def stop(self) -> None:
        """Stop listening and cut answers short that still wait."""
        self._server.stopping.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """The listening socket and what its handlers share."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int, clock: Clock) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.clock = clock
        self.requests: list[dict[str, Any]] = []
        self.count = 0
        self.stopping = threading.Event()

    def keep(self, body: dict[str, Any]) -> None:
        """Keep a request for those who test; the oldest go, since a demo may run for days."""
        self.count += 1
        self.requests.append(body)
        del self.requests[:-MAX_KEPT_REQUESTS]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that went away: Hermes drops a stream whenever it interrupts."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: _Server
    # Without this a streamed piece waits for the answer to the one before (Nagle, delayed ACK).
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class' name
        """Log nothing: the requests hold what people wrote."""

    def do_GET(self) -> None:
        """Answer the list of models, or that there is nothing here."""
        if self.path.rstrip("/") == "/v1/models":
            self._json(200, {"object": "list", "data": [_model_entry()]})
        elif self.path == f"/v1/models/{MODEL_NAME}":
            self._json(200, _model_entry())
        else:
            self._json(404, _error("There is nothing here."))

    def do_POST(self) -> None:
        """Answer a chat request by the script."""
        body = self._body()
        if self.path != "/v1/chat/completions":
            self._json(404, _error("There is nothing here."))
        elif body is None:
            self._json(400, _error("Expected a JSON object."))
        elif (reply := _decide(body)) is None:
            self._json(400, _error("Expected a chat request."))
        else:
            self.server.keep(body)
            self._answer(body, reply)

    def _body(self) -> dict[str, Any] | None:
        length = _LENGTH.fullmatch(self.headers.get("Content-Length", "0"))
        if length is None or int(length[0]) > MAX_REQUEST_BYTES:
            self.close_connection = True
            return None
        try:
            value = json.loads(self.rfile.read(int(length[0])))
        except (ValueError, RecursionError):
            return None
        return value if isinstance(value, dict) else None

    def _answer(self, body: dict[str, Any], reply: Reply) -> None:
        if self.server.stopping.wait(reply.wait_seconds):
            self.close_connection = True
        elif reply.status != 200:  # noqa: PLR2004  # HTTP's own number
            self._json(reply.status, _error(reply.text))
        elif body.get("stream"):
            self._stream(body, reply)
        else:
            self._json(200, self._completion(body, reply))

    def _completion(self, body: Mapping[str, Any], reply: Reply) -> dict[str, Any]:
        message = {"role": "assistant", "content": reply.text or None, "tool_calls": self._calls(reply)}
        choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
        return self._envelope("chat.completion", [choice]) | {"usage": _usage(body, reply)}

    def _stream(self, body: Mapping[str, Any], reply: Reply) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number, chunk in enumerate(self._chunks(body, reply)):
            if number and self.server.stopping.wait(reply.piece_seconds):
                self.close_connection = True
                return
            self._send_chunk(f"data: {json.dumps(chunk)}\n\n")
        self._send_chunk("data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")

    def _send_chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _chunks(self, body: Mapping[str, Any], reply: Reply) -> Iterator[dict[str, Any]]:
        size = max(PIECE_CHARS, len(reply.text) // MAX_PIECES + 1)
        for start in range(0, len(reply.text), size):
            yield self._chunk({"role": "assistant", "content": reply.text[start : start + size]})
        calls = self._calls(reply)
        if calls:
            yield self._chunk({"role": "assistant", "tool_calls": calls})
        yield self._chunk({}, _finish_reason(reply))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield self._envelope("chat.completion.chunk", []) | {"usage": _usage(body, reply)}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return self._envelope("chat.completion.chunk", [choice])

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-script-{self.server.count}",
            "object": kind,
            "created": int(self.server.clock.now().timestamp()),
            "model": MODEL_NAME,
            "choices": choices,
        }

    def _calls(self, reply: Reply) -> list[dict[str, Any]] | None:
        return [
            {
                "index": index,
                "id": f"call_{self.server.clock.new_id().hex[:16]}",
                "type": "function",
                "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments))},
            }
            for index, call in enumerate(reply.calls)
        ] or None

    def _json(self, status: int, value: Mapping[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _decide(body: Mapping[str, Any]) -> Reply | None:
    """The script's reply, None for what is no chat request."""
    try:
        return decide(body)
    except (TypeError, AttributeError):
        return None


def _finish_reason(reply: Reply) -> str:
    return "tool_calls" if reply.calls else "stop"


def _usage(body: Mapping[str, Any], reply: Reply) -> dict[str, int]:
    """Numbers that grow with the texts, four characters a token; nobody counted tokens."""
    said = len(reply.text) + sum(len(json.dumps(dict(call.arguments))) for call in reply.calls)
    prompt, completion = len(json.dumps(body.get("messages", ()))) // 4 + 1, said // 4 + 1
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _model_entry() -> dict[str, Any]:
    return {
        "id": MODEL_NAME,
        "object": "model",
        "created": 0,
        "owned_by": "bothy-hermes: a script, no model",
        "context_length": CONTEXT_TOKENS,
    }


def _error(text: str) -> dict[str, Any]:
    return {"error": {"message": text if text.startswith(LABEL) else f"{LABEL} {text}", "type": "script"}}
