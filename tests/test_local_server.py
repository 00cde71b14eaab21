"""The command `local-server`, in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from bothy_hermes.__main__ import main
from bothy_hermes.local_server import is_loopback

ROOT = Path(__file__).parents[1]


def start(*options):
    return subprocess.Popen(
        [sys.executable, "-m", "bothy_hermes", "local-server", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_one_ready_line_and_a_clean_stop(tmp_path, number):
    state = tmp_path / "state"
    process = start("--state", str(state), "--json", "--dpop")
    ready = json.loads(process.stdout.readline())
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (0, "", "")
    assert set(ready) == {"api_url", "page_url", "instance_id", "agent", "people"}
    assert ready["agent"]["token_file"] == str(state / "agent.token")
    assert ready["agent"]["dpop_key_file"] == str(state / "agent-dpop.pem")
    assert [set(one) for one in ready["people"]] == [{"id", "name", "role", "token", "login_url"}] * 2
    assert not (state / "server.sqlite3-wal").exists()


def test_people_read_sentences(tmp_path):
    process = start("--state", str(tmp_path))
    lines = [process.stdout.readline() for _ in range(10)]
    process.terminate()
    process.communicate(timeout=20)
    text = "".join(lines)
    assert "Ada (owner): http://127.0.0.1:" in text
    assert "hermes_adapter.server_url: http://127.0.0.1:" in text
    assert f"hermes_adapter.token_file: {tmp_path / 'agent.token'}" in text


def test_a_public_address_with_consent_says_what_that_means(tmp_path):
    process = start("--state", str(tmp_path), "--host", "0.0.0.0", "--allow-remote", "--json")
    assert json.loads(process.stdout.readline())["page_url"].startswith("http://127.0.0.1:")
    process.terminate()
    assert "plain HTTP" in process.communicate(timeout=20)[1]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--host", "0.0.0.0"],
            "--host: is not an address of this machine alone; add --allow-remote to consent",
        ),
        (["--host", "example.com"], "--host: is not an address"),
        (["--host", ""], "--host: expected an address"),
    ],
)
def test_a_public_address_needs_consent(tmp_path, capsys, options, sentence):
    assert main(["local-server", "--state", str(tmp_path / "state"), *options]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "chat.example.com/api/v1",
        "ws://chat.example.com/api/v1",
        "https://user@chat.example.com/api/v1",
        "https://chat.example.com/api/v1?x=1",
        "https://chat.example.com/api/v1#x",
        "https://chat.example.com:port/api/v1",
        "https://chat.example.com/a b",
        "http://chat.example.com/api/v1",
    ],
)
def test_a_public_url_that_no_adapter_can_use_is_refused(tmp_path, capsys, url):
    """Adapters take https, or http on their own machine; proofs name it without query and fragment."""
    assert main(["local-server", "--state", str(tmp_path / "state"), "--public-url", url]) == 2
    assert capsys.readouterr().err.startswith("bothy_hermes: --public-url: ")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("url", ["https://chat.example.com/api/v1", "http://127.0.0.1:9/api/v1"])
def test_a_public_url_is_the_api_base_without_a_slash_at_its_end(tmp_path, url):
    """As the adapter has it: one slash more, and no proof would fit."""
    process = start("--state", str(tmp_path), "--public-url", f"{url}/", "--json")
    assert json.loads(process.stdout.readline())["api_url"] == url
    process.terminate()
    process.communicate(timeout=20)


def test_a_directory_in_use_is_one_sentence(tmp_path):
    first = start("--state", str(tmp_path / "state"), "--json")
    first.stdout.readline()
    second = start("--state", str(tmp_path / "state"))
    out, err = second.communicate(timeout=20)
    first.terminate()
    first.communicate(timeout=20)
    assert (second.returncode, out) == (2, "")
    assert err == (
        "bothy_hermes: state: another server uses this state directory; stop it or name another directory\n"
    )


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("h", False),
    ],
)
def test_which_addresses_are_this_machines(host, loopback):
    assert is_loopback(host) is loopback


def test_under_nohup_it_outlives_its_terminal(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child inherits it, as from `nohup`
    try:
        process = start("--state", str(tmp_path / "state"), "--json")
    finally:
        signal.signal(signal.SIGHUP, before)
    page_url = json.loads(process.stdout.readline())["page_url"]
    process.send_signal(signal.SIGHUP)
    with urllib.request.urlopen(page_url) as page:
        assert page.status == 200
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0


@pytest.mark.parametrize("port", ["-1", "65536"])
def test_a_port_that_is_none_is_refused_by_its_name(tmp_path, capsys, port):
    assert main(["local-server", "--state", str(tmp_path / "state"), "--port", port]) == 2
    assert capsys.readouterr().err == "bothy_hermes: --port: expected 0 to 65535\n"
    assert not (tmp_path / "state").exists()


def test_without_a_state_directory_nothing_stays():
    """A first try needs no directory, and leaves none."""
    process = start("--json")
    state = Path(json.loads(process.stdout.readline())["agent"]["token_file"]).parent
    assert state.is_dir()
    process.terminate()
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert not state.exists()


def test_a_key_cannot_be_wished_for_afterwards(tmp_path, capsys):
    """`--dpop` on a state without a key is refused, instead of being ignored."""
    state = str(tmp_path / "state")
    process = start("--state", state, "--json")
    process.stdout.readline()
    process.terminate()
    process.communicate(timeout=20)
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert main(["local-server", "--state", state, "--dpop"]) == 2
    assert "--dpop: is for a new state" in capsys.readouterr().err
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before
