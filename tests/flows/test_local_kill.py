"""A server that is killed at any point loses nothing that it had accepted."""

import contextlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from bothy_hermes.local_port import LocalServer
from bothy_hermes.wire_words import ElementKind

ROOT = Path(__file__).parents[2]
WRITERS = 4


class Child:
    """The server in a process of its own."""

    def __init__(self, state):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bothy_hermes", "local-server", "--state", str(state), "--json"],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self.ready = json.loads(self.process.stdout.readline())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()


def post(connection, token, path, body):
    """Make one call of a person; None when the server died over it."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", f"/people/v1{path}", json.dumps(body), headers)
        response = connection.getresponse()
        return json.loads(response.read()) if response.status in (200, 201) else None
    except (OSError, http.client.HTTPException, ValueError):
        return None


def write_until_dead(ready, thread_id, number, accepted):
    """Post messages as fast as they are answered, and note what was answered."""
    parts = urlsplit(ready["page_url"])
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)
    token = ready["people"][number % 2]["token"]
    with contextlib.closing(connection):
        for count in range(100_000):
            name = f"{number}-{count}-{time.monotonic_ns()}"
            found = post(
                connection, token, f"/threads/{thread_id}/messages", {"client_msg_id": name, "content": name}
            )
            if found is None:
                return
            accepted.append((found["message"]["id"], name, found["run_id"]))


@pytest.mark.timeout(120)
def test_kill_at_any_point_loses_no_accepted_message(tmp_path):
    """Four writers, several kills: every message that was answered is there, in its thread, with its run."""
    accepted, threads = [], []
    moments = random.Random(7)
    for _ in range(4):
        child = Child(tmp_path)
        parts = urlsplit(child.ready["page_url"])
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=5)
        made = [post(connection, child.ready["people"][0]["token"], "/threads", {}) for _ in range(WRITERS)]
        connection.close()
        threads += [one["id"] for one in made]
        workers = [
            threading.Thread(target=write_until_dead, args=(child.ready, one["id"], number, accepted))
            for number, one in enumerate(made)
        ]
        for worker in workers:
            worker.start()
        time.sleep(moments.uniform(0.2, 0.8))
        child.kill()
        for worker in workers:
            worker.join()
    assert len(accepted) > 50

    server = LocalServer.start(tmp_path)
    try:
        assert [str(thread.id) for thread in server.instance.threads()] == threads
        state = server.instance.state
        kept = {
            str(one.message.id): one for one in state.messages.all() if one.element is ElementKind.MESSAGE
        }
        for message_id, content, run_id in accepted:
            assert kept[message_id].message.content == content
            assert run_id is None or str(kept[message_id].message.run_id) == run_id
        for record in kept.values():
            assert record.message.run_id is not None or record.followup_of is not None
        for thread in server.instance.threads():
            runs = server.instance.runs(thread.id)
            assert len([view for view in runs if not view.run.state.ended]) == 1
    finally:
        server.stop()
