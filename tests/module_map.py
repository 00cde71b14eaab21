"""The list of modules in docs/architecture.md, made from the modules themselves.

`python -m tests.module_map` writes it anew; `tests/test_docs.py` holds it.
"""

import ast
from pathlib import Path

from tests.test_layers import LAYERS, PACKAGE

PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
HEADING = "## Modules\n"
INTRODUCTION = "A test holds this list against the first lines of the modules.\n"


def first_line(module):
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse((PACKAGE / f"{module}.py").read_text("utf-8")))
    return (docstring or "").splitlines()[0]


def module_map():
    """The section of the page, layer by layer."""
    lines = [HEADING, INTRODUCTION]
    for layer, modules in LAYERS.items():
        lines += [f"### {layer}\n", "| module | what it owns |", "|---|---|"]
        here = [module for module in modules if (PACKAGE / f"{module}.py").is_file()]
        lines += [f"| `{module}` | {first_line(module)} |" for module in here]
        lines.append("")
    return "\n".join(lines)


def written():
    """The section as the page has it."""
    return HEADING + PAGE.read_text("utf-8").partition(HEADING)[2]


if __name__ == "__main__":
    before = PAGE.read_text("utf-8").partition(HEADING)[0]
    PAGE.write_text(before + module_map(), "utf-8")
