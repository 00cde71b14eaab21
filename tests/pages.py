"""The parts of the pages that are made from the code.

`python -m tests.pages` writes them anew between their marks; `tests/test_docs.py` holds them.
"""

import ast
import re
from pathlib import Path

from bothy_hermes.config_keys import KEYS
from bothy_hermes.demo_profile import TOOLSETS
from bothy_hermes.hermes_contract import USES, Need
from bothy_hermes.local_model_words import words_table
from tests.fakes.crash_matrix import tables
from tests.test_layers import LAYERS, PACKAGE

ROOT = Path(__file__).parents[1]


def first_line(module):
    """The first line of a module's docstring."""
    docstring = ast.get_docstring(ast.parse((PACKAGE / f"{module}.py").read_text("utf-8")))
    return (docstring or "").splitlines()[0]


def module_map():
    """Every module, layer by layer, with what it owns."""
    lines = []
    for layer, modules in LAYERS.items():
        lines += [f"### {layer}", "", "| module | what it owns |", "|---|---|"]
        here = [module for module in modules if (PACKAGE / f"{module}.py").is_file()]
        lines += [f"| `{module}` | {first_line(module)} |" for module in here]
        lines.append("")
    return "\n".join(lines)


def key_table():
    """Every configuration key."""
    lines = ["| key | type | default | range | what for |", "|---|---|---|---|---|"]
    for key in KEYS:
        if key.name.startswith("hermes_api."):
            continue  # read already, used by nothing yet
        default = "required" if key.required else ("" if key.default is None else f"`{key.default}`")
        unit = f" {key.unit}" if key.unit else ""
        reach = f"`{key.range}`" if key.pattern else f"{key.range}{unit}"
        lines.append(f"| `{key.name}` | {key.type} | {default} | {reach} | {key.reason} |")
    return "\n".join(lines) + "\n"


def word_table():
    """The words of the scripted model that the demo's agent can act on."""
    lines = ["| a message with | gets |", "|---|---|"]
    return "\n".join(lines + [f"| `{name}` | {what} |" for name, what in words_table(TOOLSETS)]) + "\n"


WITHOUT = {Need.CONNECT: "no connection", Need.SERVE: "no runs", Need.NOTHING: "goes on"}
"""What a person who reads the table needs to know of a need."""


def contract_table():
    """Everything that is used of Hermes."""
    lines = ["| what for | where | without it |", "|---|---|---|"]
    for use in USES:
        places = " or ".join(f"`{place}`" for place in use.places)
        names = f" with {', '.join(f'`{name}`' for name in use.names)}" if use.names else ""
        lines.append(f"| {use.what_for} | {places}{names} | {WITHOUT[use.need]} |")
    return "\n".join(lines) + "\n"


MADE = {
    ("docs/versions.md", "contract"): contract_table,
    ("docs/architecture.md", "modules"): module_map,
    ("docs/crash-matrix.md", "deaths"): tables,
    ("README.md", "keys"): key_table,
    ("README.md", "words"): word_table,
}
"""Page and mark of every made part."""


def _part(mark):
    return re.compile(rf"(<!-- made: {mark} -->\n).*?(<!-- end: {mark} -->)", re.DOTALL)


def written(page, mark):
    """A made part as its page has it."""
    found = _part(mark).search((ROOT / page).read_text("utf-8"))
    return None if found is None else found.group().partition("\n")[2].rpartition("<!--")[0]


def write(page, mark, text):
    """Put a made part into its page."""
    path = ROOT / page
    path.write_text(
        _part(mark).sub(lambda found: found[1] + text + found[2], path.read_text("utf-8")), "utf-8"
    )


if __name__ == "__main__":
    for (page, mark), make in MADE.items():
        write(page, mark, make())
