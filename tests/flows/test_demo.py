"""The demo command from its first line to its exit status, with a small program in Hermes' place."""

import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bothy_hermes import __main__ as commands
from bothy_hermes import demo_world, gateway_process
from bothy_hermes.clock import system_clock
from bothy_hermes.demo import run_demo
from bothy_hermes.errors import ConfigError, StartFailed, WatchLost
from tests.fakes.agent import FakeAgent, button, step

ROOT = Path(__file__).parents[2]

STARTING = """
import sys
from pathlib import Path
from bothy_hermes import __main__, gateway_process
gateway_process.find_hermes = lambda: Path(sys.argv[1])
sys.exit(__main__.main(["demo", "--once", "hello", "--keep", sys.argv[2]]))
"""
"""The demo as a process whose Hermes never connects."""


@pytest.fixture
def hermes(tmp_path, monkeypatch):
    """A program that runs until it is ended."""
    command = tmp_path / "bin" / "hermes"
    command.parent.mkdir()
    command.write_text(
        "#!/bin/sh\ntrap 'sleep 1; exit 0' TERM\n"
        "echo $$ > pid\necho up and running\nwhile :; do sleep 0.1; done\n"
    )
    command.chmod(stat.S_IRWXU)
    monkeypatch.setattr(gateway_process, "find_hermes", lambda: command)
    return command


@pytest.fixture
def agent_does(hermes, monkeypatch):
    """Has an agent connect as soon as the gateway runs, which then works on its first run."""
    workers = []

    def use(work):
        def start(world, _tell):
            world.gateway.start()
            connected = threading.Event()

            def serve():
                with FakeAgent(world.server) as agent:
                    connected.set()
                    work(agent, world)

            workers.append(threading.Thread(target=serve))
            workers[-1].start()
            assert connected.wait(10)

        monkeypatch.setattr(demo_world.DemoWorld, "start_gateway", start)

    yield use
    for worker in workers:
        worker.join(10)


def answers(agent, _world):
    run = agent.take()
    run.show(status_line="running echo", steps=[step("echo hello", state="completed")])
    run.say("It says ")
    run.say("hello.")
    run.finish()


def demo(text="hello", *, keep=None, as_json=False, out=None):
    out = out or io.StringIO()
    status = run_demo(text, as_json=as_json, keep=keep, out=out, clock=system_clock())
    return status, out.getvalue()


def is_gone(pid, seconds=5):
    clock = system_clock()
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        threading.Event().wait(0.02)
    return False


def test_one_message_is_posted_shown_and_answered(agent_does):
    agent_does(answers)
    status, shown = demo()
    lines = shown.splitlines()
    assert status == 0
    assert "  running echo" in lines
    assert "  ✓ echo hello" in lines
    assert "run completed" in lines
    assert lines.index("run completed") < lines.index("It says ")
    assert lines[-1] == "Stopping everything"


def test_as_json_the_last_run_and_its_answer_are_one_line(agent_does):
    agent_does(answers)
    status, shown = demo(as_json=True)
    lines = [json.loads(line) for line in shown.splitlines()]
    result = [line for line in lines if "answer" in line]
    assert status == 0
    assert result == lines[-1:]
    assert result[0]["run"]["state"] == "completed"
    assert result[0]["answer"] == "It says \n\nhello."


def test_a_run_that_did_not_complete_is_status_1(agent_does):
    agent_does(lambda agent, _world: agent.take().finish("failed", "runtime_error"))
    status, shown = demo()
    assert status == 1
    assert "run failed (runtime_error)" in shown
    assert "(no answer)" in shown


def test_a_gateway_that_ends_during_the_run_is_said(agent_does):
    """With what it printed last, because its log goes with everything else."""

    def dies(agent, world):
        agent.take()
        while not world.gateway.place.log.read_text():
            threading.Event().wait(0.01)
        world.gateway.kill()

    agent_does(dies)
    out = io.StringIO()
    with pytest.raises(WatchLost, match="ended by itself"):
        demo(out=out)
    assert out.getvalue().splitlines()[-2:] == ["  hermes: up and running", "Stopping everything"]


def test_what_fails_after_the_start_is_status_1(agent_does, capsys, monkeypatch):
    """2 would say that nothing could be started."""
    agent_does(lambda _agent, world: world.gateway.stop())
    assert commands.main(["demo"]) == 1
    assert capsys.readouterr().err == (
        "bothy_hermes: hermes: the gateway ended by itself; its last words were told\n"
    )


def test_a_run_that_waits_for_an_answer_that_nobody_gave_says_so(agent_does, monkeypatch):
    monkeypatch.setattr("bothy_hermes.demo.TELL_SECONDS", 0.3)
    shown = io.StringIO()

    def asks(agent, _world):
        run = agent.take()
        run.ask("Which colour?", [button("blue", "Blue")])
        while "waits for an answer" not in shown.getvalue():
            threading.Event().wait(0.01)
        run.finish("failed", "runtime_error")

    agent_does(asks)
    demo(out=shown)
    assert "The run waits for an answer, which --answer LABEL would give (" in shown.getvalue()


