"""The scripted model's server, over a real socket."""

import http.client
import json
import socket
import threading

import pytest

from bothy_hermes import local_model
from bothy_hermes.local_model import MODEL_NAME, ScriptedModel
from bothy_hermes.local_model_words import LABEL


@pytest.fixture
def model():
    running = ScriptedModel.start()
    yield running
    running.stop()


def call(model, method, path, body=None):
    host = model.base_url.removeprefix("http://").removesuffix("/v1")
    connection = http.client.HTTPConnection(host, timeout=10)
    try:
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, f"/v1{path}", data)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def chat(model, text, **more):
    body = {"model": MODEL_NAME, "messages": [{"role": "user", "content": text}], **more}
    return call(model, "POST", "/chat/completions", body)


def events(data):
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_the_list_of_models_says_that_it_is_a_script(model):
    status, data = call(model, "GET", "/models")
    entry = json.loads(data)["data"][0]
    assert (status, entry["id"]) == (200, MODEL_NAME)
    assert "script" in entry["owned_by"]


def test_an_answer_in_one_piece(model):
    status, data = chat(model, "repeat fine words")
    choice = json.loads(data)["choices"][0]
    assert status == 200
    assert choice["message"]["content"] == f"{LABEL} fine words"
    assert choice["finish_reason"] == "stop"
    assert json.loads(data)["usage"]["completion_tokens"] > 0


def test_a_streamed_answer_comes_in_pieces_with_usage_at_the_end(model):
    status, data = chat(model, "hello", stream=True, stream_options={"include_usage": True})
    chunks = events(data)
    pieces = [chunk["choices"][0]["delta"].get("content") for chunk in chunks if chunk["choices"]]
    assert status == 200
    assert len(pieces) > 5
    assert "".join(piece for piece in pieces if piece).startswith(f"{LABEL} Hello")
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["total_tokens"] > 0
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_have_an_id_and_json_arguments(model, stream):
    _, data = chat(model, "parallel", stream=stream)
    if stream:
        calls = [chunk["choices"][0] for chunk in events(data)]
        finish, calls = calls[-1]["finish_reason"], calls[0]["delta"]["tool_calls"]
    else:
        choice = json.loads(data)["choices"][0]
        finish, calls = choice["finish_reason"], choice["message"]["tool_calls"]
    assert finish == "tool_calls"
    assert [one["index"] for one in calls] == [0, 1]
    assert len({one["id"] for one in calls}) == 2
    assert json.loads(calls[1]["function"]["arguments"]) == {"command": "echo two"}


@pytest.mark.parametrize(("word", "expected"), [("error401", 401), ("error500", 500)])
def test_an_error_word_is_an_error_status_that_names_the_script(model, word, expected):
    status, data = chat(model, word, stream=True)
    assert status == expected
    assert json.loads(data)["error"]["message"].startswith(LABEL)


@pytest.mark.parametrize("body", [b"no json", b"[1]", b""])
def test_a_body_that_is_no_object_is_refused_and_not_kept(model, body):
    assert call(model, "POST", "/chat/completions", body)[0] == 400
    assert model.requests == []


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("POST", "/completions")])
def test_another_path_is_not_there(model, method, path):
    assert call(model, method, path, {} if method == "POST" else None)[0] == 404


def test_the_requests_are_kept_for_tests(model):
    chat(model, "repeat one")
    chat(model, "repeat two", stream=True)
    assert [body["messages"][0]["content"] for body in model.requests] == ["repeat one", "repeat two"]


def test_only_the_last_requests_are_kept(model, monkeypatch):
    """A demo that goes on for days does not keep every conversation of it in memory."""
    monkeypatch.setattr(local_model, "MAX_KEPT_REQUESTS", 2)
    names = [json.loads(chat(model, text)[1])["id"] for text in ("a", "b", "c", "d")]
    assert [body["messages"][0]["content"] for body in model.requests] == ["c", "d"]
    assert len(set(names)) == 4


@pytest.mark.parametrize("length", ["-1", "x", "1" * 30, "\u0661"])
def test_a_length_that_is_none_is_refused_at_once(model, length):
    host, _, port = model.base_url.removeprefix("http://").removesuffix("/v1").partition(":")
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode())
        assert connection.makefile("rb").read().startswith(b"HTTP/1.1 400 ")
    assert model.requests == []


@pytest.mark.parametrize(
    "body",
    [{"messages": 1}, {"messages": [1]}, {"tools": 7}, {"messages": "x"}, {"tools": [{"function": 1}]}],
)
def test_a_strange_request_gets_an_answer(model, body):
    status, data = call(model, "POST", "/chat/completions", body)
    assert status in (200, 400)
    assert json.loads(data)


def test_stop_cuts_a_waiting_answer_short():
    model = ScriptedModel.start()
    failures = []

    def wait_for_answer():
        try:
            chat(model, "slow 60")
        except (http.client.HTTPException, OSError) as error:
            failures.append(error)

    thread = threading.Thread(target=wait_for_answer)
    thread.start()
    while not model.requests:
        thread.join(0.01)
    model.stop()
    thread.join(5)
    assert not thread.is_alive()
    assert len(failures) == 1
