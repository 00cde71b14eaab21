"""The options of one start."""

import pytest

from bothy_hermes.local_options import ServerOptions
from bothy_hermes.wire_words import BillingMode, ToolClass


def test_options_have_their_range():
    for options in ({"token_life_seconds": 901}, {"token_life_seconds": 0}, {"max_content_bytes": 300_000}):
        with pytest.raises(ValueError, match="is not within"):
            ServerOptions(**options)
    with pytest.raises(ValueError, match="root"):
        ServerOptions(tool_class="root")


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        (None, None),
        ("https://Chat.example.com/api/v1", "https://chat.example.com"),
        ("https://chat.example.com:443/api/v1", "https://chat.example.com"),
        ("https://chat.example.com:8443/x/api/v1", "https://chat.example.com:8443"),
        ("http://127.0.0.1:80/api/v1", "http://127.0.0.1"),
    ],
)
def test_the_origin_is_what_browsers_call_the_server(url, origin):
    """They leave out the usual port."""
    assert ServerOptions(public_url=url).public_origin == origin


def test_options_may_be_written_as_words():
    options = ServerOptions(tool_class="scoped", billing_mode="personal")
    assert (options.tool_class, options.billing_mode) == (ToolClass.SCOPED, BillingMode.PERSONAL)
