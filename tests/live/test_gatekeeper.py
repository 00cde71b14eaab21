"""Another plugin of the profile wants a person's leave for a tool."""

import pytest

from bothy_hermes.install_plan import Entry
from tests.live.talk import Talk

MANIFEST = """\
name: gatekeeper
version: 1.0.0
description: Wants a person's leave for every command.
kind: standalone
provides_hooks:
  - pre_tool_call
"""

PLUGIN = '''
def register(ctx):
    """Hermes calls this."""

    def ask(tool_name="", **_more):
        if tool_name == "terminal":
            return {"action": "approve", "message": "The gatekeeper wants to know."}

    ctx.register_hook("pre_tool_call", ask)
'''


@pytest.fixture(scope="module")
def world(closed_world):
    """A world with that plugin beside ours."""
    closed_world.open(more=[Entry(("plugins", "enabled"), ["bothy", "gatekeeper"])])
    folder = closed_world.gateway.place.hermes_home / "plugins" / "gatekeeper"
    folder.mkdir()
    (folder / "plugin.yaml").write_text(MANIFEST, "utf-8")
    (folder / "__init__.py").write_text(PLUGIN, "utf-8")
    closed_world.start()
    return closed_world


@pytest.mark.slow
@pytest.mark.parametrize(("label", "said"), [("once", "hello from the terminal"), ("Deny", "BLOCKED")])
def test_what_a_plugin_wants_leave_for_becomes_a_card(world, label, said):
    """It is asked as Hermes' own questions are, and its answer decides about the tool."""
    talk = Talk(world)
    run_id = talk.say("tool")
    (card,) = talk.cards(run_id)
    assert "The gatekeeper wants to know." in card.content
    assert talk.press(card, label)[0] == "acknowledged"
    assert talk.ended(run_id).state == "completed"
    assert said in talk.texts(run_id)[0]
