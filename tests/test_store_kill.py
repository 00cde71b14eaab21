"""SIGKILL between claims: what was acknowledged is on disk, and nothing is there twice."""

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

from tests.fakes.store_kit import event_id

ROOT = Path(__file__).parents[1]
CLAIMS = 1000
KILLS_AT = (1, 120, 240, 400, 560, 720, 880)
"""Numbers of acknowledged claims at which the process is killed."""


def acked(path):
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def worker(directory, acks):
    command = [sys.executable, "-m", "tests.fakes.claim_worker", str(directory), str(acks), str(CLAIMS)]
    return subprocess.Popen(command, cwd=ROOT)


def kill_at(process, acks, count):
    """Kill a process as soon as it has acknowledged so many; returns whether it was still alive."""
    while process.poll() is None:
        if acks.exists() and acks.read_bytes().count(b"\n") >= count:
            process.kill()
            break
        time.sleep(0.0005)
    process.wait(30)
    return process.returncode == -9


def stored(directory):
    """Events, token IDs and calls of a file that nobody has open."""
    with closing(sqlite3.connect(directory / "state.sqlite3")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        return [
            [row[0] for row in connection.execute(query)]
            for query in (
                "SELECT event_id FROM inbox",
                "SELECT event_id FROM token_ids",
                "SELECT 'k' || substr(key, 2) FROM outbox",
            )
        ]


def test_a_thousand_claims_survive_kills(tmp_path):
    """64 waiters, seven kills: every acknowledged claim is there with its token ID and its call, once."""
    directory, acks = tmp_path / "state", tmp_path / "acks"
    kills = 0
    for count in KILLS_AT:
        with worker(directory, acks) as process:
            kills += kill_at(process, acks, count)
        events, tokens, calls = stored(directory)
        missing = {str(event_id(number)) for number in acked(acks)} - set(events)
        assert missing == set()
        assert sorted(events) == sorted(tokens)
        assert len(events) == len(set(events)) == len(calls)
    with worker(directory, acks) as process:
        assert process.wait(60) == 0
    assert kills >= 5  # a kill that came after the last claim proves nothing
    events, tokens, calls = stored(directory)
    assert sorted(events) == sorted(tokens) == sorted(str(event_id(n)) for n in range(1, CLAIMS + 1))
    assert sorted(calls) == sorted(f"k{number}" for number in range(1, CLAIMS + 1))
    assert sorted(acked(acks)) == list(range(1, CLAIMS + 1))
