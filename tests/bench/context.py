"""How long the texts of a turn take to build from a long thread."""

import time

from bothy_hermes.context import build_texts
from bothy_hermes.context_render import SECRET_BYTES
from tests.bench.figures import at_most
from tests.fakes.contexts import TRIGGER, context, element, trigger

ELEMENTS = 10_000
BYTES = 20_000_000
ROUNDS = 9
LINE = "A line that somebody wrote in a thread, as long as such lines are. "


def long_context(elements):
    """A thread with so many messages, its bytes growing with them."""
    size = BYTES // ELEMENTS
    text = (LINE * (size // len(LINE) + 1))[:size]
    others = (element(1000 + number, text) for number in range(elements - 1))
    return context(*others, trigger())


def seconds(found):
    """How much of the processor's time the texts of one context take."""
    began = time.process_time()
    build_texts(found, trigger_id=TRIGGER, channel=None, files={}, secret=bytes(SECRET_BYTES))
    return time.process_time() - began


def measure(_directory):
    """The figures; both sizes in turn, the quickest of each compared: what else is slow is the machine's."""
    once, twice = long_context(ELEMENTS), long_context(2 * ELEMENTS)
    pairs = [(seconds(once), seconds(twice)) for _ in range(ROUNDS)]
    whole, double = (min(column) for column in zip(*pairs, strict=True))
    return [
        at_most("context of 10,000 elements and 20 MB", whole, 1.0, "s"),
        at_most("context of twice the size over once", double / whole, 2.3, "ratio"),
    ]
