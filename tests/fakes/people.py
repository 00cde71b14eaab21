"""A person at the server, and a bare browser-less client for what a browser would send."""

import http.client
import json
from contextlib import closing
from urllib.parse import urlsplit
from uuid import uuid4

SECONDS = 20


class PersonClient:
    """One person's calls of the people's side."""

    def __init__(self, server, token):
        self.netloc = urlsplit(server.page_url).netloc
        self.token = token

    def ask(self, method, path, body=None, headers=None):
        """Make one call; returns status and value (bytes are sent as they are)."""
        status, _, value = self.ask_all(method, "/people/v1" + path, body, headers)
        return status, json.loads(value) if value else None

    def get(self, path):
        """Read something that must be there."""
        status, value = self.ask("GET", path)
        assert status == 200, (path, status, value)
        return value

    def do(self, method, path, body=None, **headers):
        """Do something that must succeed."""
        status, value = self.ask(method, path, {} if body is None else body, headers)
        assert status < 300, (path, status, value)
        return value

    def ask_all(self, method, target, body=None, headers=None):
        """Make one request; returns status, headers and bytes. A header that is None is not sent."""
        sent = {"Host": self.netloc, "Authorization": f"Bearer {self.token}"}
        if isinstance(body, dict):
            body = json.dumps(body).encode()
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        with closing(http.client.HTTPConnection(self.netloc, timeout=SECONDS)) as connection:
            connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def thread(self, **body):
        """Begin a thread; returns its ID."""
        return self.do("POST", "/threads", body)["id"]

    def post(self, thread_id, content, client_msg_id=None, **more):
        """Write a message."""
        body = {
            "client_msg_id": client_msg_id or str(uuid4()),
            "content": content,
        }
        return self.do("POST", f"/threads/{thread_id}/messages", {**body, **more})

    def use(self, card, component, *values):
        """Use a component; returns status and value."""
        body = {"component_id": component["id"], "values": list(values)}
        return self.ask("POST", f"/messages/{card['id']}/interactions", body)

    def events(self, since=None):
        """Open the event stream, from now on unless a position is named."""
        return EventReader(self, self.get("/me")["position"] if since is None else since)


class EventReader:
    """The events of one reader, one after another. Use it as a context manager."""

    def __init__(self, person, since):
        self._connection = http.client.HTTPConnection(person.netloc, timeout=SECONDS)
        headers = {"Authorization": f"Bearer {person.token}"}
        self._connection.request("GET", f"/people/v1/events?since={since}", headers=headers)
        self.answer = self._connection.getresponse()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.answer.close()
        self._connection.close()

    def next(self):
        """Return the next event as (id, name, value), None at the end of the stream."""
        fields = {}
        while line := self.answer.readline():
            line = line.decode().rstrip("\n")
            if not line and "data" in fields:
                return int(fields["id"]), fields["event"], json.loads(fields["data"])
            name, _, value = line.partition(": ")
            fields[name] = value
        return None

    def until(self, wanted):
        """Read on to an event of a kind that a test accepts; returns its value."""
        kind, accepts = wanted if isinstance(wanted, tuple) else (wanted, lambda _value: True)
        while (event := self.next()) is not None:
            if event[1] == kind and accepts(event[2]):
                return event[2]
        raise AssertionError(f"the stream ended before {kind}")
