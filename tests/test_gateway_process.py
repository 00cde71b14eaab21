"""Starting and ending a gateway, with small scripts in Hermes' place."""

import os
import signal
import stat
import sys
import threading
from pathlib import Path

import pytest

from bothy_hermes import gateway_process
from bothy_hermes.clock import system_clock
from bothy_hermes.errors import StartFailed
from bothy_hermes.gateway_process import GatewayPlace, GatewayProcess, find_hermes

RUNS = "echo started >> starts; touch up; exec sleep 60"
ENDS = "echo started >> starts; exit 75"
STUBBORN = "trap '' TERM; touch up; while :; do sleep 0.1; done"
WITH_CHILD = "sleep 60 & echo $! > child; touch up; wait"


@pytest.fixture
def place(tmp_path):
    made = GatewayPlace(tmp_path / "gateway")
    made.make()
    return made


@pytest.fixture
def hermes(tmp_path, monkeypatch):
    """Puts a shell script in the place of the `hermes` command."""

    def use(script):
        command = tmp_path / "bin" / "hermes"
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/sh\n{script}\n")
        command.chmod(stat.S_IRWXU)
        monkeypatch.setattr(gateway_process, "find_hermes", lambda: command)

    return use


@pytest.fixture
def gateway(place):
    process = GatewayProcess(place, system_clock())
    yield process
    process.kill()


def is_up(place):
    return (place.workspace / "up").exists


def gone(pid, seconds=2.0):
    """Whether a process ends within a moment; a killed orphan may wait dead for whoever adopts it."""
    clock = system_clock()
    end = clock.monotonic() + seconds
    while clock.monotonic() < end:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state == "Z":
            return True
        threading.Event().wait(0.01)
    return False


def starts(place):
    return (place.workspace / "starts").read_text().count("started")


