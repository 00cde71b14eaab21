"""Record the cassettes of Hermes anew: `python -m tests.record`, with the pinned Hermes installed."""

import sys
import tempfile
from pathlib import Path

from tests.live import tap
from tests.live.kit import LiveWorld, pause
from tests.recording import CASSETTES, read_rows, shape, stabilize, write_rows

SCENARIOS = {"plain": "repeat good morning", "tool": "tool", "note": "note", "error": "error401"}
"""What a person says in each cassette; each in a thread of its own."""

SETTLE_SECONDS = 1.0
"""After the end of a run Hermes still tells that it is done with the message."""


def record_all(root):
    """Run every scenario on the real gateway and return the rows of its cassette."""
    world = LiveWorld(root)
    try:
        world.open()
        calls = tap.install(world.gateway.place.hermes_home / "plugins" / "bothy")
        world.start()
        world.say("repeat warm up")
        pause(SETTLE_SECONDS)
        return {name: _record(world, calls, text) for name, text in SCENARIOS.items()}
    finally:
        world.close()


def _record(world, calls, text):
    before = len(read_rows(calls))
    world.say(text)
    pause(SETTLE_SECONDS)
    return stabilize(read_rows(calls)[before:])


def main():
    with tempfile.TemporaryDirectory() as root:
        recorded = record_all(Path(root))
    for name, rows in recorded.items():
        path = CASSETTES / f"{name}.jsonl"
        changed = not path.exists() or shape(read_rows(path)) != shape(rows)
        write_rows(path, rows)
        sys.stdout.write(
            f"{path.name}: {len(rows)} calls, {'a new shape' if changed else 'the same shape'}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