def test_without_a_message_it_shows_the_page_and_stays_until_the_end(agent_does):
    """The address has the login token, so that a click is enough; here the gateway's death is the end."""
    agent_does(lambda _agent, world: world.gateway.stop())
    out = io.StringIO()
    with pytest.raises(WatchLost, match="ended by itself"):
        run_demo(None, as_json=False, keep=None, out=out, clock=system_clock())
    assert re.search(r"Open http://127\.0\.0\.1:\d+/#token=\S+ and write", out.getvalue())


def test_everything_is_deleted_unless_it_is_to_be_kept(agent_does, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    agent_does(answers)
    demo()
    assert list((tmp_path / "temporary").iterdir()) == []
    _, shown = demo(keep=tmp_path / "kept")
    assert (tmp_path / "kept" / "gateway" / "hermes" / "config.yaml").is_file()
    assert shown.splitlines()[-1] == f"Everything is kept in {tmp_path / 'kept'}"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        (".", "--keep: the directory is not empty; name a new one"),
        ("file", "--keep: is no directory; name a new one"),
        ("file/below", "--keep: the directory cannot be made (Not a directory)"),
        ("nowhere", "--keep: is no directory; name a new one"),
    ],
)
def test_a_directory_that_cannot_be_kept_is_not_used(hermes, tmp_path, name, sentence):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with pytest.raises(ConfigError) as caught:
        demo(keep=tmp_path / name)
    assert str(caught.value) == sentence
    assert (tmp_path / "file").read_text() == "mine"


def test_a_directory_that_cannot_be_written_to_is_not_used(hermes, tmp_path, monkeypatch):
    """The right is asked for: who runs the tests may have every right."""
    monkeypatch.setattr("bothy_hermes.demo.os.access", lambda *_: False)
    with pytest.raises(ConfigError, match=r"^--keep: the directory cannot be written to"):
        demo(keep=tmp_path / "kept")


def test_where_everything_is_kept_is_said_also_when_it_fails(hermes, tmp_path, monkeypatch):
    """That is when somebody wants to look."""
    monkeypatch.setattr(gateway_process, "READY_SECONDS", 0.0)
    out = io.StringIO()
    with pytest.raises(StartFailed):
        demo(keep=tmp_path / "kept", out=out)
    assert out.getvalue().splitlines()[-1] == f"Everything is kept in {tmp_path / 'kept'}"
    assert (tmp_path / "kept" / "gateway" / "gateway.log").is_file()


def test_without_hermes_it_is_one_sentence_and_status_2(monkeypatch, capsys, tmp_path):
    """Nothing is started or made before that is known."""

    def missing():
        raise StartFailed("hermes", "Hermes is not installed; install it with: pip …")

    monkeypatch.setattr(gateway_process, "find_hermes", missing)
    assert commands.main(["demo", "--once", "hello", "--keep", str(tmp_path / "kept")]) == 2
    shown, said = capsys.readouterr()
    assert shown == ""
    assert not (tmp_path / "kept").exists()
    assert said == "bothy_hermes: hermes: Hermes is not installed; install it with: pip …\n"


@pytest.fixture
def prefix():
    """What stands before the command."""
    return []


@pytest.fixture
def starting(hermes, tmp_path, prefix):
    """The demo as a process of its own whose Hermes never connects; with the gateway's process ID."""
    kept = tmp_path / "kept"
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", STARTING, str(hermes), str(kept)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    pid = kept / "gateway" / "workspace" / "pid"
    while process.poll() is None and not (pid.exists() and pid.read_text().strip()):
        threading.Event().wait(0.05)
    yield process, int(pid.read_text())
    process.kill()
    process.communicate()


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
    ids=["ctrl-c", "sigterm", "terminal-gone"],
)
def test_a_signal_ends_everything_that_was_started(starting, number, status):
    process, gateway = starting
    process.send_signal(number)
    shown, said = process.communicate(timeout=20)
    assert process.returncode == status, said
    assert "Traceback" not in said
    assert "Stopping everything" in shown
    assert is_gone(gateway)


@pytest.mark.parametrize("prefix", [["nohup"]])
def test_under_nohup_it_outlives_its_terminal(starting):
    process, gateway = starting
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 143, said
    assert is_gone(gateway)


def test_a_second_ctrl_c_does_not_leave_the_gateway_behind(hermes, starting):
    process, gateway = starting
    process.send_signal(signal.SIGINT)
    while "Stopping everything" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert is_gone(gateway)


def test_a_reader_that_goes_away_leaves_nothing_running(starting):
    """As `head` does once it has its lines."""
    process, gateway = starting
    process.stdout.close()
    process.stdout = None
    process.communicate(timeout=20)
    assert process.returncode not in (None, 0)
    assert is_gone(gateway)
