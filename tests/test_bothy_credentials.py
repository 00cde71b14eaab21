"""A token or key is read from a private file only, and what is wrong with it is named by its key."""

import asyncio
import os

import pytest

from bothy_hermes.bothy_credentials import (
    DPOP_KEY,
    MAX_FILE_BYTES,
    TOKEN_KEY,
    AgentToken,
    load_agent_token,
    load_dpop_key,
    load_signer,
    load_token,
)
from bothy_hermes.errors import ConfigError
from bothy_hermes.secret import Secret
from tests.fakes.edge_kit import AGENT_KEY, pem, private_file

LOADERS = [(load_agent_token, TOKEN_KEY), (load_dpop_key, DPOP_KEY)]


def refused(loader, path):
    with pytest.raises(ConfigError) as caught:
        loader(path)
    return caught.value


def test_a_token_is_one_word(tmp_path):
    """The line's end does not belong to it."""
    assert load_agent_token(private_file(tmp_path / "t", "abc-DEF_1.2~\n")) == Secret("abc-DEF_1.2~")


def test_a_key_is_read(tmp_path):
    """The PEM of the adapter's key, and the signer made of it."""
    path = private_file(tmp_path / "k", pem(AGENT_KEY))
    assert load_dpop_key(path).public_key() == AGENT_KEY.public_key()
    assert load_signer(path).jkt
    assert load_signer(None) is None


@pytest.mark.parametrize(("loader", "key"), LOADERS)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o602, 0o610, 0o644, 0o777])
def test_decision_2_a_file_open_to_others_is_refused(tmp_path, loader, key, mode):
    """Any bit for group or others, also the right to write or run it."""
    path = private_file(tmp_path / "f", "abc")
    path.chmod(mode)
    error = refused(loader, path)
    assert error.key == key
    assert "0600" in error.problem


@pytest.mark.parametrize(("loader", "key"), LOADERS)
def test_what_is_no_file_is_refused(tmp_path, loader, key):
    """A directory, a missing file, a FIFO (with a writer or without waiting for one), a file in a file."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo, 0o600)
    plain = private_file(tmp_path / "plain", "abc")
    talking = tmp_path / "talking"
    os.mkfifo(talking, 0o600)
    writer = os.open(talking, os.O_RDWR | os.O_NONBLOCK)
    os.write(writer, b"abc")
    assert refused(loader, talking).problem == "is not a regular file"
    os.close(writer)
    directory = tmp_path / "directory"
    directory.mkdir(mode=0o700)
    for path in (directory, tmp_path / "missing", fifo, plain / "below", tmp_path / ("x" * 300)):
        error = refused(loader, path)
        assert error.key == key
        assert str(tmp_path) not in str(error)


@pytest.mark.parametrize(("loader", "key"), LOADERS)
@pytest.mark.parametrize("content", ["", "\n", " \t\n"])
def test_an_empty_file_is_refused(tmp_path, loader, key, content):
    """Nothing, or nothing but spaces."""
    assert str(refused(loader, private_file(tmp_path / "f", content))) == f"{key}: the file is empty"


@pytest.mark.parametrize(
    "content", ["two words", "a\nb", "tök", b"\xff\xfe", "a\x00b", "a\x7f", "x" * 20_000]
)
def test_what_is_no_token_is_refused(tmp_path, content):
    """Anything that cannot stand in a header field, without repeating it."""
    error = refused(load_agent_token, private_file(tmp_path / "f", content))
    assert error.key == TOKEN_KEY
    assert str(content) not in str(error)


@pytest.mark.parametrize("content", ["hunter2", pem(AGENT_KEY)[:100], b"x" * (MAX_FILE_BYTES + 1)])
def test_what_is_no_key_is_refused(tmp_path, content):
    """Garbage, half a key, something large; none of it is repeated."""
    error = refused(load_dpop_key, private_file(tmp_path / "f", content))
    assert error.key == DPOP_KEY
    assert "hunter2" not in str(error)


def test_another_key_of_the_table_is_named(tmp_path):
    """The same rules for other private files, under their own names."""
    error = refused(lambda path: load_token(path, "hermes_api.key_file"), tmp_path / "none")
    assert error.key == "hermes_api.key_file"


def test_a_symbolic_link_is_followed(tmp_path):
    """Secret managers mount files as links; what counts is the file behind."""
    link = tmp_path / "link"
    link.symlink_to(private_file(tmp_path / "f", "abc"))
    assert load_agent_token(link) == Secret("abc")


def test_the_agents_token_is_read_once_and_again_when_refused(tmp_path):
    """A refusal makes sense of one more try only when the file holds another token by now."""
    path = private_file(tmp_path / "t", "one")
    source = AgentToken(path)

    async def story():
        first = await source.token()
        private_file(path, "two")
        assert await source.token() == first == Secret("one")
        assert await source.refused(first, "unauthorized") is True
        assert await source.token() == Secret("two")
        assert await source.refused(Secret("two"), "unauthorized") is False
        # Somebody else's call has read the new token already: one more try makes sense for this one too.
        assert await source.refused(first, "unauthorized") is True

    asyncio.run(story())


def test_a_file_that_is_gone_for_a_moment_stops_nothing(tmp_path, caplog):
    """While it is being replaced, the token at hand stays in use."""
    path = private_file(tmp_path / "t", "one")
    source = AgentToken(path)

    async def story():
        await source.token()
        path.unlink()
        source.reread()
        assert await source.token() == Secret("one")
        assert await source.refused(Secret("one"), "unauthorized") is False

    asyncio.run(story())
    assert caplog.messages[0].startswith("hermes_adapter.token_file: the file cannot be read")


def test_a_token_that_was_never_there_is_an_error(tmp_path):
    """Without any token nothing can start."""
    source = AgentToken(tmp_path / "t")
    source.reread()
    with pytest.raises(ConfigError, match=r"hermes_adapter\.token_file"):
        asyncio.run(source.token())
