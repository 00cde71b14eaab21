"""A secret is shown by nothing but `reveal`."""

import copy
import json
import logging
import pickle
from dataclasses import dataclass

import pytest

from bothy_hermes.secret import Secret, silent_logger

TOKEN = Secret("s3cr3t")


@dataclass(frozen=True)
class Holder:
    token: Secret


@pytest.mark.parametrize(
    "shown",
    [
        str(TOKEN),
        repr(TOKEN),
        f"{TOKEN}",
        f"{TOKEN!r}",
        f"{TOKEN!s}",
        repr([TOKEN]),
        repr(Holder(TOKEN)),
    ],  # every way of showing
)
def test_no_text_holds_the_value(shown):
    """Whatever way a value becomes a text."""
    assert "s3cr3t" not in shown
    assert "Secret(…)" in shown


def test_reveal_gives_the_value():
    """The one way out."""
    assert TOKEN.reveal() == "s3cr3t"


def test_equal_secrets_are_equal_and_nothing_else_is():
    """They can be compared and kept in sets without being shown; a plain string is never one."""
    assert Secret("s3cr3t") == TOKEN
    assert hash(Secret("s3cr3t")) == hash(TOKEN)
    assert Secret("other") != TOKEN
    assert TOKEN != "s3cr3t"
    assert len({TOKEN, Secret("s3cr3t"), Secret("other")}) == 2


@pytest.mark.parametrize("leave", [pickle.dumps, copy.copy, copy.deepcopy, json.dumps, vars])
def test_a_secret_does_not_leave_the_process(leave):
    """It is neither pickled nor copied into something that would be, and has no dictionary to dump."""
    with pytest.raises(TypeError) as caught:
        leave(TOKEN)
    assert "s3cr3t" not in str(caught.value)


def test_a_logged_secret_is_not_shown(caplog):
    """Logging formats with str and repr."""
    logging.getLogger("test").warning("%s %r", TOKEN, Holder(TOKEN))
    assert "s3cr3t" not in caplog.text


def test_a_library_that_writes_secrets_is_heard_by_nobody(caplog):
    with caplog.at_level(logging.DEBUG):
        logger = silent_logger()
        assert not logger.isEnabledFor(logging.CRITICAL)
        logger.critical(TOKEN.reveal())
    assert caplog.records == []
