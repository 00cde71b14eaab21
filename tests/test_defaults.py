"""The module that Hermes reads while it starts: it imports nothing and says what the page says."""

import ast
import re
from pathlib import Path

import bothy_hermes
from bothy_hermes import defaults

SOURCE = Path(bothy_hermes.__file__).with_name("defaults.py").read_text("utf-8")


def test_it_imports_nothing():
    """Not even the standard library: the entry is loaded in every Hermes process."""
    assert not [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Import | ast.ImportFrom)]


def test_the_values_are_the_pages():
    """Names and limits as the configuration's table has them."""
    assert defaults.ADAPTER_NAME == "bothy-hermes"
    assert defaults.RUNTIME_NAME == "hermes-agent"
    assert defaults.LOGGER_NAME == "bothy_hermes"
    assert defaults.DEFAULT_PLATFORM_KEY == "bothy"
    assert defaults.DEFAULT_CONSUMER == "default"
    assert defaults.DEFAULT_MAX_MESSAGE_BYTES == 262144
    assert defaults.DEFAULT_ATTACHMENT_TEXT_MAX_BYTES == 32768


def test_the_version_is_one_that_packaging_takes():
    """Three numbers, perhaps a pre-release; the package offers the same one."""
    assert re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", defaults.VERSION)


def test_every_name_is_explained():
    """Each constant has its sentence below it."""
    body = ast.parse(SOURCE).body
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.Assign):
            assert isinstance(after, ast.Expr), statement.targets[0].id
            assert isinstance(after.value, ast.Constant)
