"""The demo's person: a small client of the people's interface."""

import http.server
import queue
import threading
from contextlib import closing

import pytest

from bothy_hermes.clock import system_clock
from bothy_hermes.demo_person import Person, RunFeed, answer_text
from bothy_hermes.errors import ProblemAnswer, TransportError
from bothy_hermes.secret import Secret

STREAM = (
    b": still here\n\n"
    b'id: 4\nevent: agent\ndata: {"online": true}\n\n'
    b"id: 5\n"
    b"event: run\n"
    b'data: {"run": {"id": "r1"}}\n\n'
)


class Answers(http.server.BaseHTTPRequestHandler):
    """Answers by path, and keeps what it was asked."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Authorization"]))
        if self.path.startswith("/people/v1/events"):
            self.answer(200, STREAM, "text/event-stream")
            if self.server.stays_open:
                self.server.left.put(self.rfile.read(1))
        elif self.path == "/people/v1/me":
            self.answer(200, b'{"position": 3}')
        elif self.path == "/people/v1/threads/broken":
            self.answer(200, b"no json")
        else:
            self.answer(404, b'{"code": "not_found"}', "application/problem+json")
            if self.server.stays_open:
                self.server.left.put(self.rfile.read(1))

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as running:
        running.asked = []
        running.stays_open, running.left = False, queue.SimpleQueue()
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def person(server):
    return Person.from_page(f"http://127.0.0.1:{server.server_port}/#token=the-token", system_clock())


def message(content, part=None, role="answer"):
    return {"role": role, "content": content, "part": part}


def test_the_login_token_of_the_page_is_the_persons(server, person):
    assert person.me() == {"position": 3}
    assert server.asked == [("/people/v1/me", "Bearer the-token")]


def test_changes_are_followed_from_where_they_stand(server, person):
    with closing(person.watch()) as feed:
        assert feed.next(5) == ("agent", {"online": True})
        assert feed.next(5) == ("run", {"run": {"id": "r1"}})
    assert server.asked[-1][0] == "/people/v1/events?since=3"


def test_the_end_of_the_stream_is_an_error_and_not_silence(person):
    with closing(person.watch()) as feed:
        feed.next(5)
        feed.next(5)
        with pytest.raises(TransportError):
            feed.next(5)


def test_a_reader_that_is_closed_leaves_the_server(server, person):
    """Else the server would keep it, while a thread waits for a line that nobody wants."""
    server.stays_open = True
    with closing(person.watch()) as feed:
        feed.next(5)
        with pytest.raises(queue.Empty):
            server.left.get(timeout=0.05)
    assert server.left.get(timeout=5) == b""


def test_a_refused_stream_leaves_no_connection_behind(server):
    """Not even as long as somebody keeps the error, whose frames know the feed."""
    server.stays_open = True
    with pytest.raises(ProblemAnswer) as kept:
        RunFeed(f"127.0.0.1:{server.server_port}", "/elsewhere", Secret("x"))
    assert server.left.get(timeout=5) == b""
    assert kept.value.status == 404


def test_a_problem_names_its_code(person):
    with pytest.raises(ProblemAnswer) as caught:
        person.thread("nowhere")
    assert (caught.value.status, caught.value.code) == (404, "not_found")


def test_an_answer_that_is_no_json_is_a_broken_connection(person):
    with pytest.raises(TransportError):
        person.thread("broken")


def test_no_server_is_a_broken_connection():
    with pytest.raises(TransportError):
        Person.from_page("http://127.0.0.1:1/#token=x", system_clock()).me()


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([], ""),
        ([message("Fine.")], "Fine."),
        ([message("Wait", role="interim"), message("Fine.")], "Fine."),
        ([message("a", {"index": 0, "last": False}), message("b", {"index": 1, "last": True})], "ab"),
        ([message("a"), message("b")], "a\n\nb"),
        ([message("x", role=None)], ""),
    ],
    ids=["none", "one", "interim", "parts", "two", "person"],
)
def test_an_answer_is_put_together_from_its_messages(messages, text):
    assert answer_text(messages) == text
