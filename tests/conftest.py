"""Fixtures of every test: snapshots in one top-level place, and no way out of this machine."""

import ipaddress
import json
import signal
import socket
from pathlib import Path

import pytest
from hypothesis import settings
from syrupy.extensions.json import JSONSnapshotExtension
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

ROOT = Path(__file__).parents[1]

# A busy machine makes single examples slow; how fast a room is, its own test of speed says.
settings.register_profile("product", deadline=None)
settings.load_profile("product")


def pytest_configure():
    """Take signals that whoever started the tests has switched off, as `nohup` and a shell's `&` do."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def pytest_addoption(parser):
    parser.addoption("--dpop", action="store_true", help="bind the agent's tokens to a key in all live tests")


class TopLevelSnapshots:
    """Keeps snapshots in `snapshots/<path of the test module below tests>/`."""

    @classmethod
    def dirname(cls, *, test_location):
        module = Path(test_location.filepath).relative_to(ROOT / "tests").with_suffix("")
        return str(ROOT / "snapshots" / module)


class JsonSnapshot(TopLevelSnapshots, JSONSnapshotExtension):
    """One JSON file a snapshot; what JSON cannot hold fails instead of being written lossily."""

    def serialize(self, data, **options):
        json.dumps(data, allow_nan=False)
        return super().serialize(data, **options)


class TextSnapshot(TopLevelSnapshots, SingleFileSnapshotExtension):
    """One text file a snapshot."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"


@pytest.fixture
def snapshot(snapshot):
    """JSON snapshots; `snapshot.use_extension(TextSnapshot)` through `text_snapshot` for texts."""
    return snapshot.use_extension(JsonSnapshot)


@pytest.fixture
def text_snapshot(snapshot):
    """Text snapshots."""
    return snapshot.use_extension(TextSnapshot)


def _is_local(address):
    if not isinstance(address, tuple):
        return True  # a UNIX socket
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except ValueError:
        return address[0] == "localhost"


@pytest.fixture(autouse=True)
def no_way_out(monkeypatch):
    """A connection to another machine fails loudly."""
    connect = socket.socket.connect

    def guarded(self, address):
        if not _is_local(address):
            raise AssertionError(f"a test tried to reach {address!r}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
