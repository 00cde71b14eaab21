"""The embedded server as a process of its own, and how much memory a process holds."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def server_process(state):
    """Start the command `local-server`; gives its process ID and what fakes ask of a server."""
    command = [sys.executable, "-m", "bothy_hermes", "local-server", "--json", "--state", str(state)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        said = json.loads(process.stdout.readline())
        agent = said["agent"]
        access = SimpleNamespace(id=agent["id"], token_file=Path(agent["token_file"]))
        yield (
            process.pid,
            SimpleNamespace(
                api_url=said["api_url"],
                page_url=said["page_url"],
                instance_id=said["instance_id"],
                agent=access,
                people=said["people"],
            ),
        )
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def resident_bytes(pid):
    """The resident memory of a process, as `ps` counts it."""
    asked = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(asked.stdout) * 1024
