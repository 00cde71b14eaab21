"""The map from the protocol to code and tests names every section, and nothing that does not exist."""

import re
from pathlib import Path

import pytest

from tests.test_layers import MODULES

ROOT = Path(__file__).parents[1]
MAP = (ROOT / "docs" / "protocol-map.md").read_text("utf-8")


def sections(text):
    """The numbers of a page's sections, and their titles without what stands behind a comma."""
    found = re.findall(r"^## (\d+) ([^,\n]+)", text, re.MULTILINE)
    return [(int(number), title.strip()) for number, title in found]


def rows():
    """The rows of all tables, as (what, adapter, server, tests)."""
    lines = [line for line in MAP.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] != "what"]


def named(cell):
    return re.findall(r"`(\w+)`", cell)


def test_every_section_of_the_protocol_is_on_the_map_and_no_other():
    assert sections(MAP) == sections((ROOT / "docs" / "protocol.md").read_text("utf-8"))


@pytest.mark.parametrize("row", rows(), ids=lambda row: re.sub(r"\W+", "-", row[0]))
def test_a_row_names_rooms_that_exist_and_at_least_one_test(row):
    _, adapter, server, tests = row
    rooms = named(adapter) + named(server)
    assert rooms
    assert set(rooms) <= set(MODULES)
    assert named(tests)
    assert all(name.startswith("test_") for name in named(tests))


def test_rooms_of_the_server_stand_on_its_side():
    """And none of them on the adapter's, which must do without."""
    for _, adapter, server, _ in rows():
        assert not [name for name in named(adapter) if name.startswith("local_")]
        assert not [name for name in named(server) if name.startswith(("bothy_", "hermes_", "run_"))]