def test_decision_14_the_environment_is_built_from_nothing(place, hermes, gateway, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a person's own")
    hermes("env > seen; touch up; exec sleep 60")
    gateway.start_until(is_up(place), print)
    lines = (place.workspace / "seen").read_text().splitlines()
    names = {line.split("=", 1)[0] for line in lines} - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names == {
        "PATH",
        "LANG",
        "HOME",
        "TMPDIR",
        "HERMES_HOME",
        "HERMES_MANAGED_DIR",
        "HERMES_GATEWAY_LOCK_DIR",
        "HERMES_GATEWAY_MAX_STARTS",
        "HERMES_DISABLE_LAZY_INSTALLS",
    }


def test_every_directory_that_the_environment_names_is_there_and_below_the_root(place):
    environment = place.environment(place.root / "bin" / "hermes")
    for name in ("HOME", "TMPDIR", "HERMES_HOME", "HERMES_MANAGED_DIR", "HERMES_GATEWAY_LOCK_DIR"):
        path = place.root / environment[name]
        assert path.is_dir()
        assert path.parent == place.root
        assert list(path.iterdir()) == []


def test_a_gateway_that_comes_up_is_started_once(place, hermes, gateway):
    hermes(RUNS)
    gateway.start_until(is_up(place), print)
    assert gateway.alive
    assert gateway.restarts == []
    assert starts(place) == 1


def test_decision_14_a_gateway_that_ends_at_once_is_started_again_and_that_is_told(place, hermes, gateway):
    hermes(f"test -e starts && {{ {RUNS}; }}\n{ENDS}")
    told = []
    gateway.start_until(is_up(place), told.append)
    assert gateway.alive
    assert gateway.restarts == ["ended at once with status 75"]
    assert told == ["Hermes ended at once with status 75; start 1 of 3 was of no use"]
    assert starts(place) == 2


def test_decision_14_a_gateway_without_its_platform_is_stopped_and_started_again(
    place, hermes, gateway, monkeypatch
):
    monkeypatch.setattr(gateway_process, "READY_SECONDS", 0.3)
    hermes("touch second; exec sleep 60")
    runs = []
    gateway.start_until(lambda: len(gateway.restarts) == 1 or runs.append(gateway.pid), print)
    assert gateway.restarts == ["has not come up with its platform in 0 s"]
    assert gone(runs[0])
    assert gateway.alive


def test_after_three_useless_starts_it_gives_up_and_nothing_runs(place, hermes, gateway):
    hermes(ENDS)
    told = []
    with pytest.raises(StartFailed, match="does not come up; its last words were told"):
        gateway.start_until(lambda: False, told.append)
    assert starts(place) == 3
    assert not gateway.alive


def test_the_last_words_of_a_useless_gateway_are_told(place, hermes, gateway, monkeypatch):
    """Its log may be deleted before anybody can look. Nothing in it acts on a terminal."""
    monkeypatch.setattr(gateway_process, "MAX_STARTS", 1)
    hermes("seq 1000; echo; printf 'a \\033[31mred\\377 line'; exit 3")
    told = []
    with pytest.raises(StartFailed):
        gateway.start_until(lambda: False, told.append)
    assert told[1:] == [
        *(f"  hermes: {number}" for number in range(994, 1001)),
        "  hermes: a ␛[31mred\ufffd line",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [("#!/nowhere/sh\n", "No such file or directory"), ("no program", "Exec format error")],
)
def test_a_hermes_that_cannot_be_run_is_said(place, hermes, gateway, text, why):
    hermes("")
    command = gateway_process.find_hermes()
    command.write_text(text)
    with pytest.raises(StartFailed) as caught:
        gateway.start()
    assert str(caught.value) == f"hermes: {command} cannot be run ({why})"


def test_the_person_who_waits_hears_something_while_it_starts(place, hermes, gateway, monkeypatch):
    monkeypatch.setattr(gateway_process, "TELL_SECONDS", 0.2)
    hermes("sleep 0.6; touch up; exec sleep 60")
    told = []
    gateway.start_until(is_up(place), told.append)
    assert told[0] == "Hermes is starting (0 s)"


def test_stop_asks_first(place, hermes, gateway):
    hermes("trap 'touch asked; exit 0' TERM; touch up; while :; do sleep 0.05; done")
    gateway.start_until(is_up(place), print)
    gateway.stop()
    assert (place.workspace / "asked").exists()
    assert not gateway.alive


def test_the_person_who_waits_hears_something_while_it_stops(place, hermes, gateway, monkeypatch):
    monkeypatch.setattr(gateway_process, "TELL_SECONDS", 0.1)
    hermes(STUBBORN)
    gateway.start_until(is_up(place), print)
    told = []
    gateway.stop(0.35, told.append)
    assert len(told) == 4
    assert told[0] == "Hermes is stopping (0 s)"
    assert gone(gateway.pid)


def test_stop_kills_what_does_not_end(place, hermes, gateway):
    hermes(STUBBORN)
    gateway.start_until(is_up(place), print)
    gateway.stop(seconds=0.2)
    assert gone(gateway.pid)


def test_stop_leaves_no_child_of_the_gateway_running(place, hermes, gateway):
    hermes(WITH_CHILD)
    gateway.start_until(is_up(place), print)
    child = int((place.workspace / "child").read_text())
    gateway.stop()
    assert gone(child)


def test_stop_ends_a_command_that_outlives_a_gateway_that_goes_by_itself(place, hermes, gateway):
    """Its parent is gone by then: who started it is asked before."""
    hermes(
        "trap 'exit 0' TERM; setsid sh -c 'echo $$ > child; sleep 60; true' & touch up\n"
        "while :; do sleep 0.05; done"
    )
    gateway.start_until(is_up(place), print)
    while not (written := place.workspace / "child").exists() or not written.read_text().strip():
        threading.Event().wait(0.01)
    child = int(written.read_text())
    gateway.stop()
    assert gone(child)


def test_kill_ends_a_command_that_has_a_group_of_its_own(place, hermes, gateway):
    hermes("setsid sh -c 'echo $$ > child; sleep 60; true' & touch up; wait")
    gateway.start_until(is_up(place), print)
    while not (written := place.workspace / "child").exists() or not written.read_text().strip():
        threading.Event().wait(0.01)
    child = int(written.read_text())
    below = [pid for pid, _ in gateway_process.descendants(child)]
    gateway.kill()
    assert gone(child)
    assert all(gone(pid) for pid in below)


def test_stop_and_kill_can_be_called_before_a_start_and_twice(place, hermes, gateway):
    gateway.stop()
    gateway.kill()
    hermes(RUNS)
    gateway.start_until(is_up(place), print)
    gateway.stop()
    gateway.stop()
    assert not gateway.alive


def test_the_gateway_takes_signals_although_they_were_held_at_its_birth(place, hermes, gateway):
    hermes(RUNS)
    gateway.start_until(is_up(place), print)
    os.kill(gateway.pid, signal.SIGTERM)
    gateway.wait()
    assert not gateway.alive


def test_a_signal_that_comes_while_the_gateway_is_born_comes_after_it(place, hermes, gateway, monkeypatch):
    hermes(RUNS)
    popen = gateway_process.subprocess.Popen

    def interrupted(*arguments, **options):
        process = popen(*arguments, **options)
        signal.raise_signal(signal.SIGINT)
        return process

    with monkeypatch.context() as patched:
        patched.setattr(gateway_process.subprocess, "Popen", interrupted)
        with pytest.raises(KeyboardInterrupt):
            gateway.start()
    assert gateway.alive
    gateway.stop()
    assert not gateway.alive


def test_it_can_be_started_on_another_thread(place, hermes, gateway):
    hermes(RUNS)
    thread = threading.Thread(target=gateway.start)
    thread.start()
    thread.join()
    assert gateway.alive


def test_without_hermes_one_sentence_has_the_command(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setattr(gateway_process, "TOO_NEW_FOR_HERMES", (99,))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(StartFailed) as caught:
        find_hermes()
    text = str(caught.value)
    assert gateway_process.INSTALL_COMMAND in text
    assert "\n" not in text


def test_a_python_that_is_too_new_for_hermes_is_not_sent_to_install_it(monkeypatch):
    """Its installer would only say that there is no such version."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(gateway_process, "TOO_NEW_FOR_HERMES", sys.version_info[:2])
    with pytest.raises(StartFailed, match=r"takes Python 3\.11 to 3\.13"):
        find_hermes()


def test_the_hermes_beside_this_python_comes_first(tmp_path, monkeypatch):
    beside = tmp_path / "hermes"
    beside.write_text("")
    beside.chmod(stat.S_IRWXU)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert find_hermes() == beside


def test_a_hermes_of_a_relative_path_is_found_from_everywhere(tmp_path, monkeypatch):
    """The gateway starts in another directory."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    (tmp_path / "hermes").write_text("")
    (tmp_path / "hermes").chmod(stat.S_IRWXU)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", ".")
    assert find_hermes() == tmp_path / "hermes"
