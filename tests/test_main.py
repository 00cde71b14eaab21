"""The command line."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bothy_hermes import __main__ as commands
from bothy_hermes.defaults import VERSION
from bothy_hermes.errors import StateLocked, WatchLost

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    """Help texts depend on the terminal."""
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")


def usage(capsys, *words):
    """What a help option prints; argparse ends the process with it."""
    with pytest.raises(SystemExit) as ended:
        commands.main([*words, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_version_is_the_packages(capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"bothy-hermes {VERSION}\n"


def test_only_commands_that_exist_are_offered(capsys):
    found = re.findall(r"^    ([a-z-]+)\s", usage(capsys), re.MULTILINE)
    assert found == ["demo", "local-server", "protocol"]


def test_the_demos_help_has_the_words_of_the_script(capsys, text_snapshot):
    assert usage(capsys, "demo") == text_snapshot


def test_without_a_command_the_usage_is_shown(capsys):
    with pytest.raises(SystemExit) as ended:
        commands.main([])
    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_an_error_of_ours_is_one_sentence_and_status_2(monkeypatch, capsys):
    def locked(_options):
        raise StateLocked("state", "another process uses this directory; stop it first")

    monkeypatch.setattr(commands, "_protocol", locked)
    assert commands.main(["protocol"]) == 2
    said = capsys.readouterr()
    assert said.err == "bothy_hermes: state: another process uses this directory; stop it first\n"
    assert said.out == ""


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (WatchLost("the run has not ended"), 1, "the run has not ended"),
        (OSError(28, "No space left on device", "/a/b"), 2, "/a/b: No space left on device"),
        (OSError(28, "No space left on device", "/a", None, "/b"), 2, "/b: No space left on device"),
        (OSError(28, "No space left on device"), 2, "No space left on device"),
        (OSError("the network is gone"), 2, "the network is gone"),
        (TimeoutError(), 2, "TimeoutError"),
    ],
)
def test_what_the_system_refuses_is_a_sentence_too(monkeypatch, capsys, error, status, sentence):
    """It names what was written last: of a copy the second file."""

    def refused(_options):
        raise error

    monkeypatch.setattr(commands, "_protocol", refused)
    assert commands.main(["protocol"]) == status
    assert capsys.readouterr().err == f"bothy_hermes: {sentence}\n"


def test_a_library_that_is_missing_is_a_sentence(monkeypatch, capsys):
    """As for whoever runs a checkout that nobody has installed."""

    def missing(_options):
        raise ModuleNotFoundError("No module named 'jwt'", name="jwt")

    monkeypatch.setattr(commands, "_protocol", missing)
    assert commands.main(["protocol"]) == 2
    assert capsys.readouterr().err == (
        "bothy_hermes: the library jwt is missing; run the Python that this package is installed in\n"
    )


def test_a_missing_room_is_a_bug_and_not_hidden(monkeypatch):
    def missing(_options):
        raise ModuleNotFoundError("No module", name="bothy_hermes.nowhere")

    monkeypatch.setattr(commands, "_protocol", missing)
    with pytest.raises(ModuleNotFoundError):
        commands.main(["protocol"])


def test_an_error_that_is_a_bug_is_not_hidden(monkeypatch):
    def broken(_options):
        raise KeyError("bug")

    monkeypatch.setattr(commands, "_protocol", broken)
    with pytest.raises(KeyError):
        commands.main(["protocol"])


def test_ctrl_c_is_status_130(monkeypatch):
    def interrupted(_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "_protocol", interrupted)
    assert commands.main(["protocol"]) == 130


def test_windows_is_refused_with_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    assert commands.main(["protocol"]) == 2
    assert "WSL" in capsys.readouterr().err


@pytest.mark.parametrize("option", [[], ["--frames"]], ids=["operations", "frames"])
def test_the_protocol_is_printed_as_one_json_document(capsys, option):
    assert commands.main(["protocol", *option]) == 0
    assert isinstance(json.loads(capsys.readouterr().out), dict)


@pytest.mark.parametrize("option", [[], ["--frames"]], ids=["operations", "frames"])
def test_a_reader_that_goes_away_is_no_traceback(option):
    """As in `protocol | head`: there is nobody to tell anything, and the status is that of a pipe's end."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "bothy_hermes", "protocol", *option]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no file here that is always full")
@pytest.mark.parametrize("words", [["protocol"], ["--help"]], ids=["protocol", "help"])
def test_a_full_disk_under_the_output_is_no_traceback(words):
    command = [sys.executable, "-m", "bothy_hermes", *words]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "ignored" not in done.stderr
    if words == ["protocol"]:
        assert (done.returncode, done.stderr) == (2, "bothy_hermes: No space left on device\n")


def in_a_shell(redirection, *arguments):
    """Run Python with a redirection that only a shell can make."""
    command = ["sh", "-c", f'exec "$0" "$@" {redirection}', sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("redirection", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_traceback(redirection):
    done = in_a_shell(redirection, "-m", "bothy_hermes", "protocol")
    assert (done.returncode, done.stderr) == (0, "")


def test_no_file_gets_the_number_of_a_closed_stream():
    """Else what is printed would be written into it: the server's state, perhaps."""
    code = (
        "import sys; from bothy_hermes.__main__ import _mend_streams; _mend_streams()\n"
        "with open(sys.argv[1], 'w') as file: sys.exit(file.fileno())"
    )
    assert in_a_shell("<&- >&- 2>&-", "-c", code, os.devnull).returncode > 2


def test_a_character_that_the_terminal_lacks_ends_nothing():
    code = (
        "import sys; from bothy_hermes import __main__ as commands\n"
        "commands._protocol = lambda _options: print('\\u2713 done') or 0\n"
        "sys.exit(commands.main(['protocol']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "? done\n", "")


def test_starting_loads_no_room_that_the_command_does_not_use():
    code = "import sys, bothy_hermes.__main__ as m; m._parser([]); print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"websockets", "jwt", "cryptography", "sqlite3", "http"} & set(loaded)


def test_the_installed_command_is_the_same_program():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"bothy-hermes": "bothy_hermes.__main__:main"}
