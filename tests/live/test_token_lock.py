"""One token, one gateway: Hermes' own lock of the machine keeps the second one out."""

import os
import subprocess
import sys
from pathlib import Path

import bothy_hermes

ROOT = Path(bothy_hermes.__file__).parents[1]

HOLD = """
import os, sys
from bothy_hermes.errors import StateLocked
from bothy_hermes.hermes_lock import TokenLock
from bothy_hermes.secret import Secret
lock = TokenLock(Secret(os.environ["TOKEN"]), "bothy", os.environ["HERMES_HOME"])
try:
    lock.acquire()
except StateLocked as error:
    print(error)
else:
    print("held", flush=True)
    sys.stdin.read()
    lock.release()
"""


def holder(root, token, home):
    """A process that takes the lock of a token and keeps it until its input ends.

    Hermes believes a record only as long as its process has the command line of a gateway.
    """
    (root / home).mkdir(exist_ok=True)
    (root / "hermes").write_text(HOLD, "utf-8")
    environment = {
        "PATH": os.defpath,
        "HOME": str(root / home),
        "HERMES_HOME": str(root / home),
        "HERMES_GATEWAY_LOCK_DIR": str(root),
        "PYTHONPATH": str(ROOT),
        "TOKEN": token,
    }
    return subprocess.Popen(
        [sys.executable, str(root / "hermes"), "gateway", "run"],
        env=environment,
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_token_serves_one_gateway_of_the_machine(hermes_installed, tmp_path):
    """The second is told which process has it; a killed holder holds nothing; the token itself is nowhere."""
    with holder(tmp_path, "token-one", "first") as first:
        assert first.stdout.readline() == "held\n"
        refused, _ = holder(tmp_path, "token-one", "second").communicate(timeout=60)
        assert f"process {first.pid}" in refused
        records = [path.read_bytes() for path in tmp_path.glob("*.lock")]
        assert len(records) == 1
        assert b"token-one" not in records[0]
        with holder(tmp_path, "token-two", "second") as other:
            assert other.stdout.readline() == "held\n"
            other.stdin.close()
        first.kill()
    with holder(tmp_path, "token-one", "second") as second:
        assert second.stdout.readline() == "held\n"
        second.stdin.close()
