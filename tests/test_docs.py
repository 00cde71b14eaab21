"""The pages say what the code is."""

import re
from pathlib import Path

import pytest

from tests.pages import MADE, first_line, written
from tests.test_layers import LAYERS, MODULES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TESTS = {
    name
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^\s*def (test_\w+)", path.read_text("utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize(("page", "mark"), MADE, ids=lambda value: value.replace("/", "-"))
def test_what_is_made_from_the_code_is_up_to_date(page, mark):
    """`python -m tests.pages` writes it anew."""
    assert written(page, mark) == MADE[page, mark]()


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_its_layer(module):
    """The first paragraph names what a module owns, the second its layer."""
    source = (ROOT / "bothy_hermes" / f"{module}.py").read_text("utf-8")
    assert first_line(module).endswith((".", ":"))
    layer = next(layer for layer, modules in LAYERS.items() if module in modules)
    if layer != "doors" and module != "defaults":
        assert f"Layer: {layer}" in source


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_test_that_a_page_names_exists(page):
    """A page that points to a test which is gone proves nothing."""
    named = set(re.findall(r"`(test_\w+)`", page.read_text("utf-8")))
    assert sorted(name for name in named - TESTS if not (ROOT / "tests" / f"{name}.py").is_file()) == []
