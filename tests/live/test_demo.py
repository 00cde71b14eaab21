"""The demo command on the real Hermes."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.kit import pause

ROOT = Path(__file__).parents[2]


@pytest.fixture
def person(hermes_installed, tmp_path):
    """A person with a Hermes of their own, whose environment the demo is started from."""
    home = tmp_path / "person"
    (home / ".hermes").mkdir(parents=True)
    (home / ".hermes" / "config.yaml").write_text("model: {provider: anthropic}\n")
    (home / ".claude").mkdir()
    (home / ".claude" / ".credentials.json").write_text("{}")
    return os.environ | {
        "HOME": str(home),
        "HERMES_HOME": str(home / ".hermes"),
        "TMPDIR": str(tmp_path),
        "ANTHROPIC_API_KEY": "a person's own",
    }


def start(person, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "bothy_hermes", "demo", *options],
        cwd=ROOT,
        env=person,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def files_of(person):
    home = Path(person["HOME"])
    return {path.relative_to(home): path.stat().st_mtime_ns for path in home.rglob("*")}


def processes_of(person):
    """Processes whose environment names the temporary directory of this test."""
    mark = person["TMPDIR"].encode() + b"/bothy-demo-"
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes())
        except OSError:
            continue
    return found


def test_one_message_is_answered_and_nothing_is_left(person):
    """One command, one answer; the person's own Hermes is as it was, and no process and file remain."""
    before = files_of(person)
    process = start(person, "--once", "tool", "--json")
    shown, said = process.communicate(timeout=110)
    lines = [json.loads(line) for line in shown.splitlines()]
    assert process.returncode == 0, said
    assert said == ""
    assert lines[-1]["run"]["state"] == "completed"
    assert lines[-1]["run"]["billing_mode"] == "organization"
    assert lines[-1]["answer"] == "[script] The tool said: hello from the terminal"
    assert any(
        step["state"] == "completed" for line in lines for step in line.get("box", {}).get("steps", ())
    )
    assert files_of(person) == before
    assert processes_of(person) == []
    assert list(Path(person["TMPDIR"]).glob("bothy-demo-*")) == []


def readme_rows():
    """The acts that the README shows: options, and words with which the output ends."""
    text = (ROOT / "README.md").read_text("utf-8")
    table = text.split("| options | what happens | it ends with |", 1)[1].split("\n\n", 1)[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [(options.strip("`"), end.strip("`")) for options, _, end in cells]


@pytest.mark.slow
@pytest.mark.parametrize(("options", "end"), readme_rows())
def test_what_the_readme_shows_happens(person, options, end):
    """As it stands there."""
    process = start(person, *shlex.split(options))
    shown, said = process.communicate(timeout=110)
    assert said == ""
    assert process.returncode == ("--cancel-after" in options)
    assert end in " ".join(shown.splitlines()[-6:]), shown


def test_ctrl_c_ends_the_gateway_and_the_command_it_runs(person):
    """A command of the agent's terminal does not outlive the demo."""
    process = start(person, "--once", "sleep 300")
    seen = []
    for line in process.stdout:
        seen.append(line)
        if line.startswith("  … "):
            break
    assert processes_of(person), seen
    pause(0.5)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=40)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert processes_of(person) == []
